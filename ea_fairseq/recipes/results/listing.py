"""Tables of all runs below a work folder, and of the recipes that come with the project."""

from __future__ import annotations

import textwrap
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

from ... import yaml_file
from ...files import is_locked, read_json_or_none
from ..runs.changed_settings import comparable
from ..says.paths import corpora
from ..says.recipe import SECTIONS, variants
from .differences import differences
from .tables import table

#: Training options that are shown of every run; of others, those in which runs differ.
SETTINGS = ("arch", "lr", "dropout", "max-epoch", "max-update", "patience")


def list_runs(work_dir: Path) -> str:
    """The table, or a sentence where there is no run."""
    folders = sorted((work_dir / "runs").glob("*/*/seed*"), key=_order)
    folders = [folder for folder in folders if folder.is_dir()]
    if not folders:
        return f"{work_dir}: no runs yet"
    rows = []
    for _, group in groupby(folders, key=lambda folder: folder.parts[-3]):
        runs = {folder: _begun_settings(folder) for folder in group}
        told = _differing(list(runs.values()))
        rows += [_row(folder, _settings(begun, told)) for folder, begun in runs.items()]
    return table(["run", "state", "settings", "test set", "score", "value"], rows)


def _order(folder: Path) -> tuple[str, str, int, str]:
    return *folder.parts[-3:-1], len(folder.name), folder.name


def _row(folder: Path, settings: str) -> list[str]:
    results = read_json_or_none(folder / "results.json")
    score = ["", "", ""]
    if results is not None:
        test_set, scored = next(iter(results["scores"].items()))
        first = scored["scores"][0]
        score = [test_set, first["label"], f"{first['score']:.{first.get('digits', 2)}f}"]
    return ["/".join(folder.parts[-3:]), _state(folder, results), settings, *score]


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
    started = {step: folder / "steps" / f"{step}.started.json" for step in ("train", "generate")}
    begun = [step for step, path in started.items() if path.exists()]
    return f"stopped in {begun[0]}" if begun else "not begun"


def _begun_settings(folder: Path) -> dict[str, Any]:
    """Those of the step that a run began last, with those of the steps before it, by section."""
    steps = [read_json_or_none(folder / "steps" / f"{step}.started.json") for step in SECTIONS]
    begun = [step for step in steps if step is not None]
    if not begun:
        return {}
    return comparable(max(begun, key=lambda step: step.get("began", 0))["settings"])


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by the names that ``--set`` has: ``{"lr": "1e-3", "generate.beam": 5}``."""
    found = {}
    for section, value in settings.items():
        if section == "models":
            found["ensemble of"] = len(value)
        elif isinstance(value, dict):
            within = "" if section == "train" else f"{section}."
            found |= {f"{within}{name}": number for name, number in value.items()}
        elif section == "data":
            found["data"] = str(value)[:6]
    return found


def _differing(runs: list[dict[str, Any]]) -> list[str]:
    """Settings that some runs have otherwise than others, or not at all, of those that have begun
    the step."""
    found = []
    for section in dict.fromkeys(section for run in runs for section in run):
        peers = [_flat({section: run[section]}) for run in runs if section in run]
        names = sorted(set().union(*peers) - {"arch"})
        found += [
            name
            for name in names
            if any(differences(peers[0].get(name), peer.get(name)) for peer in peers)
        ]
    return found


def _settings(begun: dict[str, Any], told: list[str]) -> str:
    """A run's architecture, some settings, and those told."""
    settings = _flat(begun)
    named = [name for name in settings if name.startswith("ea-")]
    names = dict.fromkeys([*SETTINGS[1:], *sorted(named), "ensemble of", *told])
    found = [str(settings["arch"])] if "arch" in settings else []
    found += [f"{name} {settings[name]}" for name in names if settings.get(name) is not None]
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
