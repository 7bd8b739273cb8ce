"""Writes checkpoints atomically: whole, or not at all.

A checkpoint is written under a temporary name in the same folder (``<name>.tmp``, which no pattern
of fairseq or of this project takes for a checkpoint), forced to the disk, and renamed. A process
killed at any moment leaves the previous file untouched, and at most a temporary file behind.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import torch

from ..errors import UserError
from ..files import force_to_disk
from . import allowed_types  # noqa: F401  (which torch then takes)
from .finite_weights import unusable_weight

SUFFIX = ".tmp"


@contextlib.contextmanager
def atomic_file(path: str) -> Iterator[BinaryIO]:
    """A file to write to, which takes the name `path` when the block ends without an error.

    Raises:
        UserError: naming the file and the reason, if it cannot be written. Whatever had the name
            before is still there.
    """
    temporary = path + SUFFIX
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
    """Save a checkpoint that `reading` will read.

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
