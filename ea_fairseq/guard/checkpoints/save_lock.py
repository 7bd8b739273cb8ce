"""One training at a time in a save folder.

Two trainings that save into one folder overwrite each other's checkpoints, and each resumes from
what the other has written. While it runs, a training holds the lock of ``.lock`` in its save folder
(``flock``). The system frees it when the process ends in any way, SIGKILL included; the file itself
stays and means nothing. Only the process that saves holds it; reading checkpoints takes no lock.

Replaced in fairseq:
- ``checkpoint_utils.verify_checkpoint_directory``, which training calls once, before anything is
  written, in the process of rank 0 alone: takes the lock first.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import logging
import os
import socket
from collections.abc import Callable

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from ...errors import UserError

logger = logging.getLogger(__name__)

_NAME = ".lock"

_held: dict[str, int] = {}  # the locks of this process: folder -> descriptor


def hold(save_dir: str) -> None:
    """Hold a folder's lock until this process ends. Calling it again changes nothing.

    Raises:
        UserError: another process holds it.
    """
    os.makedirs(save_dir, exist_ok=True)
    folder = os.path.realpath(save_dir)
    if folder in _held:
        return
    descriptor = os.open(os.path.join(folder, _NAME), os.O_RDWR | os.O_CREAT, 0o666)
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
    _held[folder] = descriptor
    with contextlib.suppress(OSError):  # only for the message above; the disk may be full
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())


def _forget_in_child() -> None:
    """Processes that load data may outlive a killed training for seconds and would keep its lock.

    Closing a copy of the descriptor leaves the lock to the parent.
    """
    while _held:
        os.close(_held.popitem()[1])


def _lock_first(original: Callable[[str], None]) -> Callable[[str], None]:
    @functools.wraps(original)
    def verify_checkpoint_directory(save_dir: str) -> None:
        if not PathManager.path_requires_pathmanager(save_dir):  # a remote store has no locks
            hold(save_dir)
        original(save_dir)

    return verify_checkpoint_directory


def install() -> None:
    """Make fairseq's training hold the lock. After `atomic_saving`, to come before its clean-up."""
    checkpoint_utils.verify_checkpoint_directory = _lock_first(
        checkpoint_utils.verify_checkpoint_directory
    )
    os.register_at_fork(after_in_child=_forget_in_child)
