"""``--keep-best-checkpoints N`` keeps the N best, once there are as many.

Replaced in fairseq:
- ``checkpoint_utils.save_checkpoint`` and ``checkpoint_paths``, by which it looks for them: a
  checkpoint had to be better than the worst one kept, though fewer than N were, so that a training
  whose first epochs were the best ended with these alone. Below N the worst that it finds is now
  one that all are better than. Scores that are equal in three places are told apart by a digit that
  is drawn: a checkpoint could take the name of another, which was lost. That one now takes a digit
  that is free.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from os.path import exists
from typing import Any

import numpy as np
from fairseq import checkpoint_utils
from fairseq.data import data_utils

from ...errors import UserError
from .safe_loading import read_checkpoint

_wanted: tuple[int, bool] | None = None  # while saving: how many, and whether more is better


def _with_room(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    @functools.wraps(original)
    def checkpoint_paths(path: str, *args: Any, **kwargs: Any) -> list[Any]:
        found = original(path, *args, **kwargs)
        pattern = kwargs.get("pattern", "")
        if _wanted is None or not pattern.startswith(r"checkpoint\.best_"):
            return found
        count, more_is_better = _wanted
        if len(found) >= count:
            return found
        # The best are last where less is better. No file has this name: none is removed.
        return [*found, "_-inf.pt"] if more_is_better else ["_inf.pt", *found]

    return checkpoint_paths


def _make_way(cfg: Any, trainer: Any, epoch: int, score: float) -> None:
    """Renames a checkpoint whose name the next one will take, if another of its score is free."""

    def named(digit: int) -> str:
        file = f"checkpoint.best_{cfg.best_checkpoint_metric}_{score:.3f}{digit}.pt"
        return os.path.join(cfg.save_dir, file)

    updates = trainer.get_num_updates()
    with data_utils.numpy_seed(epoch, updates, score):  # as fairseq draws it
        taken = named(np.random.randint(0, cfg.keep_best_checkpoints))
    free = [path for path in map(named, range(cfg.keep_best_checkpoints)) if not exists(path)]
    if free and exists(taken) and _updates_of(taken) not in (None, updates):
        os.rename(taken, free[0])


def _updates_of(path: str) -> int | None:
    """The updates after which a checkpoint was saved; None where it does not say so.

    A training that was killed and goes on saves some of them again.
    """
    try:
        return read_checkpoint(path)["optimizer_history"][-1]["num_updates"]
    except (UserError, LookupError, TypeError):  # a file that may be written over
        return None


def _with_numbers(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def save_checkpoint(cfg: Any, trainer: Any, epoch_itr: Any, val_loss: float | None) -> Any:
        global _wanted
        if trainer.checkpoint_suffix:  # of a model in several files
            return original(cfg, trainer, epoch_itr, val_loss)
        saves = trainer.should_save_checkpoint_on_current_rank and not cfg.no_save
        if saves and val_loss is not None and cfg.keep_best_checkpoints > 0:
            _make_way(cfg, trainer, epoch_itr.epoch, val_loss)
        _wanted = cfg.keep_best_checkpoints, cfg.maximize_best_checkpoint_metric
        try:
            return original(cfg, trainer, epoch_itr, val_loss)
        finally:
            _wanted = None

    return save_checkpoint


def install() -> None:
    """Make fairseq keep them."""
    checkpoint_utils.checkpoint_paths = _with_room(checkpoint_utils.checkpoint_paths)
    checkpoint_utils.save_checkpoint = _with_numbers(checkpoint_utils.save_checkpoint)
