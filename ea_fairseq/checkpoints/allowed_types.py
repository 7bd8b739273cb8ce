"""The types that fairseq's checkpoints contain beyond those torch allows by itself.

Found by training with every optimizer, learning-rate schedule, criterion, precision and saving
option of `fairseq-train` that runs on a CPU, and listing what torch's unpickler refused:

- ``argparse.Namespace``: the model's options (``cfg["model"]``). A bag of attributes.
- numpy arrays of numbers: the n-gram counts that ``--eval-bleu`` keeps in its meters.

Everything else in a checkpoint is made of dicts, lists, tuples, numbers, strings and tensors.

numpy's own unpickling hooks are not allowed: the state of a ``numpy.dtype`` is a set of raw flags,
and a crafted one makes numpy treat a file's bytes as pointers to objects. While a checkpoint is
read, the names of numpy's hooks therefore stand for the small classes below, which build arrays of
plain numbers and nothing else.
"""

from __future__ import annotations

import argparse
import pickle
from typing import Any

import numpy as np
import torch

_NUMBERS = frozenset(["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])


class _NumberType:
    """Stands for ``numpy.dtype``: the name of a number type, little-endian or of one byte."""

    def __init__(self, name: str, align: bool = False, copy: bool = True) -> None:
        if name not in _NUMBERS:
            raise pickle.UnpicklingError(f"numpy array of type {name!r}; allowed are numbers")
        self.name = name

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in ("<", "|"):
            raise pickle.UnpicklingError(f"numpy array of byte order {state[1]!r}")


class _NumberArray(np.ndarray):
    """Stands for ``numpy.ndarray``; saved again, it is a plain array."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, number_type, fortran_order, data = state
        if type(number_type) is not _NumberType or type(data) is not bytes:
            raise pickle.UnpicklingError("numpy array that does not hold plain numbers")
        super().__setstate__((1, shape, np.dtype(number_type.name), fortran_order, data))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.view(np.ndarray).__reduce_ex__(protocol)


def _empty_array(kind: type, shape: tuple[int, ...], typecode: Any) -> _NumberArray:
    """Stands for numpy's ``_reconstruct``, whose result is filled by ``__setstate__``."""
    if kind is not _NumberArray:
        raise pickle.UnpicklingError(f"numpy array of class {kind!r}")
    return np.ndarray.__new__(_NumberArray, (0,))


ALLOWED = [
    argparse.Namespace,
    (_NumberType, "numpy.dtype"),
    (_NumberArray, "numpy.ndarray"),
    (_empty_array, "numpy._core.multiarray._reconstruct"),
    (_empty_array, "numpy.core.multiarray._reconstruct"),  # its name before numpy 2
]

# For whoever reads a checkpoint in this process, torch.load itself too.
torch.serialization.add_safe_globals(ALLOWED)
