"""Stopping a training so that it can go on: by Ctrl-C, by SIGTERM, and when the numbers blow up.

fairseq dies of either signal on the spot and loses what it did since the last checkpoint.

Replaced in fairseq:
- ``Trainer.get_train_iterator``: remembers the iterator, which a checkpoint contains, and from then
  on listens for the two signals. A program that handles them itself is left alone.
- ``Trainer.train_step``: after the update during which a signal came, saves ``checkpoint_last.pt``
  without validating and ends with the signal's exit status (130 or 143). All processes of a job
  stop after the same update. Also ends in one line where fairseq raises FloatingPointError, before
  the weights are touched, because a gradient is NaN or infinite.
- ``checkpoint_utils.save_checkpoint``: ends in one line, and saves nothing, when the score of the
  validation is NaN or infinite. NaN would also stay the best score for ever, as no other is lower.
- ``iterators.BackgroundConsumer.run``: the processes that load data are started from this thread
  and inherit that SIGTERM waits. Job managers send it to all processes of a job; the training
  would fail for want of data before it could save. These processes end with their parent, which
  kills them: multiprocessing would send them SIGTERM and wait for ever.
"""

from __future__ import annotations

import atexit
import functools
import logging
import math
import multiprocessing.util  # registers the function that ends daemons at exit
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.data import iterators
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from ..errors import UserError

logger = logging.getLogger(__name__)

_DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}

_received = 0  # the number of the signal that came, if any


def _listen() -> None:
    """Note the signals where nobody else handles or ignores them."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number, default in _DEFAULTS.items():
        if signal.getsignal(number) is default:
            signal.signal(number, _note)


def _note(number: int, frame: FrameType | None) -> None:
    global _received
    _received = number
    signal.signal(number, _DEFAULTS[signal.Signals(number)])  # a second one ends it at once


def _signal_anywhere(trainer: Trainer) -> int:
    """The signal that this process, or another one of the job, has received; 0 if none."""
    if trainer.data_parallel_world_size == 1:
        return _received
    number = torch.tensor([_received], device=trainer.device)
    group = trainer.data_parallel_process_group
    distributed_utils.all_reduce(number, group=group, op="max")
    return int(number)


def _remember_iterator(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_train_iterator(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        self._ea_iterator = original(self, *args, **kwargs)
        _listen()
        return self._ea_iterator

    return get_train_iterator


def _shield_from_sigterm(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def run(self: Any) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        original(self)

    return run


def _kill_data_processes() -> None:
    """At the exit of the program, before multiprocessing ends its daemons in its own way."""
    for process in multiprocessing.active_children():
        if process.daemon:
            process.kill()


def _floating_point_error(error: BaseException | None) -> FloatingPointError | None:
    """The error itself, or the one that fairseq was looking into when its search failed."""
    while error is not None and not isinstance(error, FloatingPointError):
        error = error.__context__
    return error


def _diverged(trainer: Trainer, cause: str) -> UserError:
    return UserError(
        f"training stopped after update {trainer.get_num_updates()}: {cause}; lower --lr, raise"
        " --warmup-updates or set --clip-norm, and continue from the last checkpoint"
    )


def _stop_after_validation(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def save_checkpoint(cfg: Any, trainer: Trainer, epoch_itr: Any, val_loss: Any) -> Any:
        if val_loss is not None and not math.isfinite(val_loss):
            raise _diverged(trainer, f"validation {cfg.best_checkpoint_metric} is {val_loss}")
        return original(cfg, trainer, epoch_itr, val_loss)

    return save_checkpoint


def _stop_after_update(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def train_step(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        try:
            output = original(self, *args, **kwargs)
        except Exception as error:
            cause = _floating_point_error(error)
            if cause is None or isinstance(error, UserError):
                raise
            raise _diverged(self, str(cause)) from error
        number = _signal_anywhere(self)
        # At the end of an epoch fairseq itself validates and saves; the next update is the last.
        if number and not self._ea_iterator.end_of_epoch():
            logger.info(f"stopping after update {self.get_num_updates()}: signal {number}")
            checkpoint_utils.save_checkpoint(self.cfg.checkpoint, self, self._ea_iterator, None)
            raise SystemExit(128 + number)
        return output

    return train_step


def install() -> None:
    """Make fairseq's training stop this way."""
    Trainer.get_train_iterator = _remember_iterator(Trainer.get_train_iterator)
    iterators.BackgroundConsumer.run = _shield_from_sigterm(iterators.BackgroundConsumer.run)
    Trainer.train_step = _stop_after_update(Trainer.train_step)
    checkpoint_utils.save_checkpoint = _stop_after_validation(checkpoint_utils.save_checkpoint)
    # Functions registered last run first: this one before that of multiprocessing.
    atexit.register(_kill_data_processes)
