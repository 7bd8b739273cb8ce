"""A table of all runs below a work folder: how far they are, with which settings, their scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..files import is_locked, read_json, read_json_or_none
from .tables import table

#: Training options that tell runs from each other.
SETTINGS = ("arch", "lr", "dropout", "max-epoch", "max-update", "patience")


def list_runs(work_dir: Path) -> str:
    """The table, or a sentence where there is no run."""
    folders = sorted((work_dir / "runs").glob("*/*/seed*"), key=_order)
    rows = [_row(folder) for folder in folders if folder.is_dir()]
    if not rows:
        return f"{work_dir}: no runs yet"
    return table(["run", "state", "settings", "test set", "score", "value"], rows)


def _order(folder: Path) -> tuple[str, str, int, str]:
    return *folder.parts[-3:-1], len(folder.name), folder.name


def _row(folder: Path) -> list[str]:
    results = read_json_or_none(folder / "results.json")
    score = ["", "", ""]
    if results is not None:
        test_set, scored = next(iter(results["scores"].items()))
        first = scored["scores"][0]
        score = [test_set, first["label"], f"{first['score']:.2f}"]
    return ["/".join(folder.parts[-3:]), _state(folder, results), _settings(folder), *score]


def _state(folder: Path, results: dict[str, Any] | None) -> str:
    if is_locked(folder):
        return "running"
    if results is not None:
        return "done"
    done = [
        step
        for step in ("train", "average", "generate", "evaluate")
        if (folder / "steps" / f"{step}.json").exists()
    ]
    return f"stopped after {done[-1]}" if done else "stopped in train"


def _settings(folder: Path) -> str:
    started = folder / "steps" / "train.started.json"
    if not started.exists():
        return ""
    train = read_json(started)["settings"]["train"]
    found = [str(train["arch"])] if "arch" in train else []
    found += [f"{name} {train[name]}" for name in SETTINGS[1:] if train.get(name) is not None]
    found += [f"{name} {value}" for name, value in sorted(train.items()) if name.startswith("ea-")]
    return ", ".join(found)
