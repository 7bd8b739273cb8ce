"""Tables of all runs below a work folder, and of the recipes that come with the project."""

from __future__ import annotations

import textwrap
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

from .. import yaml_file
from ..files import is_locked, read_json_or_none
from .places import corpora
from .recipe import variants
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
        score = [test_set, first["label"], f"{first['score']:.{first.get('digits', 2)}f}"]
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
    if done:
        return f"stopped after {done[-1]}"
    begun = [step for step in ("train", "generate") if _started(folder, step)]
    return f"stopped in {begun[0]}" if begun else "not begun"


def _started(folder: Path, step: str) -> dict[str, Any] | None:
    """The settings that a step was begun with."""
    content = read_json_or_none(folder / "steps" / f"{step}.started.json")
    return None if content is None else content["settings"]


def _settings(folder: Path) -> str:
    started = _started(folder, "train") or _started(folder, "generate")
    if started is None:
        return ""
    train = started["train"]
    found = [str(train["arch"])] if "arch" in train else []
    found += [f"{name} {train[name]}" for name in SETTINGS[1:] if train.get(name) is not None]
    found += [f"{name} {value}" for name, value in sorted(train.items()) if name.startswith("ea-")]
    found += [f"ensemble of {len(started['models'])}"] if "models" in started else []
    return ", ".join(found)


def list_recipes() -> str:
    """Corpora with what their corpus.yml says at its head, and the models for all of them."""
    parts = []
    for kind, group in groupby(corpora().items(), key=lambda item: item[1].parent.name):
        found = dict(group)
        lines = [f"  {name:16}{_said(folder / 'corpus.yml')}" for name, folder in found.items()]
        models = sorted(set.intersection(*(set(variants(folder)) for folder in found.values())))
        listed = textwrap.fill(", ".join(models), 96, break_on_hyphens=False)
        parts += [f"{kind.replace('_', ' ')}:", *lines, "with any --variant of:"]
        parts += [textwrap.indent(listed, "  "), ""]
    return "\n".join(parts[:-1])


def _said(file: Path) -> str:
    """The first sentence of a file's first comment, or else of the file that it builds on."""
    lines = file.read_text(encoding="utf-8").splitlines()
    comment = " ".join(line[2:] for line in takewhile(lambda line: line.startswith("# "), lines))
    if not comment:
        return _said(file.parent / yaml_file.read(file)["base"])
    return textwrap.shorten(comment.split(". ")[0].removesuffix("."), 78, placeholder=" ...")
