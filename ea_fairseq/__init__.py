"""Evolving attention: a library for any torch model, and a plugin for fairseq.

``ea_fairseq.attention`` has the attentions; it needs torch alone. As ``--user-dir`` of a fairseq
command this package registers the models and their architectures, and makes the command safe and
complete (see :mod:`ea_fairseq.plugin`); in a program, ``import ea_fairseq.plugin`` does. What uses
trained models imports fairseq when it is first asked for: `Translator`; `LanguageModel`, and
`Sampling` for it.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .environment import is_own_program, set_waiting

if TYPE_CHECKING:
    from .inference.language_model import LanguageModel
    from .inference.sampling import Sampling
    from .inference.translator import Translator

__version__ = "0.1.0"
__all__ = ["LanguageModel", "Sampling", "Translator"]

_MODULES = {"LanguageModel": "language_model", "Sampling": "sampling", "Translator": "translator"}


def _is_user_dir() -> bool:
    """Whether fairseq is importing this package because ``--user-dir`` names it."""
    utils = sys.modules.get("fairseq.utils")
    named = getattr(getattr(utils, "import_user_module", None), "memo", ())
    return os.path.dirname(os.path.abspath(__file__)) in named


if is_own_program():
    set_waiting()  # before torch is imported

if _is_user_dir():
    from . import plugin  # noqa: F401


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f".inference.{_MODULES[name]}", __name__)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{name} needs {error.name}: pip install ea_fairseq, with what it requires"
        ) from error
    return getattr(module, name)
