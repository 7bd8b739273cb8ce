"""Several systems, each compared with one or two of them; p corrected for how many they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..runs.folders import seed_folders, settings_of
from .comparison import Row, compare
from .differences import differences, listed
from .kept import finished_runs
from .scoring import read_results
from .significance import holm
from .systems import Runs, TestSets, read_folders


class NotCompared(ValueError):
    """A system that the others cannot be compared with."""


@dataclass(frozen=True)
class System:
    """A recipe's finished runs: where they and the first of them are, what they scored, and how
    many parameters the model has."""

    folder: Path
    first: Path
    runs: Runs
    parameters: int | None


@dataclass(frozen=True)
class Compared:
    """A row of two systems, and its p after Holm's correction among all that were compared so."""

    row: Row
    holm: float


def system_folders(path: Path) -> list[Path]:
    """A system's own folder, or all systems in a folder of them, by name.

    Raises:
        ValueError: there is no finished run in it.
    """
    if finished_runs(path):
        return [path]
    found = [folder for folder in sorted(path.glob("*")) if finished_runs(folder)]
    if not found:
        raise ValueError(f"{path}: no finished run in it")
    return found


def read_systems(
    folders: Iterable[Path], seeds: Iterable[int] | None, work_dir: Path
) -> dict[str, System]:
    """Systems by the names of their folders; of each those seeds whose runs are finished.

    Args:
        folders: of runs, kept or not
        seeds: those that count; None for all
        work_dir: see `systems.read_runs`

    Raises:
        ValueError: two of one name, or one that was trained or scored on other text than the first.
    """
    found: dict[str, System] = {}
    for folder in folders:
        if other := found.get(folder.name):
            raise ValueError(f"{folder}: has the name of {other.folder}: give one of them")
        chosen = seed_folders(folder, seeds)
        there = [run for run in finished_runs(folder) if run in chosen]
        if not there:
            continue
        parameters = read_results(there[0] / "results.json").get("parameters")
        system = System(folder, there[0], read_folders(there, work_dir), parameters)
        beside = next(iter(found.values()), system)
        try:
            check_same_text((beside.first, beside.runs), (system.first, system.runs))
        except NotCompared as error:
            raise NotCompared(f"{folder}: {error}") from None
        found[folder.name] = system
    return found


def check_same_text(first: tuple[Path, Runs], other: tuple[Path, Runs]) -> None:
    """Check that a system was trained and tested on the text of another; of each, a run's folder
    and all runs.

    Raises:
        NotCompared: saying what it was not.
    """
    old, new = (settings_of(run).get("data") for run, _ in (first, other))
    if None not in (old, new) and (changes := differences(old, new, "data")):
        raise NotCompared(f"trained on other data than {first[0]} ({listed(changes)})")
    theirs = sorted(next(iter(first[1].values())))
    for _, runs in (first, other):
        for name, run in runs.items():
            if sorted(run) != theirs:
                ours = ", ".join(sorted(run))
                raise NotCompared(
                    f"scored on {ours} ({name}), and {first[0]} on {', '.join(theirs)}"
                )


def compare_all(
    systems: dict[str, System], against: str, score: str, samples: int
) -> dict[str, dict[str, Compared]]:
    """Every other system beside one of them.

    Args:
        systems: by name
        against: the name of the one
        score: the first that all runs have whose label begins so
        samples: of the bootstrap

    Returns:
        name -> test set -> the comparison; p is corrected for all systems, test set by test set

    Raises:
        ValueError: not all runs have that score on every test set.
    """
    label = _shared_label(
        [run for system in systems.values() for run in system.runs.values()], score
    )
    rows = {}
    for name, system in systems.items():
        if name != against:
            both = compare(systems[against].runs, system.runs, samples, label)
            rows[name] = {row.test_set: row for row in both if row.score == label}
    found: dict[str, dict[str, Compared]] = {name: {} for name in rows}
    for test_set in next(iter(rows.values()), {}):
        corrected = holm([row[test_set].difference.p for row in rows.values()])
        for name, p in zip(rows, corrected, strict=True):
            found[name][test_set] = Compared(rows[name][test_set], p)
    return found


def _shared_label(runs: list[TestSets], score: str) -> str:
    labels = [{measure.label for measure in found} for run in runs for found in run.values()]
    for measure in next(iter(runs[0].values())):
        if measure.label.startswith(score) and all(measure.label in have for have in labels):
            return measure.label
    raise ValueError(f"--score {score}: not all runs have it, under one label, on every test set")
