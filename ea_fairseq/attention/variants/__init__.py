"""Kinds of attention, one file each, which register themselves.

To add one: one file here, or anywhere else that is imported (a user-dir of your own, say). The
contract that all keep stands in ../contract.py.
"""

from importlib import import_module
from pkgutil import iter_modules

from ..contract import LogitTransform, Place, Projected, State, zero_hidden
from ..options import ATTENTIONS, VariantOptions
from ..registry import (
    VARIANTS,
    Architecture,
    Variant,
    architectures,
    language_model,
    language_models,
    on_registration,
    register,
)

for _module in iter_modules(__path__):
    import_module(f".{_module.name}", __name__)

__all__ = [
    "ATTENTIONS",
    "VARIANTS",
    "Architecture",
    "LogitTransform",
    "Place",
    "Projected",
    "State",
    "Variant",
    "VariantOptions",
    "architectures",
    "language_model",
    "language_models",
    "on_registration",
    "register",
    "zero_hidden",
]
