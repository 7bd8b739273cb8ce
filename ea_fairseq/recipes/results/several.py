"""Several systems, each compared with one or two of them; p corrected for how many they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..runs.folders import seed_folders, settings_of
from .comparison import Row, compare_by
from .differences import differences, listed
from .kept import finished_runs
from .scoring import read_results
from .significance import holm
from .systems import Runs, read_folders


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
        if found:
            beside = next(iter(found.values()))
            check_same_text((beside.first, beside.runs), (system.first, system.runs))
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
    theirs, ours = (", ".join(sorted(next(iter(runs.values())))) for _, runs in (first, other))
    if theirs != ours:
        raise NotCompared(f"scored on {ours}, and {first[0]} on {theirs}")


def compare_all(
    systems: dict[str, System], against: str, score: str, samples: int
) -> dict[str, dict[str, Compared]]:
    """Every other system beside one of them.

    Args:
        systems: by name
        against: the name of the one
        score: the first whose label begins so
        samples: of the bootstrap

    Returns:
        name -> test set -> the comparison; p is corrected for all systems, test set by test set
    """
    rows = {
        name: compare_by(score, systems[against].runs, system.runs, samples)
        for name, system in systems.items()
        if name != against
    }
    found: dict[str, dict[str, Compared]] = {name: {} for name in rows}
    for test_set in next(iter(rows.values()), {}):
        corrected = holm([row[test_set].difference.p for row in rows.values()])
        for name, p in zip(rows, corrected, strict=True):
            found[name][test_set] = Compared(rows[name][test_set], p)
    return found
