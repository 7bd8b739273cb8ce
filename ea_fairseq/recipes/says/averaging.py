"""Number of checkpoints a training leaves to average, from its settings."""

from __future__ import annotations

from typing import Any

from .recipe import Recipe

#: What says how many checkpoints are averaged -> the training's option that keeps so many.
KEPT_BY = {
    "num-epoch-checkpoints": "keep-last-epochs",
    "num-update-checkpoints": "keep-interval-updates",
    "num-best-checkpoints": "keep-best-checkpoints",
}


def keeping_too_few(train: dict[str, Any], average: dict[str, Any]) -> set[str]:
    """Training options that keep fewer checkpoints than are averaged."""
    found = set()
    for number, option in KEPT_BY.items():
        wanted, kept = limit(average.get(number)), limit(train.get(option))
        if wanted and kept and kept < wanted:
            found.add(option)
    return found


def fewer_than_asked_for(recipe: Recipe) -> list[str]:
    """Reasons why there will, or may, be fewer checkpoints than the recipe averages.

    What is there is averaged all the same, with a warning.
    """
    average, train = recipe.options("average"), recipe.options("train")
    if wanted := limit(average.get("num-epoch-checkpoints")):
        return _of_epochs(train, wanted)
    if wanted := limit(average.get("num-update-checkpoints")):
        return _of_updates(train, wanted)
    return []


def _of_epochs(train: dict, wanted: int) -> list[str]:
    found = []
    epochs, patience = limit(train.get("max-epoch")), limit(train.get("patience"))
    interval = limit(train.get("save-interval")) or 1
    if epochs and epochs // interval < wanted:
        every = f", saved every {interval}" if interval > 1 else ""
        there = _shown(epochs // interval)
        found.append(f"max-epoch {epochs}{every}: {there} of epochs to average, not {wanted}")
    elif patience and patience + 1 < wanted:
        found.append(
            f"patience {patience}: stopped early, as soon as after epoch {patience + 1}, there are "
            f"fewer than {wanted} checkpoints of epochs to average"
        )
    if updates := limit(train.get("max-update")):
        found.append(
            f"max-update {updates}: ended before epoch {wanted} is over there are fewer than "
            f"{wanted} checkpoints of epochs to average; the last update's weights count as one"
        )
    kept = limit(train.get("keep-last-epochs"))
    if kept and kept < wanted:
        found.append(f"keep-last-epochs {kept}: {_shown(kept)} to average, not {wanted}")
    return found


def _of_updates(train: dict, wanted: int) -> list[str]:
    found = []
    updates, interval = (limit(train.get(o)) for o in ("max-update", "save-interval-updates"))
    if not interval:
        found.append("save-interval-updates is not set: only the last update's weights are there")
    elif updates and updates // interval < wanted:
        there = _shown(max(1, updates // interval))
        found.append(f"max-update {updates}, saved every {interval}: {there}, not {wanted}")
    kept = limit(train.get("keep-interval-updates"))
    if kept and kept < wanted:
        found.append(f"keep-interval-updates {kept}: {_shown(kept)} to average, not {wanted}")
    return found


def _shown(count: int) -> str:
    return "1 checkpoint" if count == 1 else f"{count} checkpoints"


def limit(value: object) -> int | None:
    """A positive whole number; None for 0, less, or no value, which fairseq takes for no limit."""
    try:
        number = int(float(str(value)))
    except ValueError:
        return None
    return number if number > 0 else None
