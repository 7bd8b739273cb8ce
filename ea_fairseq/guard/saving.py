"""Writes checkpoints whole, keeps the best ones, and locks the folder.

Replaced in fairseq:
- ``checkpoint_utils.torch_persistent_save``: does not force the file to the disk before renaming,
  so a power cut can leave an empty file; after an error it appends to what it has written; with
  ``--write-checkpoints-asynchronously`` it writes under the final name.
- ``PathManager.copy``: makes ``checkpoint_last.pt`` and ``checkpoint_best.pt`` by overwriting
  them in place, so a killed run may leave neither the old nor the new one.
- ``checkpoint_utils.verify_checkpoint_directory``, which training calls once, before anything is
  written, in the process of rank 0 alone: takes the lock, and removes the temporary files of killed
  runs. Two trainings that save into one folder overwrite each other's checkpoints, and each resumes
  from what the other has written. While it runs, a training holds the lock of ``.lock`` in its save
  folder (``flock``). The system frees it when the process ends in any way, SIGKILL included; the
  file itself stays and means nothing. Reading checkpoints takes no lock.
- ``checkpoint_utils.save_checkpoint``: a score of the validation that is NaN or infinite ends the
  training in one line, and nothing is saved: NaN would stay the best score for ever, as no other is
  lower. Asynchronous writing would leave out ``checkpoint_last.pt``: it is switched off with a
  warning.
- ``checkpoint_utils.save_checkpoint`` and ``checkpoint_paths``, by which it looks for them:
  ``--keep-best-checkpoints N`` keeps the N best. A checkpoint had to be better than the worst one
  kept, though fewer than N were, so that a training whose first epochs were the best ended with
  these alone. Below N the worst that it finds is now one that all are better than. Scores that are
  equal in three places are told apart by a digit that is drawn: a checkpoint could take the name of
  another, which was lost. That one now takes a digit that is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import shutil
import socket
from os.path import exists
from pathlib import Path
from typing import Any

import numpy as np
from fairseq import checkpoint_utils
from fairseq.data import data_utils
from fairseq.file_io import PathManager

from ..checkpoints.reading import read_checkpoint
from ..checkpoints.writing import SUFFIX, atomic_file, save_checkpoint_file
from ..errors import UserError
from .around import around
from .stopping import diverged

logger = logging.getLogger(__name__)


@around(checkpoint_utils, "torch_persistent_save")
def _save_whole(original: Any, obj: Any, filename: str, async_write: bool = False) -> None:
    if PathManager.path_requires_pathmanager(filename):  # a remote store has no renaming
        original(obj, filename, async_write=async_write)
    else:
        save_checkpoint_file(obj, filename)


@around(PathManager, "copy")
def _copy_whole(original: Any, src_path: str, dst_path: str, overwrite: bool = False) -> bool:
    if any(PathManager.path_requires_pathmanager(path) for path in (src_path, dst_path)):
        return original(src_path, dst_path, overwrite=overwrite)
    with open(src_path, "rb") as source, atomic_file(dst_path) as file:
        shutil.copyfileobj(source, file, 1 << 20)
    return True


@around(checkpoint_utils, "verify_checkpoint_directory")
def _lock_and_clean(original: Any, save_dir: str) -> None:
    if not PathManager.path_requires_pathmanager(save_dir):  # a remote store has no locks
        lock(save_dir)
    original(save_dir)
    for leftover in Path(save_dir).glob(f"*.pt{SUFFIX}"):
        logger.info(f"removing {leftover}, which a killed run left behind")
        leftover.unlink(missing_ok=True)


_locks: dict[str, int] = {}  # of this process: folder -> descriptor


def lock(save_dir: str) -> None:
    """Hold a folder's lock until this process ends. Calling it again changes nothing.

    Raises:
        UserError: another process holds it.
    """
    os.makedirs(save_dir, exist_ok=True)
    folder = os.path.realpath(save_dir)
    if folder in _locks:
        return
    descriptor = os.open(os.path.join(folder, ".lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 200).decode(errors="replace").strip()
        os.close(descriptor)
        raise UserError(
            f"save folder {save_dir} is in use by another training ({holder or 'unknown process'}):"
            " wait for it, stop it, or give another --save-dir"
        ) from None
    except OSError as error:
        os.close(descriptor)
        logger.warning(
            f"cannot lock save folder {save_dir} ({error.strerror}):"
            " make sure that no other training uses it"
        )
        return
    _locks[folder] = descriptor
    with contextlib.suppress(OSError):  # only for the message above; the disk may be full
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())


def _forget_locks() -> None:
    """Processes that load data may outlive a killed training for seconds and would keep its lock.

    Closing a copy of the descriptor leaves the lock to the parent.
    """
    while _locks:
        os.close(_locks.popitem()[1])


os.register_at_fork(after_in_child=_forget_locks)

_keeps: tuple[int, bool] | None = None  # while saving: how many best ones, and is more better


@around(checkpoint_utils, "save_checkpoint")
def _save_checkpoint(
    original: Any, cfg: Any, trainer: Any, epoch_itr: Any, val_loss: float | None
) -> Any:
    global _keeps
    if val_loss is not None and not math.isfinite(val_loss):
        raise diverged(trainer, f"validation {cfg.best_checkpoint_metric} is {val_loss}")
    if cfg.write_checkpoints_asynchronously:
        logger.warning("--write-checkpoints-asynchronously is ignored: it is not crash-safe")
        cfg.write_checkpoints_asynchronously = False
    if trainer.checkpoint_suffix:  # of a model in several files
        return original(cfg, trainer, epoch_itr, val_loss)
    saves = trainer.should_save_checkpoint_on_current_rank and not cfg.no_save
    if saves and val_loss is not None and cfg.keep_best_checkpoints > 0:
        _free_the_name(cfg, trainer, epoch_itr.epoch, val_loss)
    _keeps = cfg.keep_best_checkpoints, cfg.maximize_best_checkpoint_metric
    try:
        return original(cfg, trainer, epoch_itr, val_loss)
    finally:
        _keeps = None


@around(checkpoint_utils, "checkpoint_paths")
def _find_fewer_than_are_kept(original: Any, path: str, *args: Any, **kwargs: Any) -> list[Any]:
    found = original(path, *args, **kwargs)
    if _keeps is None or not kwargs.get("pattern", "").startswith(r"checkpoint\.best_"):
        return found
    count, more_is_better = _keeps
    if len(found) >= count:
        return found
    # The best are last where less is better. No file has this name: none is removed.
    return [*found, "_-inf.pt"] if more_is_better else ["_inf.pt", *found]


def _free_the_name(cfg: Any, trainer: Any, epoch: int, score: float) -> None:
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
