"""What a run ends with: scores, the model to use, pictures, and the next command to type."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from ...files import read_json, read_lines
from ..results.tables import mean_and_deviation, table
from ..says.paths import USER_DIR
from ..says.recipe import Recipe
from .folders import Run


def print_results(runs: list[Run]) -> None:
    """A table of all scores; mean and standard deviation over the seeds."""
    scores = [read_json(run.results)["scores"] for run in runs]
    labels = [score["label"] for score in next(iter(scores[0].values()))["scores"]]
    rows = []
    for test_set in scores[0]:
        row = [test_set]
        for i in range(len(labels)):
            found = [score[test_set]["scores"][i] for score in scores]
            digits = found[0].get("digits", 2)
            text = mean_and_deviation([one["score"] for one in found], digits)
            if len(found) == 1 and "interval" in found[0]:
                low, high = found[0]["interval"]
                text += f" ({low:.{digits}f} to {high:.{digits}f})"
            row.append(text)
        rows.append(row)
    seeds = ", ".join(str(run.seed) for run in runs)
    print(f"\n{runs[0].folder.parent}, seed {seeds}\n\n{table(['test set', *labels], rows)}")
    for score in next(iter(scores[0].values()))["scores"]:
        print(f"{score['label']}: {score['signature']}")


def print_places(recipe: Recipe, run: Run) -> None:
    """Where the model and all that belongs to it lie."""
    places = {
        "model": run.model_folder,
        "checkpoint": run.model(recipe),
        "translations": run.folder / "generate",
        "losses": run.folder / "losses",
        "scores": run.results,
        "curves": run.curves,
        "logs": run.log("train").parent,
    }
    print()
    for name, path in places.items():
        if path.exists():
            print(f"{name:13} {shown(path)}")


def print_next(recipe: Recipe, run: Run, ensemble: Run | None) -> None:
    """Commands that may come next: the ways to use the model, or several, and a comparison."""
    lines = []
    own = _user_dir(recipe)
    model = shown(run.model_folder)
    if run.model_folder.exists() and len(run.languages) == 1:
        lines += [
            f"{shlex.join([program('ea-generate'), model, *own])} < beginnings.txt > texts.txt",
            f"in Python: {program('python')}",
            *_import_of(recipe),
            "  >>> from ea_fairseq import LanguageModel",
            f'  >>> LanguageModel({model!r}).generate("...")',
        ]
    elif run.model_folder.exists():
        source, target = run.languages
        translate = shlex.join([program("ea-translate"), model, *own])
        lines += [
            f"{translate} < new.{source} > new.{target}",
            f"in Python: {program('python')}",
            *_import_of(recipe),
            "  >>> from ea_fairseq import Translator",
            f'  >>> Translator({model!r}).translate("...")',
            f"open in a browser: {translate} --serve",
        ]
    if other := _finished_beside(run):
        compare = [program("ea-compare"), shown(other), shown(run.folder.parent)]
        lines.append(shlex.join(compare))
    for i, line in enumerate(lines):
        print(f"       {line}" if i else f"\nnext:  {line}")
    if ensemble is not None:
        first, *others = (shown(member.model_folder) for member in ensemble.members)
        words = [program("ea-translate"), first, *own, "--ensemble", *others]
        print(f"\nnext:  {shlex.join(words)}")


def _user_dir(recipe: Recipe) -> list[str]:
    """The option with which a command knows the variant of a recipe."""
    return [] if recipe.user_dir == USER_DIR else ["--user-dir", shown(recipe.user_dir)]


def _import_of(recipe: Recipe) -> list[str]:
    """The same, for a program."""
    folder = recipe.user_dir
    if folder == USER_DIR:
        return []
    return [f"  >>> import sys; sys.path.append({str(folder.parent)!r}); import {folder.name}"]


def _finished_beside(run: Run) -> Path | None:
    """The newest finished run of another recipe, or name, on the same corpus."""
    found = [
        path
        for path in run.folder.parents[1].glob("*/seed*/results.json")
        if path.parents[1] != run.folder.parent
    ]
    return max(found, key=lambda path: path.stat().st_mtime).parents[1] if found else None


def print_examples(run: Run, count: int) -> None:
    """Translations from all over the first test set."""
    test_set = run.test_sets[0]
    source, target = run.languages
    columns = [
        ("source", read_lines(run.data / "raw" / f"{test_set}.{source}")),
        ("reference", read_lines(run.data / "raw" / f"{test_set}.{target}")),
        ("translation", read_lines(run.text(test_set))),
    ]
    sentences = len(columns[0][1])
    count = min(count, sentences)
    for i in range(count):
        number = i * sentences // count
        print(f"\n{test_set}, sentence {number + 1}")
        for name, lines in columns:
            print(f"  {name:12} {lines[number]}")


def program(name: str) -> str:
    """A program of this environment, as it can be typed here: the demo's is not on the PATH."""
    own = Path(sys.executable).with_name(name)
    found = shutil.which(name)
    return name if found and Path(found).parent == own.parent else shown(own)


def shown(path: Path) -> str:
    """A path as short as it can be typed here."""
    path, here = Path(os.path.abspath(path)), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
