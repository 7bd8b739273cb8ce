"""What an interrupted or a finished training goes on from, and how far it may be told to go."""

from __future__ import annotations

import math
import shutil
import zipfile
from pathlib import Path
from typing import Any

from ..files import new_file

#: Training options that say when to stop and nothing else: a run may go on with others.
WHEN_TO_STOP = {"max-epoch", "patience"}


def repair_last_checkpoint(checkpoints: Path) -> None:
    """Put the newest whole checkpoint in the place of a checkpoint_last.pt that was cut short.

    fairseq copies the checkpoint of an epoch to checkpoint_last.pt: killed meanwhile, it leaves a
    file that no later training can start from. A checkpoint is a zip archive, whose directory is
    written last.
    """
    last = checkpoints / "checkpoint_last.pt"
    if not last.exists() or zipfile.is_zipfile(last):
        return
    others = [path for path in checkpoints.glob("checkpoint*.pt") if path != last]
    whole = [path for path in others if zipfile.is_zipfile(path)]
    if not whole:
        print(f"{last}: cut short, and no other checkpoint there: training starts anew")
        last.unlink()
        return
    newest = max(whole, key=lambda path: path.stat().st_mtime)
    print(f"{last}: cut short, going on from {newest.name}", flush=True)
    with new_file(last) as temporary:
        shutil.copyfile(newest, temporary)


def check_when_to_stop(checkpoints: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Check that a training which has begun can still end as other settings say.

    Args:
        checkpoints: the training's folder
        old: the options that it was last started with
        new: the options asked for

    Raises:
        ValueError: with ``new`` it would have ended sooner than it has come.
    """
    remedy = "choose --name OTHER to train anew beside it, or --fresh to throw it away"
    patience, before = _limit(new, "patience"), _limit(old, "patience")
    if patience < before:
        raise ValueError(
            f"{checkpoints}: was trained with patience {_shown(before)}, and may have come further "
            f"than patience {patience:g} allows; {remedy}"
        )
    epochs, max_epoch = epochs_begun(checkpoints), _limit(new, "max-epoch")
    if epochs > max_epoch:
        raise ValueError(
            f"{checkpoints}: has come to epoch {epochs} already, beyond max-epoch {max_epoch:g}; "
            f"choose {epochs} or more, {remedy}"
        )


def _limit(options: dict[str, Any], name: str) -> float:
    """An option of fairseq's that takes 0 or less, or its absence, for no limit."""
    value = options.get(name)
    return int(value) if value is not None and int(value) > 0 else math.inf


def _shown(limit: float) -> str:
    return "unlimited" if limit == math.inf else f"{limit:g}"


def epochs_begun(checkpoints: Path) -> int:
    """The epoch of which checkpoint_last.pt holds at least one update; 0 without the file."""
    last = checkpoints / "checkpoint_last.pt"
    if not last.exists():
        return 0
    from ea_fairseq.compat.safe_loading import read_checkpoint

    iterator = read_checkpoint(str(last))["extra_state"]["train_iterator"]
    # Once an epoch is over, fairseq writes the number of the next one, of which nothing was done.
    return iterator["epoch"] - (iterator["iterations_in_epoch"] == 0)
