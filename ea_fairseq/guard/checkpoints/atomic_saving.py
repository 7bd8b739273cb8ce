"""Writes checkpoints atomically: whole, or not at all.

A checkpoint is written under a temporary name in the same folder (``<name>.tmp``, which no pattern
of fairseq or of this project takes for a checkpoint), forced to the disk, and renamed. A process
killed at any moment leaves the previous file untouched, and at most a temporary file behind.

Replaced in fairseq:
- ``checkpoint_utils.torch_persistent_save``: does not force the file to the disk before renaming,
  so a power cut can leave an empty file; after an error it appends to what it has written; with
  ``--write-checkpoints-asynchronously`` it writes under the final name.
- ``PathManager.copy``: makes ``checkpoint_last.pt`` and ``checkpoint_best.pt`` by overwriting
  them in place, so a killed run may leave neither the old nor the new one.
- ``checkpoint_utils.save_checkpoint``: asynchronous writing would also leave out
  ``checkpoint_last.pt``; it is switched off with a warning.
- ``checkpoint_utils.verify_checkpoint_directory``, which training calls once before anything is
  written: also removes the temporary files of killed runs.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from ...errors import UserError
from ...files import force_to_disk
from ...finite_weights import unusable_weight

logger = logging.getLogger(__name__)

_SUFFIX = ".tmp"


@contextlib.contextmanager
def atomic_file(path: str) -> Iterator[BinaryIO]:
    """A file to write to, which takes the name `path` when the block ends without an error.

    Raises:
        UserError: naming the file and the reason, if it cannot be written. Whatever had the name
            before is still there.
    """
    temporary = path + _SUFFIX
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        force_to_disk(os.path.dirname(path) or ".")
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        # torch reports a failed write as a RuntimeError about positions in the file.
        reason = error if isinstance(error, OSError) else error.__context__
        if isinstance(reason, OSError) and isinstance(error, OSError | RuntimeError):
            raise UserError(
                f"cannot write {path}: {reason.strerror}; files saved earlier are unchanged"
            ) from error
        raise


def save_checkpoint_file(state: Any, path: str) -> None:
    """Save a checkpoint that `safe_loading` will read.

    Args:
        state: the content, tensors on the CPU.
        path: the file, replaced if it exists.

    Raises:
        UserError: if it cannot be written, has weights that are no finite numbers, or has types
            that would be refused when it is loaded.
    """
    model = state.get("model") if isinstance(state, dict) else None
    bad = unusable_weight(model) if isinstance(model, dict) else None
    if bad is not None:
        raise UserError(
            f"not saving {path}: {bad}; lower --lr, raise --warmup-updates or set --clip-norm, and "
            "continue from an earlier checkpoint"
        )
    with atomic_file(path) as file:
        torch.save(state, file)
        file.flush()
        refused = torch.serialization.get_unsafe_globals_in_checkpoint(file.name)
        if refused:
            raise UserError(
                f"cannot save {path}: it would contain {', '.join(sorted(refused))},"
                " which is refused when a checkpoint is loaded"
            )


def _persistent_save(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def torch_persistent_save(obj: Any, filename: str, async_write: bool = False) -> None:
        if PathManager.path_requires_pathmanager(filename):  # a remote store has no renaming
            original(obj, filename, async_write=async_write)
        else:
            save_checkpoint_file(obj, filename)

    return torch_persistent_save


def _copy(original: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        if any(PathManager.path_requires_pathmanager(path) for path in (src_path, dst_path)):
            return original(src_path, dst_path, overwrite=overwrite)
        with open(src_path, "rb") as source, atomic_file(dst_path) as file:
            shutil.copyfileobj(source, file, 1 << 20)
        return True

    return copy


def _save_synchronously(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def save_checkpoint(cfg: Any, *args: Any, **kwargs: Any) -> Any:
        if cfg.write_checkpoints_asynchronously:
            logger.warning("--write-checkpoints-asynchronously is ignored: it is not crash-safe")
            cfg.write_checkpoints_asynchronously = False
        return original(cfg, *args, **kwargs)

    return save_checkpoint


def _remove_leftovers(original: Callable[[str], None]) -> Callable[[str], None]:
    @functools.wraps(original)
    def verify_checkpoint_directory(save_dir: str) -> None:
        original(save_dir)
        for leftover in Path(save_dir).glob(f"*.pt{_SUFFIX}"):
            logger.info(f"removing {leftover}, which a killed run left behind")
            leftover.unlink(missing_ok=True)

    return verify_checkpoint_directory


def install() -> None:
    """Make fairseq write checkpoints this way."""
    checkpoint_utils.torch_persistent_save = _persistent_save(
        checkpoint_utils.torch_persistent_save
    )
    checkpoint_utils.save_checkpoint = _save_synchronously(checkpoint_utils.save_checkpoint)
    checkpoint_utils.verify_checkpoint_directory = _remove_leftovers(
        checkpoint_utils.verify_checkpoint_directory
    )
    PathManager.copy = staticmethod(_copy(PathManager.copy))
