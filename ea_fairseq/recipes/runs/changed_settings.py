"""Which settings may change when training resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..says.averaging import keeping_too_few, limit

#: Training options that say when to stop and nothing else: a run may go on with others.
WHEN_TO_STOP = {"max-epoch", "max-update", "patience"}

#: Training options that change what is shown or kept, or how fast, not the weights.
WITHOUT_EFFECT = {
    "keep-best-checkpoints",
    "keep-interval-updates",
    "keep-last-epochs",
    "log-format",
    "log-interval",
    "no-progress-bar",
    "num-workers",
    "tensorboard-logdir",
}


def comparable(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a step without those that have no effect on its result."""
    train, average = settings.get("train"), settings.get("average")
    if not isinstance(train, dict):
        return settings
    idle = WITHOUT_EFFECT - keeping_too_few(train, average if isinstance(average, dict) else {})
    return settings | {"train": {k: v for k, v in train.items() if k not in idle}}


def schedule_needs_max_update(train: dict[str, Any]) -> bool:
    """Whether the learning rate falls towards max-update, so that it is no mere end."""
    given = {name for name, value in train.items() if value is not None and value is not False}
    needed = {
        "polynomial_decay": "total-num-update" not in given,
        "cosine": "lr-period-updates" not in given,
        "tri_stage": "phase-ratio" in given,
    }
    return needed.get(str(train.get("lr-scheduler")), False)


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
    patience, before = (limit(options.get("patience")) for options in (new, old))
    if patience and (before is None or patience < before):
        raise ValueError(
            f"{checkpoints}: was trained with patience {before or 'unlimited'}, and may have come "
            f"further than patience {patience} allows; {remedy}"
        )
    ends = {limit(options.get("max-update")) for options in (new, old)}
    if len(ends) > 1 and schedule_needs_max_update(new):
        raise ValueError(
            f"{checkpoints}: lr-scheduler {new['lr-scheduler']} ends with max-update, which so "
            f"changes every update; {remedy}"
        )
    epochs, updates = progress(checkpoints)
    for done, unit, option in ((epochs, "epoch", "max-epoch"), (updates, "update", "max-update")):
        end = limit(new.get(option))
        if end and done > end:
            raise ValueError(
                f"{checkpoints}: has come to {unit} {done} already, beyond {option} {end}; "
                f"choose {done} or more, {remedy}"
            )


def progress(checkpoints: Path) -> tuple[int, int]:
    """How far a training has come, by its checkpoint_last.pt; nothing without the file.

    Returns:
        the epoch of which at least one update is done, and the number of updates
    """
    last = checkpoints / "checkpoint_last.pt"
    if not last.exists():
        return 0, 0
    from ...checkpoints.reading import read_checkpoint

    state = read_checkpoint(str(last))
    iterator = state["extra_state"]["train_iterator"]
    # Once an epoch is over, fairseq writes the number of the next one, of which nothing was done.
    epoch = iterator["epoch"] - (iterator["iterations_in_epoch"] == 0)
    return epoch, state["optimizer_history"][-1]["num_updates"]
