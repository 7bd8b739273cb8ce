"""Evolving attention for fairseq: the ``--user-dir`` entry point.

Importing this package beside fairseq registers the models and their architectures, and makes
fairseq's commands safe and complete (see :mod:`ea_fairseq.compat`). Where fairseq is not yet
imported, that happens as soon as it is: what needs no fairseq (preparing text, ``--help``) starts
at once. What uses trained models imports fairseq when it is first asked for: `Translator`;
`LanguageModel`, and `Sampling` for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import plugin

if TYPE_CHECKING:
    from .translation.language_model import LanguageModel
    from .translation.sampling import Sampling
    from .translation.translator import Translator

__version__ = "0.1.0"
__all__ = ["LanguageModel", "Sampling", "Translator"]

_MODULES = {"LanguageModel": "language_model", "Sampling": "sampling", "Translator": "translator"}

plugin.register_with_fairseq()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".translation.{_MODULES[name]}", __name__), name)
