"""Early stopping that survives a restart.

fairseq keeps the best validation score and the number of validations since then, which
``--patience`` is about, in memory only: each restart grants a training all of its patience anew,
counts its first validation as the best so far, and trains on though it had stopped early.

Replaced in fairseq:
- ``Trainer.save_checkpoint``: the checkpoint contains both, as ``extra_state["early_stopping"]``,
  and what the score is of, as ``extra_state["best_metric"]``.
- ``Trainer.load_checkpoint``: puts them back where fairseq itself puts back the best score. A
  checkpoint of fairseq's alone, without them, gives the best score at least. With another
  ``--best-checkpoint-metric`` than before, nothing is put back: fairseq compares a BLEU score with
  a loss.
- ``fairseq_cli.train.train``: ends at once where patience is exhausted already; a higher
  ``--patience`` lets it go on.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer

from .training_program import end_at_once, replace, training_programs

logger = logging.getLogger(__name__)

_KEY, _METRIC = "early_stopping", "best_metric"


def _add_state(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def save_checkpoint(self: Trainer, filename: str, extra_state: dict[str, Any]) -> Any:
        extra_state = extra_state | {_METRIC: self.cfg.checkpoint.best_checkpoint_metric}
        for program in training_programs():
            function = program.should_stop_early
            if hasattr(function, "best"):
                state = {"best": function.best, "num_runs": function.num_runs}
                extra_state = extra_state | {_KEY: state}
        return original(self, filename, extra_state)

    return save_checkpoint


def _forget_another_metric(extra_state: dict[str, Any], filename: str, metric: str) -> None:
    before = extra_state.get(_METRIC, metric)
    if before != metric:
        logger.warning(
            f"{filename}: its best checkpoint was chosen by {before}: by --best-checkpoint-metric "
            f"{metric} the comparison begins anew"
        )
        for key in ("best", _KEY):
            extra_state.pop(key, None)


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
        forgotten = reset_optimizer or reset_meters
        if extra_state is not None and not forgotten:
            metric = self.cfg.checkpoint.best_checkpoint_metric
            _forget_another_metric(extra_state, filename, metric)
        patience = self.cfg.checkpoint.patience
        state = {}
        # Without patience fairseq does not count: what an earlier training counted would be stale.
        if extra_state is not None and patience > 0 and not forgotten:
            state = extra_state.get(_KEY) or {}
            if not state and extra_state.get("best") is not None:
                state = {"best": extra_state["best"], "num_runs": 0}
        for program in training_programs():
            function = vars(program.should_stop_early)
            for name in ("best", "num_runs"):  # of another training of this process
                function.pop(name, None)
            function.update(state)
        if 0 < patience <= state.get("num_runs", 0):
            end_at_once(
                f"this training has stopped early before, with --patience {patience};"
                " a higher one lets it go on"
            )
        else:
            replace("train", lambda original: original)
        return extra_state

    return load_checkpoint


def install() -> None:
    """Make fairseq's training remember its patience."""
    Trainer.save_checkpoint = _add_state(Trainer.save_checkpoint)
    Trainer.load_checkpoint = _restore_state(Trainer.load_checkpoint)
