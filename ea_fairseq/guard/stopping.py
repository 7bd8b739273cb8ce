"""Stopping a training so that it can go on: by a signal, and when the numbers blow up.

The signals are those of Ctrl-C, SIGTERM, and SIGHUP of a terminal that is closed. fairseq dies of
each on the spot and loses what it did since the last checkpoint.

Replaced in fairseq:
- ``Trainer.get_train_iterator``: from its first call on listens for the signals. A program that
  handles them itself is left alone.
- ``fairseq_cli.train.validate_and_save``, which follows every update: after the update during which
  a signal came, and the validation if one is due, saves ``checkpoint_last.pt`` and ends with the
  signal's exit status (130, 143 or 129). All processes of a job stop after the same update.
- ``Trainer.train_step``: ends in one line where fairseq raises FloatingPointError, before the
  weights are touched, because a gradient is NaN or infinite.
- ``iterators.BackgroundConsumer.run``: the processes that load data are started from this thread
  and inherit that SIGTERM and SIGHUP wait. They reach all processes of a job; the training would
  fail for want of data before it could save. These processes end with their parent, which kills
  them: multiprocessing would send them SIGTERM and wait for ever.
"""

from __future__ import annotations

import atexit
import copy
import functools
import logging
import multiprocessing.util  # registers the function that ends daemons at exit
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.data import iterators
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from ..errors import UserError
from ..files import silence_terminal
from .around import around

logger = logging.getLogger(__name__)

_DEFAULTS = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}

_received = 0  # the number of the signal that came, if any


@around(Trainer, "get_train_iterator")
def _listen_from_now_on(original: Any, self: Trainer, *args: Any, **kwargs: Any) -> Any:
    global _received
    if not hasattr(self, "_ea_listens"):
        self._ea_listens = True
        _received = 0  # what an earlier training of this process was sent
        replace_in_program("validate_and_save", _stop_after_update)
        if training_programs():  # without one nobody would obey
            _listen()
    return original(self, *args, **kwargs)


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
    if number == signal.SIGHUP:  # which the shell and the kernel may both send
        signal.signal(number, signal.SIG_IGN)
        silence_terminal()
    else:
        signal.signal(number, _DEFAULTS[signal.Signals(number)])  # a second one ends it at once


def _stop_after_update(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def validate_and_save(
        cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any, subsets: Any, end_of_epoch: bool
    ) -> Any:
        valid_losses, should_stop = original(cfg, trainer, task, epoch_itr, subsets, end_of_epoch)
        number = _signal_anywhere(trainer)
        # At the end of an epoch fairseq has validated and saved; the next update is the last.
        if number and not end_of_epoch and not should_stop:
            logger.info(f"stopping after update {trainer.get_num_updates()}: signal {number}")
            settings = copy.deepcopy(cfg.checkpoint)
            settings.no_last_checkpoints = False  # or nothing would be saved
            checkpoint_utils.save_checkpoint(settings, trainer, epoch_itr, None)
            raise SystemExit(128 + number)
        return valid_losses, should_stop

    return validate_and_save


def _signal_anywhere(trainer: Trainer) -> int:
    """The signal that this process, or another one of the job, has received; 0 if none."""
    if trainer.data_parallel_world_size == 1:
        return _received
    number = torch.tensor([_received], device=trainer.device)
    group = trainer.data_parallel_process_group
    distributed_utils.all_reduce(number, group=group, op="max")
    return int(number)


@around(iterators.BackgroundConsumer, "run")
def _shield_from_sigterm(original: Any, self: Any) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
    original(self)


def _kill_data_processes() -> None:
    """At the exit of the program, before multiprocessing ends its daemons in its own way."""
    for process in multiprocessing.active_children():
        if process.daemon:
            process.kill()


# Functions registered last run first: this one before that of multiprocessing.
atexit.register(_kill_data_processes)


@around(Trainer, "train_step")
def _name_divergence(original: Any, self: Trainer, *args: Any, **kwargs: Any) -> Any:
    try:
        return original(self, *args, **kwargs)
    except FloatingPointError as error:
        raise diverged(self, str(error)) from error


def diverged(trainer: Trainer, cause: str) -> UserError:
    """The error of a training whose numbers are no use any more."""
    return UserError(
        f"training stopped after update {trainer.get_num_updates()}: {cause}; lower --lr, raise"
        " --warmup-updates or set --clip-norm, and continue from the last checkpoint"
    )


def training_programs() -> list[ModuleType]:
    """``fairseq_cli.train`` where it is loaded; ``python -m`` gives it another name."""
    names = ("fairseq_cli.train", "__main__", "__mp_main__")
    modules = [sys.modules[name] for name in names if name in sys.modules]
    functions = ("train", "validate_and_save", "should_stop_early")
    return [m for m in modules if all(hasattr(m, function) for function in functions)]


def replace_in_program(name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put ``wrap(original)`` in the place of a function of the training program, once it runs.

    Called again, it replaces what it put there; a ``wrap`` that returns the original restores it.
    """
    for program in training_programs():
        current = getattr(program, name)
        original = getattr(current, "replaces", current)
        wrapped = wrap(original)
        if wrapped is not original:
            wrapped.replaces = original  # type: ignore[attr-defined]
        setattr(program, name, wrapped)
