"""Kinds of attention, one file each. This package imports torch and ../kernels, never fairseq.

base.py          the contract: what a transform does to the maps, before and after the softmax
registry.py      what a variant is: its options, architectures, transform and test cases
options.py       how options are declared and read
conv.py          convolutions over maps
cached_heads.py  keys and values that decoding keeps

Every other file is a variant, which registers itself. To add one: one file here, or anywhere else
that is imported (a user-dir of your own, say).
"""

from importlib import import_module
from pkgutil import iter_modules

from .base import LogitTransform, Place, Projected, State, zero_hidden
from .options import ATTENTIONS, VariantOptions
from .registry import (
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
