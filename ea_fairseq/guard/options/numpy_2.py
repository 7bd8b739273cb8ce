"""Names of numpy 1 that fairseq still uses.

Replaced in fairseq:
- ``np`` in ``data.token_block_dataset`` and ``data.language_pair_dataset``: both ask for
  ``np.compat.long``, which numpy 2 has not. Without it no text can be cut at the ends of its lines
  (``--sample-break-mode eos``), nor batches be padded to a few lengths (``--num-batch-buckets``).
- ``TokenBlockDataset.__getitem__``: of a text whose first line is empty, each reading warned that a
  number overflows: the end of a piece that no model asks for lies before the beginning, where
  numpy 2 keeps it an unsigned number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy
from fairseq.data import TokenBlockDataset, language_pair_dataset, token_block_dataset


class _WithLong:
    """numpy, and the one name that it has lost."""

    compat = SimpleNamespace(long=numpy.int64)

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy, name)


def _without_overflow(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __getitem__(self: TokenBlockDataset, index: int) -> Any:
        with numpy.errstate(over="ignore"):
            return original(self, index)

    return __getitem__


def install() -> None:
    """Give the name back to the two modules, where numpy lacks it, and read without warnings."""
    if not hasattr(numpy, "compat"):
        token_block_dataset.np = language_pair_dataset.np = _WithLong()
    TokenBlockDataset.__getitem__ = _without_overflow(TokenBlockDataset.__getitem__)
