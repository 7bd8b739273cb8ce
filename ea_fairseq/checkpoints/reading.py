"""Reading checkpoints: whole, undamaged, and without running anything that a file contains."""

from __future__ import annotations

import pickle
import re
import zipfile
from typing import Any, BinaryIO

import torch

from ..errors import UserError
from . import allowed_types  # noqa: F401  (which torch then takes)
from .finite_weights import unusable_weight

#: How a zip archive of MS-DOS marks a folder.
_FOLDER = 0x10


def read_checkpoint(path: str) -> dict[str, Any]:
    """Read a fairseq checkpoint onto the CPU as it was saved.

    Raises:
        UserError: naming the file, if it is missing, cut short, damaged, not a checkpoint, or
            contains a type that `allowed_types` does not list.
    """
    try:
        with open(path, "rb") as file:
            return load(file, map_location="cpu")
    except OSError as error:
        raise UserError(f"cannot read checkpoint {path}: {error.strerror}") from error


def setting(state: dict[str, Any], section: str, name: str) -> Any:
    """One setting of a training, as its checkpoint keeps it; None where it does not.

    Args:
        state: the checkpoint, as saved or as fairseq has loaded it.
        section: of its settings; those of an earlier fairseq have none.
        name: of the setting.
    """
    cfg = state.get("cfg")
    settings = state.get("args") if cfg is None else cfg.get(section)
    return settings.get(name) if isinstance(settings, dict) else getattr(settings, name, None)


def load(file: BinaryIO, map_location: Any = None) -> dict[str, Any]:
    """``torch.load`` for checkpoints: the safe unpickler always, after checking the file.

    Args:
        file: an open file; its name appears in errors.
        map_location: as in ``torch.load``.

    Raises:
        UserError: see `read_checkpoint`.
    """
    name = getattr(file, "name", "checkpoint")
    _check_whole(file, name)
    try:
        state = torch.load(file, map_location=map_location, weights_only=True)
    except MemoryError:
        raise
    except pickle.UnpicklingError as error:
        raise UserError(_describe(error, name)) from error
    except Exception as error:  # a damaged file can fail in any way
        raise UserError(f"checkpoint {name} is damaged or not a checkpoint: {error}") from error
    if not isinstance(state, dict) or "model" not in state:
        raise UserError(f"{name} is not a fairseq checkpoint: it has no entry 'model'")
    model = state["model"]
    bad = unusable_weight(model) if isinstance(model, dict) else None
    if bad is not None:  # beam search takes NaN for "impossible" and answers with nonsense
        raise UserError(f"checkpoint {name} is unusable: {bad}")
    return state


def _check_whole(file: BinaryIO, name: str) -> None:
    """Refuse a file that is cut short or altered; torch does not look at the checksums."""
    start = file.read(4)
    file.seek(0)
    if not start:
        raise UserError(f"checkpoint {name} is empty")
    if start[:2] != b"PK":
        return  # the format before torch 1.6, without checksums
    try:
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
            parts = archive.infolist()
    except Exception as error:  # zipfile fails in many ways, on file names that are no text too
        raise UserError(f"checkpoint {name} is cut short or damaged: {error}") from error
    if damaged is not None:
        raise UserError(f"checkpoint {name} is damaged: wrong checksum of its part {damaged}")
    for part in parts:
        # One bit of the archive's directory: torch would read nothing, and take what happens to be
        # in memory for the weights.
        if part.external_attr & _FOLDER:
            raise UserError(f"checkpoint {name} is damaged: its part {part.filename} is no file")
    file.seek(0)


def _describe(error: pickle.UnpicklingError, name: str) -> str:
    """One line about a file that the safe unpickler refused."""
    # torch wraps the reason into advice on how to turn the protection off.
    advice = re.compile(r"\s*(Weights only load failed|\(\d\)|Check the documentation|$)")
    reasons = [line for line in str(error).splitlines() if not advice.match(line)]
    detail = " ".join(reasons).rpartition("WeightsUnpickler error: ")[2].strip()
    refused = re.search(r"GLOBAL ([\w.]+)", detail)
    if refused is None:
        return f"checkpoint {name} is refused, and nothing in it was executed: {detail}"
    return (
        f"checkpoint {name} contains {refused[1]}, which is not among the types a fairseq"
        " checkpoint consists of; refused, and nothing in it was executed"
    )
