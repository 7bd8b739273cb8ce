"""Evolving attention for fairseq: the ``--user-dir`` entry point.

Importing this package beside fairseq registers the models and their architectures, and makes
fairseq's commands safe and complete (see :mod:`ea_fairseq.compat`). Where fairseq is not yet
imported, that happens as soon as it is: what needs no fairseq (preparing text, ``--help``) starts
at once. ``Translator`` imports fairseq when it is first asked for.
"""

from typing import TYPE_CHECKING, Any

from . import plugin

if TYPE_CHECKING:
    from .translation.translator import Translator

__version__ = "0.1.0"
__all__ = ["Translator"]

plugin.register_with_fairseq()


def __getattr__(name: str) -> Any:
    if name != "Translator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .translation.translator import Translator

    return Translator
