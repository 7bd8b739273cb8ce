"""Batches contain every sentence, and are the same after a restart.

Replaced in fairseq:
- ``data_utils.batch_by_size``: with ``--required-batch-size-multiple`` above 1 (8 is the default)
  fairseq's main branch drops the last batch if its size is no multiple of it, so training never
  sees and ``fairseq-generate`` never translates those sentences; for an empty data set it fails.
  Up to fairseq 0.12.2 such a batch was kept, and here it is again.
- ``FairseqTask.get_batch_iterator``: fairseq's main branch groups sentences by a random order that
  depends on the epoch in which the process started. A training resumed in epoch 2 or later thus
  saw other batches than one that was never stopped, and ended with other weights. Here batches
  that are kept for all epochs are always those of a start in epoch 1.
- ``np`` in ``data.token_block_dataset``, ``data.language_pair_dataset`` and ``data.data_utils``:
  they ask for ``np.compat.long``, and for ``percentile`` with ``interpolation``, which numpy 2 has
  not. Without them no text can be cut at the ends of its lines (``--sample-break-mode eos``), nor
  batches be padded to a few lengths (``--num-batch-buckets``).
- ``TokenBlockDataset.__getitem__``: of a text whose first line is empty, each reading warned that a
  number overflows: the end of a piece that no model asks for lies before the beginning, where
  numpy 2 keeps it an unsigned number.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from fairseq.data import (
    TokenBlockDataset,
    data_utils,
    language_pair_dataset,
    token_block_dataset,
)
from fairseq.tasks.fairseq_task import FairseqTask

from .around import around, module_with


@around(data_utils, "batch_by_size")
def _keep_the_last_batch(
    original: Any, indices: Sequence[int], *args: Any, **kwargs: Any
) -> list[np.ndarray]:
    if not isinstance(indices, np.ndarray):
        indices = np.fromiter(indices, dtype=np.int64, count=-1)
    if len(indices) == 0:
        return []
    batches = list(original(indices, *args, **kwargs))
    if kwargs.get("fixed_shapes") is None:  # batches of fixed shapes leave out by design
        rest = indices[sum(len(batch) for batch in batches) :]
        if len(rest) > 0:
            batches.append(rest)
    return batches


@around(FairseqTask, "get_batch_iterator")
def _same_batches_after_restart(original: Any, self: FairseqTask, *args: Any, **kwargs: Any) -> Any:
    call = inspect.signature(original).bind(self, *args, **kwargs)
    call.apply_defaults()
    dataset, epoch = call.arguments["dataset"], call.arguments["epoch"]
    kept = (
        not call.arguments["disable_iterator_cache"]
        and not call.arguments["update_epoch_batch_itr"]
        and not getattr(self.cfg, "rebuild_batches", False)
        and self.can_reuse_epoch_itr(dataset)
    )
    if not kept or epoch == 1 or dataset in self.dataset_to_epoch_iter:
        return original(*call.args, **call.kwargs)
    call.arguments["epoch"] = 1
    iterator = original(*call.args, **call.kwargs)
    iterator.epoch = epoch
    dataset.set_epoch(epoch)
    return iterator


if not hasattr(np, "compat"):
    with_long = module_with(np, compat=SimpleNamespace(long=np.int64))
    token_block_dataset.np = language_pair_dataset.np = with_long


def _percentile(values: Any, percent: Any, interpolation: str) -> Any:
    return np.percentile(values, percent, method=interpolation)


if "interpolation" not in inspect.signature(np.percentile).parameters:
    data_utils.np = module_with(np, percentile=_percentile)


@around(TokenBlockDataset, "__getitem__")
def _read_without_warning(original: Any, self: TokenBlockDataset, index: int) -> Any:
    with np.errstate(over="ignore"):
        return original(self, index)
