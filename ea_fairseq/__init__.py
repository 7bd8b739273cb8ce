"""Evolving attention for fairseq: the ``--user-dir`` entry point.

Importing this package beside fairseq registers the models and their architectures, and makes
fairseq's commands safe and complete (see :mod:`ea_fairseq.compat`). Where fairseq is not yet
imported, that happens as soon as it is: what needs no fairseq (preparing text, ``--help``) starts
at once.
"""

from . import plugin

__version__ = "0.1.0"

plugin.register_with_fairseq()
