"""Two systems beside each other: their runs, read from disk, compared test set by test set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy

from ..files import read_json
from .differences import differences, listed
from .perplexity import LossMeasure, read_losses
from .resuming import comparable
from .runs import seed_folders, settings_of
from .scoring import Measure, Score, measures, read_scored
from .significance import Difference, draw_sentences, sacrebleu_p, sampled_scores, two_level

#: Test set -> measures of it, for one run. A language model's are of blocks, not of sentences.
TestSets = dict[str, list[Measure] | list[LossMeasure]]
#: A system: name of the run (seed1, ...) -> its test sets.
Runs = dict[str, TestSets]

#: The row of the sentences of all test sets.
ALL_TOGETHER = "all together"


@dataclass(frozen=True)
class Row:
    """One score on one test set.

    ``first`` and ``second`` map the name of each run to its score; ``difference`` leaves seeds and
    sentences to chance; ``by_seed`` holds sacrebleu's p-values of the pairs of runs that have a
    name in common.
    """

    test_set: str
    score: str
    sentences: int
    first: dict[str, float]
    second: dict[str, float]
    difference: Difference
    by_seed: dict[str, float]
    digits: int


class OtherSettings(ValueError):
    """Runs of one system that were made with different settings."""


def read_runs(path: Path, seeds: Iterable[int] | None = None) -> Runs:
    """All runs of a recipe's folder, or those of some seeds; a run's own folder is one run.

    Raises:
        ValueError: a run that is not there, not finished or not scored.
        OtherSettings: a run with other settings than the first.
    """
    runs = {}
    folders = seed_folders(path, seeds)
    for folder in folders:
        scored = sorted((folder / "scores").glob("*.json"))
        if (folder / "steps").exists() and not (folder / "results.json").exists():
            raise ValueError(f"{folder}: this run is not finished: give its command again")
        if not scored:
            raise ValueError(f"{folder}: neither a file nor a run with scores in it")
        runs[folder.name] = {score.stem: _read_measures(score) for score in scored}
    check_settings(folders)
    _check_members(folders)
    return runs


def check_settings(folders: list[Path]) -> None:
    """Refuse runs of one system with other settings: their mean would be of nothing.

    Raises:
        OtherSettings: naming the run and what differs from the first.
    """
    every = {folder: settings_of(folder) for folder in folders}
    for folder, settings in every.items():
        first = folders[0]
        known = settings.keys() & every[first].keys()
        old, new = ({name: found[name] for name in known} for found in (every[first], settings))
        if changes := differences(comparable(old), comparable(new)):
            raise OtherSettings(
                f"{folder}: made with other settings than {first.name} ({listed(changes)}): "
                "give their command again, or the --seeds to compare"
            )


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
    old, new = (settings_of(seed_folders(path, seeds)[0]) for path in (first, second))
    known = old.keys() & new.keys()
    old, new = ({name: settings[name] for name in known} for settings in (old, new))
    return differences(comparable(old), comparable(new))


def units_of(runs: Runs) -> str:
    """What the scores of a system are sums over: sentences, or a language model's blocks."""
    return "blocks" if are_language_models(runs) else "sentences"


def left_to_chance(systems: Sequence[Runs]) -> str:
    """What the p-values of some systems' comparison are about, in a line."""
    what = units_of(systems[0])
    if min(map(len, systems)) == 1:
        return f"One run says nothing about other seeds: of that system, {what} alone vary in p"
    return f"p is about seeds and {what}"


def are_language_models(runs: Runs) -> bool:
    """Whether the runs' scores are of language models, block by block."""
    test_sets = next(iter(runs.values()))
    return isinstance(next(iter(test_sets.values()))[0], LossMeasure)


def left_out(first: Runs, second: Runs) -> list[str]:
    """Test sets and scores that some run has and another has not, so that they are not compared."""
    runs = [*first.values(), *second.values()]
    test_sets = list(dict.fromkeys(name for run in runs for name in run))
    missing = [name for name in test_sets if not all(name in run for run in runs)]
    for name in (name for name in test_sets if name not in missing):
        labels = list(dict.fromkeys(measure.label for run in runs for measure in run[name]))
        everywhere = set.intersection(*({measure.label for measure in run[name]} for run in runs))
        missing += [f"{label} of {name}" for label in labels if label not in everywhere]
    return missing


def _read_measures(path: Path) -> list[Measure] | list[LossMeasure]:
    """The measures of one run on one test set, from the scores' file."""
    record = read_json(path)
    if losses := record["files"].get("losses"):
        return read_losses(path.parent / losses)
    recorded = {score["label"]: Score(**score) for score in record.get("scores", [])}
    return [
        replace(measure, recorded=recorded.get(measure.label))
        for measure in measures(read_scored(path))
    ]


def compare(first: Runs, second: Runs, samples: int, score: str = "") -> list[Row]:
    """A row for each test set and score that all runs have, then for all test sets together.

    Args:
        first: the runs of the first system
        second: the runs of the second
        samples: of the bootstrap
        score: compare only scores whose label begins so

    Raises:
        ValueError: no test set in common, or one with other references.
    """
    runs = [*first.values(), *second.values()]
    shared = [name for name in runs[0] if all(name in run for run in runs)]
    if not shared:
        raise ValueError(
            f"no test set in common: {', '.join(runs[0])}; {', '.join(next(iter(second.values())))}"
        )
    # A language model's blocks differ in number with and without a context window.
    drawn = cache(partial(draw_sentences, samples=samples))
    rows = []
    tables: dict[str, list[_Statistics]] = {}
    for test_set in shared:
        # Seeds of a system may have been scored with other settings, too.
        common = set.intersection(*({measure.label for measure in run[test_set]} for run in runs))
        for measure in runs[0][test_set]:
            if measure.label not in common or not measure.label.startswith(score):
                continue
            statistics = _Statistics.of(first, second, test_set, measure.label)
            tables.setdefault(measure.label, []).append(statistics)
            rows.append(statistics.row(test_set, drawn(statistics.sentences)))
    for parts in tables.values():
        if len(parts) == len(shared) > 1:
            together = _Statistics.joined(parts)
            rows.append(together.row(ALL_TOGETHER, drawn(together.sentences)))
    return rows


@dataclass(frozen=True)
class _Statistics:
    """What is summed over sentences, or blocks: name of the run -> (sentences, quantities)."""

    measure: Measure | LossMeasure
    first: dict[str, numpy.ndarray]
    second: dict[str, numpy.ndarray]

    @classmethod
    def of(cls, first: Runs, second: Runs, test_set: str, label: str) -> _Statistics:
        """Those of one score on one test set."""
        found = []
        references = method = None
        for runs in (first, second):
            picked = {
                name: next(measure for measure in run[test_set] if measure.label == label)
                for name, run in runs.items()
            }
            for name, measure in picked.items():
                references = measure.references if references is None else references
                if measure.references != references:
                    raise ValueError(f"{test_set}: the {measure.compared} of A and B differ")
                if isinstance(measure, LossMeasure):
                    continue
                measure.check_recorded(f"{test_set}, {name}")
                method = method or measure.signature
                if measure.signature != method:
                    raise ValueError(
                        f"{test_set}: {label} of A and B is computed in two ways ({method} and "
                        f"{measure.signature}): score both with the same --target-lang"
                    )
            found.append({name: measure.statistics for name, measure in picked.items()})
        return cls(measure, *found)

    @classmethod
    def joined(cls, parts: list[_Statistics]) -> _Statistics:
        """Those of several test sets as of one."""

        def join(systems: list[dict[str, numpy.ndarray]]) -> dict[str, numpy.ndarray]:
            return {name: numpy.concatenate([s[name] for s in systems]) for name in systems[0]}

        return cls(
            parts[0].measure, join([p.first for p in parts]), join([p.second for p in parts])
        )

    @property
    def sentences(self) -> int:
        """Sentences of the test set, or blocks."""
        return len(next(iter(self.first.values())))

    def row(self, test_set: str, counts: numpy.ndarray) -> Row:
        """Scores, difference and p-values; ``counts`` as ``draw_sentences`` gives them."""
        score = self.measure.score_of
        scores, sampled = [], []
        for runs in (self.first, self.second):
            scores.append({name: score(run.sum(0).tolist()) for name, run in runs.items()})
            sampled.append({name: sampled_scores(run, counts, score) for name, run in runs.items()})
        first, second = (numpy.array(list(runs.values())) for runs in sampled)
        means = [float(numpy.mean(list(runs.values()))) for runs in scores]
        by_seed = {
            name: sacrebleu_p(sampled[0][a], sampled[1][b], scores[1][b] - scores[0][a])
            for name, a, b in _pairs(*scores)
        }
        return Row(
            test_set=test_set,
            score=self.measure.label,
            sentences=self.sentences,
            first=scores[0],
            second=scores[1],
            difference=two_level(first, second, means[1] - means[0]),
            by_seed=by_seed,
            digits=self.measure.digits,
        )


def _pairs(first: dict[str, float], second: dict[str, float]) -> list[tuple[str, str, str]]:
    """Name of each pair of runs and of its parts: same names, or the only run of each system."""
    if len(first) == len(second) == 1:
        (a,), (b,) = first, second
        return [(a if a == b else f"{a}, {b}", a, b)]
    return [(name, name, name) for name in first if name in second]
