"""Checkpoints of a finished run that nothing needs any more, but a longer training."""

from __future__ import annotations

from pathlib import Path

from ...files import locked
from ..says.recipe import Recipe
from .folders import Run
from .report import shown


def leftovers(recipe: Recipe, run: Run) -> list[Path]:
    """The checkpoints that neither the run's model nor its scores are made of any more.

    Returns:
        files; none of a run that is not finished, or whose training has gone on since
    """
    finished = run.results.exists() and (run.folder / "steps" / "train.json").exists()
    if not finished or not run.model(recipe).exists():
        return []
    model = run.model(recipe)
    return [path for path in sorted(run.checkpoints.glob("*.pt")) if path != model]


def told_of(recipe: Recipe, run: Run) -> str | None:
    """A line that says what a run keeps without need; None where that is nothing."""
    if not (files := leftovers(recipe, run)):
        return None
    return (
        f"{shown(run.checkpoints)}: {_size(files)} in {len(files)} checkpoints, of use only for a "
        "longer training: the same command with --clean removes them"
    )


def clean(recipe: Recipe, run: Run) -> str:
    """Removes the leftovers of a run.

    Returns:
        what was done, in one line

    Raises:
        UserError: another command works in the run's folder.
    """
    if not run.folder.exists():
        return f"{shown(run.folder)}: no such run"
    with locked(run.folder):
        files = leftovers(recipe, run)
        size = _size(files)
        for path in files:
            path.unlink()
    if not files:
        return f"{shown(run.folder)}: nothing to remove"
    return f"{shown(run.folder)}: removed {len(files)} checkpoints, {size}"


def _size(files: list[Path]) -> str:
    return f"{sum(path.stat().st_size for path in files) / 1e6:,.0f} MB"
