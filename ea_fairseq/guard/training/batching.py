"""Batches contain every sentence, and are the same after a restart.

Replaced in fairseq:
- ``data_utils.batch_by_size``: with ``--required-batch-size-multiple`` above 1 (8 is the default)
  fairseq's main branch drops the last batch if its size is no multiple of it, so training never
  sees and ``fairseq-generate`` never translates those sentences; for an empty data set it fails.
  Up to fairseq 0.12.2 such a batch was kept, and here it is again. A sentence or block longer than
  ``--max-tokens`` ended in a traceback where nothing had left it out before, as in
  ``fairseq-eval-lm``; here in one line.
- ``FairseqTask.get_batch_iterator``: fairseq's main branch groups sentences by a random order that
  depends on the epoch in which the process started. A training resumed in epoch 2 or later thus
  saw other batches than one that was never stopped, and ended with other weights. Here batches
  that are kept for all epochs are always those of a start in epoch 1.
- ``FairseqTask.filter_indices_by_size``: a sentence that is too long ends the command with one
  line instead of a traceback. With ``--skip-invalid-size-inputs-valid-test`` it is left out, as
  that option says.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from fairseq.data import data_utils
from fairseq.tasks.fairseq_task import FairseqTask

from ...errors import UserError


def _keep_the_last_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def batch_by_size(indices: Sequence[int], *args: Any, **kwargs: Any) -> list[np.ndarray]:
        if not isinstance(indices, np.ndarray):
            indices = np.fromiter(indices, dtype=np.int64, count=-1)
        if len(indices) == 0:
            return []
        try:
            batches = list(original(indices, *args, **kwargs))
        except AssertionError as error:
            call = signature.bind(indices, *args, **kwargs).arguments
            if (most := call.get("max_tokens")) is None:
                raise
            longest = max(map(int, map(call["num_tokens_fn"], indices)))
            if longest <= most:
                raise
            raise UserError(
                f"--max-tokens {int(most)} is too small: the longest sentence or block has "
                f"{longest} tokens"
            ) from error
        if kwargs.get("fixed_shapes") is None:  # batches of fixed shapes leave out by design
            rest = indices[sum(len(batch) for batch in batches) :]
            if len(rest) > 0:
                batches.append(rest)
        return batches

    return batch_by_size


def _same_batches_after_restart(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def get_batch_iterator(self: FairseqTask, *args: Any, **kwargs: Any) -> Any:
        call = signature.bind(self, *args, **kwargs)
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

    return get_batch_iterator


def _too_long_in_one_line(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def filter_indices_by_size(self: FairseqTask, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except Exception as error:
            if type(error) is Exception:  # fairseq's own message, which names the option
                raise UserError(str(error)) from error
            raise

    return filter_indices_by_size


def install() -> None:
    """Make fairseq batch this way."""
    data_utils.batch_by_size = _keep_the_last_batch(data_utils.batch_by_size)
    FairseqTask.get_batch_iterator = _same_batches_after_restart(FairseqTask.get_batch_iterator)
    FairseqTask.filter_indices_by_size = _too_long_in_one_line(FairseqTask.filter_indices_by_size)
