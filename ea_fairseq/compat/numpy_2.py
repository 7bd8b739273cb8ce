"""What fairseq still takes from numpy 1.

Replaced in fairseq:
- ``np`` in ``data.token_block_dataset`` and ``data.language_pair_dataset``: both ask for
  ``np.compat.long``, which numpy 2 has not. Without it no text can be cut at the ends of its lines
  (``--sample-break-mode eos``), nor batches be padded to a few lengths (``--num-batch-buckets``).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy
from fairseq.data import language_pair_dataset, token_block_dataset


class _WithLong:
    """numpy, and the one name that it has lost."""

    compat = SimpleNamespace(long=numpy.int64)

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy, name)


def install() -> None:
    """Give the name back to the two modules, where numpy lacks it."""
    if not hasattr(numpy, "compat"):
        token_block_dataset.np = language_pair_dataset.np = _WithLong()
