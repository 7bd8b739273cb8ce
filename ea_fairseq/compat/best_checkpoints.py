"""``--keep-best-checkpoints N`` keeps the N best, once there are as many.

Replaced in fairseq:
- ``checkpoint_utils.save_checkpoint`` and ``checkpoint_paths``, by which it looks for them: a
  checkpoint had to be better than the worst one kept, though fewer than N were, so that a training
  whose first epochs were the best ended with these alone. Below N the worst that it finds is now
  one that all are better than.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils

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


def _with_numbers(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def save_checkpoint(cfg: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        global _wanted
        if trainer.checkpoint_suffix:  # of a model in several files
            return original(cfg, trainer, *args, **kwargs)
        _wanted = cfg.keep_best_checkpoints, cfg.maximize_best_checkpoint_metric
        try:
            return original(cfg, trainer, *args, **kwargs)
        finally:
            _wanted = None

    return save_checkpoint


def install() -> None:
    """Make fairseq keep them."""
    checkpoint_utils.checkpoint_paths = _with_room(checkpoint_utils.checkpoint_paths)
    checkpoint_utils.save_checkpoint = _with_numbers(checkpoint_utils.save_checkpoint)
