"""A training that goes on keeps its patience, and makes no update more than it was told to.

fairseq keeps the best validation score and the number of validations since then, which
``--patience`` is about, in memory only: each restart grants a training all of its patience anew,
counts its first validation as the best so far, and trains on though it had stopped early. Whether
``--max-update`` or ``--stop-time-hours`` is reached it asks only after an update: each start makes
one more, and overwrites the checkpoints with it.

Replaced in fairseq:
- ``Trainer.save_checkpoint``: the checkpoint contains both numbers, as
  ``extra_state["early_stopping"]``, what the score is of, as ``extra_state["best_metric"]``, and
  the languages and dictionaries (see `ea_fairseq.checkpoints.text_identity`).
- ``Trainer.load_checkpoint``: puts patience back where fairseq itself puts back the best score. A
  checkpoint of fairseq's alone, without it, gives the best score at least. With another
  ``--best-checkpoint-metric`` than before, nothing is put back: fairseq compares a BLEU score with
  a loss. A checkpoint that does not fit is refused in one line, and so is a ``--restore-file`` that
  does not exist: fairseq started from scratch, without a word. With ``--reset-optimizer`` and
  another folder's file it is refused where the training has begun, which it would begin anew.
  The optimizer goes on with the command line's betas, epsilon and weight decay, and
  ``reduce_lr_on_plateau`` with the epochs that it has counted, which fairseq forgets.
- ``fairseq_cli.train.train``: ends at once where the training has ended before.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer

from ..checkpoints import text_identity
from ..checkpoints.literals import literal
from ..errors import UserError
from .around import around
from .loading import current, refusal
from .stopping import replace_in_program, training_programs

logger = logging.getLogger(__name__)

_KEY, _METRIC, _PLATEAU = "early_stopping", "best_metric", "reduce_lr_on_plateau"
#: What torch's ReduceLROnPlateau counts, of which fairseq keeps the first alone.
_COUNTED = ("best", "num_bad_epochs", "cooldown_counter")


@around(Trainer, "save_checkpoint")
def _save_with_patience(
    original: Any, self: Trainer, filename: str, extra_state: dict[str, Any]
) -> Any:
    extra_state = extra_state | {_METRIC: self.cfg.checkpoint.best_checkpoint_metric}
    for program in training_programs():
        function = program.should_stop_early
        if hasattr(function, "best"):
            extra_state[_KEY] = {"best": function.best, "num_runs": function.num_runs}
    if (plateau := _plateau_of(self)) is not None:
        extra_state[_PLATEAU] = {name: getattr(plateau, name) for name in _COUNTED}
    if (identity := text_identity.identity_of_task(self.task)) is not None:
        extra_state[text_identity.KEY] = identity
    return original(self, filename, extra_state)


@around(Trainer, "load_checkpoint")
def _load_with_patience(
    original: Any,
    self: Trainer,
    filename: str,
    reset_optimizer: bool = False,
    reset_lr_scheduler: bool = False,
    optimizer_overrides: dict[str, Any] | None = None,
    reset_meters: bool = False,
) -> Any:
    default = self.cfg.checkpoint.restore_file == "checkpoint_last.pt"
    if not default and not os.path.exists(filename):
        raise UserError(f"--restore-file {filename} does not exist")
    if not default and reset_optimizer:
        _refuse_to_begin_again(filename, self.cfg.checkpoint.save_dir)
    if not reset_optimizer:
        optimizer_overrides = _settings_of(self.cfg.optimizer) | (optimizer_overrides or {})
    current.trainer, current.goes_on = self, not reset_optimizer
    try:
        extra_state = original(
            self, filename, reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters
        )
    except UserError:
        raise
    except Exception as error:
        if type(error) is not Exception or error.__context__ is None:
            raise
        raise refusal(filename, error.__context__) from error
    finally:
        current.trainer = None
    forgotten = reset_optimizer or reset_meters
    if extra_state is not None and not forgotten:
        _forget_another_metric(extra_state, filename, self.cfg.checkpoint.best_checkpoint_metric)
    if extra_state is not None and not (reset_optimizer or reset_lr_scheduler):
        _restore_plateau(self, extra_state)
    used_up = _restore_patience(self, None if forgotten else extra_state)
    if ended := _finished(self) or used_up:
        replace_in_program("train", functools.partial(_end_at_once, ended))
    else:
        replace_in_program("train", lambda original: original)
    return extra_state


def _refuse_to_begin_again(filename: str, save_dir: str) -> None:
    """Refuses to write a training that begins with another's weights over what it has come to."""
    last = os.path.join(save_dir, "checkpoint_last.pt")
    elsewhere = os.path.realpath(os.path.dirname(filename)) != os.path.realpath(save_dir)
    if elsewhere and os.path.exists(last):
        raise UserError(
            f"--restore-file {filename} would begin anew, and {last} is there: leave it and the "
            "--reset options out to go on, or give another --save-dir"
        )


def _settings_of(optimizer: Any) -> dict[str, Any]:
    """What the command line says of an optimizer: torch's own state has what it said before."""
    found = {"weight_decay": getattr(optimizer, "weight_decay", None)}
    if getattr(optimizer, "_name", None) == "adam":
        betas = optimizer.adam_betas
        found["betas"] = tuple(literal(betas) if isinstance(betas, str) else betas)
        found["eps"] = optimizer.adam_eps
    return {name: value for name, value in found.items() if value is not None}


def _forget_another_metric(extra_state: dict[str, Any], filename: str, metric: str) -> None:
    before = extra_state.get(_METRIC, metric)
    if before != metric:
        logger.warning(
            f"{filename}: its best checkpoint was chosen by {before}: by --best-checkpoint-metric "
            f"{metric} the comparison begins anew"
        )
        for key in ("best", _KEY):
            extra_state.pop(key, None)


def _plateau_of(trainer: Trainer) -> Any:
    """torch's scheduler in that of ``--lr-scheduler reduce_lr_on_plateau``; None with others."""
    return getattr(trainer.lr_scheduler, "lr_scheduler", None)


def _restore_plateau(trainer: Trainer, extra_state: dict[str, Any]) -> None:
    """Goes on counting epochs without a better loss, that with which the checkpoint ends among
    them: fairseq saves before it counts."""
    plateau, counted = _plateau_of(trainer), extra_state.get(_PLATEAU)
    if plateau is None or counted is None:
        return
    vars(plateau).update(counted)
    place, loss = extra_state["train_iterator"], extra_state.get("val_loss")
    if place["iterations_in_epoch"] == 0 and loss is not None:
        trainer.lr_step(place["epoch"] - 1, loss)


def _restore_patience(trainer: Trainer, extra_state: dict[str, Any] | None) -> str | None:
    """Puts the patience back that a checkpoint knows; says so where it is used up."""
    patience, state = trainer.cfg.checkpoint.patience, {}
    # Without patience fairseq does not count: what an earlier training counted would be stale.
    if extra_state is not None and patience > 0:
        state = extra_state.get(_KEY) or {}
        if not state and extra_state.get("best") is not None:
            state = {"best": extra_state["best"], "num_runs": 0}
    for program in training_programs():
        function = vars(program.should_stop_early)
        for name in ("best", "num_runs"):  # of another training of this process
            function.pop(name, None)
        function.update(state)
    if not 0 < patience <= state.get("num_runs", 0):
        return None
    return f"this training has stopped early before, with --patience {patience}"


def _finished(trainer: Trainer) -> str | None:
    """Says which limit a training has reached, if any."""
    limits, updates = trainer.cfg.optimization, trainer.get_num_updates()
    # Of the checkpoint, not of the clock: all processes of a job must decide alike.
    hours = trainer._previous_training_time / 3600
    if 0 < limits.max_update <= updates:
        return f"this training is finished: {updates} updates of --max-update {limits.max_update}"
    if 0 < limits.stop_time_hours < hours:
        return (
            f"this training is finished: {hours:.3g} hours of --stop-time-hours "
            f"{limits.stop_time_hours:g}"
        )
    return None


def _end_at_once(reason: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def train(*_: Any) -> tuple[list[None], bool]:
        logger.info(f"{reason}; a higher one lets it go on")
        return [None], True

    return train
