"""Systems as they lie on disk, read and checked: a recipe's folder of runs, or that of one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..runs.changed_settings import comparable
from ..runs.folders import seed_folders, settings_of
from .differences import differences, listed
from .independence import check_independent, check_own_scores
from .kept import is_kept, kept_translations
from .perplexity import LossMeasure, read_losses
from .scoring import Measure, Score, measures, read_record, read_scored

#: Test set -> measures of it, for one run. A language model's are of blocks, not of sentences.
TestSets = dict[str, list[Measure] | list[LossMeasure]]
#: A system: name of the run (seed1, ...) -> its test sets.
Runs = dict[str, TestSets]


class OtherSettings(ValueError):
    """Runs of one system that were made with different settings."""


def read_runs(
    path: Path, seeds: Iterable[int] | None = None, work_dir: Path = Path("work")
) -> Runs:
    """All runs of a recipe's folder, or those of some seeds; a run's own folder is one run.

    Args:
        path: the folder, of runs or of kept ones
        seeds: those of the runs that count
        work_dir: where the references of kept runs are, see `kept`

    Raises:
        ValueError: a run that is not there, not finished, not scored, or another's copy; scores of
            another run.
        OtherSettings: a run with other settings than the first.
    """
    return read_folders(seed_folders(path, seeds), work_dir)


def read_folders(folders: list[Path], work_dir: Path) -> Runs:
    """:func:`read_runs` of the folders of a system's runs."""
    runs = {}
    for folder in folders:
        if is_kept(folder):
            runs[folder.name] = {
                test_set: _with_recorded(measures(translation), record)
                for test_set, record, translation in kept_translations(folder, work_dir)
            }
            continue
        scored = sorted((folder / "scores").glob("*.json"))
        if (folder / "steps").exists() and not (folder / "results.json").exists():
            raise ValueError(f"{folder}: this run is not finished: give its command again")
        if not scored:
            raise ValueError(f"{folder}: neither a file nor a run with scores in it")
        check_own_scores(folder)
        runs[folder.name] = {score.stem: _read_measures(score) for score in scored}
    check_runs(folders)
    _check_members(folders)
    return runs


def check_runs(folders: list[Path]) -> None:
    """Refuse runs that are no system's: their mean would be of nothing.

    Raises:
        OtherSettings: naming the run and what differs from the first.
        ValueError: naming a run that is another's copy.
    """
    for folder in folders:
        if changes := _changes(folders[0], folder):
            raise OtherSettings(
                f"{folder}: made with other settings than {folders[0].name} ({listed(changes)}): "
                "give their command again, or the --seeds to compare"
            )
    check_independent(folders)


def _check_members(folders: list[Path]) -> None:
    """Refuse ensembles that have models in common: they would count as runs by themselves."""
    owner: dict[str, Path] = {}
    for folder in folders:
        for member in folder.name.removeprefix("seed").split("+"):
            other = owner.setdefault(member, folder)
            if other is not folder:
                raise ValueError(
                    f"{folder}: has the model of seed {member} in common with {other.name}: "
                    "compare one of these folders"
                )


def differing_settings(
    first: Path, second: Path, seeds: Iterable[int] | None = None
) -> dict[str, str]:
    """What two systems differ in by their settings, ``{"train.arch": "... -> ..."}``.

    Args:
        first: a recipe's folder of runs, or a run's; its first run stands for all
        second: likewise
        seeds: those of the runs that count
    """
    return _changes(*(seed_folders(path, seeds)[0] for path in (first, second)))


def _changes(first: Path, second: Path) -> dict[str, str]:
    """What two runs differ in, of the settings that are known of both."""
    old, new = settings_of(first), settings_of(second)
    known = old.keys() & new.keys()
    old, new = ({name: settings[name] for name in known} for settings in (old, new))
    return differences(comparable(old), comparable(new))


def units_of(runs: Runs) -> str:
    """What the scores of a system are sums over: sentences, or a language model's blocks."""
    return "blocks" if are_language_models(runs) else "sentences"


def are_language_models(runs: Runs) -> bool:
    """Whether the runs' scores are of language models, block by block."""
    test_sets = next(iter(runs.values()))
    return isinstance(next(iter(test_sets.values()))[0], LossMeasure)


def _read_measures(path: Path) -> list[Measure] | list[LossMeasure]:
    """The measures of one run on one test set, from the scores' file."""
    record = read_record(path)
    if losses := record["files"].get("losses"):
        return read_losses(path.parent / losses)
    return _with_recorded(measures(read_scored(path)), record)


def _with_recorded(found: list[Measure], record: dict[str, Any]) -> list[Measure]:
    """Measures with the scores that were written down when the run was scored."""
    recorded = {
        score["label"]: Score(*(score[name] for name in ("label", "score", "signature")))
        for score in record["scores"]
    }
    return [replace(measure, recorded=recorded.get(measure.label)) for measure in found]
