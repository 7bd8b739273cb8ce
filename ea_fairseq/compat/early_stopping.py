"""A training that is stopped and continued stops early where it would have without the stop.

fairseq keeps the best validation score and the number of validations since then, which
``--patience`` is about, in memory only: each restart grants a training all of its patience anew,
counts its first validation as the best so far, and trains on though it had stopped early.

Replaced in fairseq:
- ``Trainer.save_checkpoint``: the checkpoint contains both, as ``extra_state["early_stopping"]``.
- ``Trainer.load_checkpoint``: puts them back where fairseq itself puts back the best score. A
  checkpoint of fairseq's alone, without them, gives the best score at least.
- ``fairseq_cli.train.train``: ends at once where patience is exhausted already; a higher
  ``--patience`` lets it go on.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from fairseq.trainer import Trainer

logger = logging.getLogger(__name__)

_KEY = "early_stopping"


def _programs() -> list[ModuleType]:
    """fairseq's training program, which has another name when started by ``python -m``."""
    names = ("fairseq_cli.train", "__main__", "__mp_main__")
    modules = [sys.modules[name] for name in names if name in sys.modules]
    return [m for m in modules if hasattr(m, "should_stop_early") and hasattr(m, "train")]


def _add_state(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def save_checkpoint(self: Trainer, filename: str, extra_state: dict[str, Any]) -> Any:
        for program in _programs():
            function = program.should_stop_early
            if hasattr(function, "best"):
                state = {"best": function.best, "num_runs": function.num_runs}
                extra_state = extra_state | {_KEY: state}
        return original(self, filename, extra_state)

    return save_checkpoint


def _restore_state(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_checkpoint(
        self: Trainer,
        filename: str,
        reset_optimizer: bool = False,
        reset_lr_scheduler: bool = False,
        optimizer_overrides: dict[str, Any] | None = None,
        reset_meters: bool = False,
    ) -> Any:
        extra_state = original(
            self, filename, reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters
        )
        state = None
        if extra_state is not None and not reset_optimizer and not reset_meters:
            state = extra_state.get(_KEY)
            if state is None and extra_state.get("best") is not None:
                state = {"best": extra_state["best"], "num_runs": 0}
        exhausted = state is not None and 0 < self.cfg.checkpoint.patience <= state["num_runs"]
        for program in _programs():
            vars(program.should_stop_early).update(state or {})
            program.train = _end_if(exhausted, program.train)
        return extra_state

    return load_checkpoint


def _end_if(exhausted: bool, train: Callable[..., Any]) -> Callable[..., Any]:
    """``train``, or where the training has stopped early already, a function that says so."""
    train = getattr(train, "trains", train)
    if not exhausted:
        return train

    def stop(cfg: Any, *_: Any) -> tuple[list[None], bool]:
        logger.info(
            f"this training has stopped early before, with --patience {cfg.checkpoint.patience};"
            " a higher one lets it go on"
        )
        return [None], True

    stop.trains = train  # type: ignore[attr-defined]
    return stop


def install() -> None:
    """Make fairseq's training remember its patience."""
    Trainer.save_checkpoint = _add_state(Trainer.save_checkpoint)
    Trainer.load_checkpoint = _restore_state(Trainer.load_checkpoint)
