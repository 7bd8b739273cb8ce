"""Two systems beside each other, compared test set by test set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations
from typing import Any

import numpy

from .perplexity import LossMeasure
from .scoring import Measure
from .significance import Difference, draw_sentences, sacrebleu_p, sampled_scores, two_level
from .systems import Runs, units_of

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

    @property
    def lower_is_better(self) -> bool:
        """Whether the system with the lower score is the better one."""
        return self.score.startswith(("TER", "perplexity", "bits"))


def left_to_chance(systems: Sequence[Runs]) -> str:
    """What the p-values of some systems' comparison are about, in a line."""
    what = units_of(systems[0])
    if min(map(len, systems)) == 1:
        return f"Of a system with one run, p is about the choice of {what}, not about seeds"
    return f"p is about seeds and {what}"


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


def compare(first: Runs, second: Runs, samples: int, score: str = "") -> list[Row]:
    """A row for each test set and score that all runs have, then for all test sets together.

    Args:
        first: the runs of the first system
        second: the runs of the second
        samples: of the bootstrap
        score: compare only scores whose label begins so

    Raises:
        ValueError: no test set in common, one with other references, or one twice; too few samples.
    """
    if samples < 1:
        raise ValueError(f"--samples {samples}: choose at least 1")
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
    for one, other in combinations(shared, 2):
        if all(_content(run[one][0]) == _content(run[other][0]) for run in runs):
            raise ValueError(f"{other}: is {one} under another name, and would count twice")
    for parts in tables.values():
        if len(parts) == len(shared) > 1:
            together = _Statistics.joined(parts)
            rows.append(together.row(ALL_TOGETHER, drawn(together.sentences)))
    return rows


def compare_by(score: str, first: Runs, second: Runs, samples: int) -> dict[str, Row]:
    """Test set -> the row of one score: the first whose label begins so; args as for `compare`.

    Raises:
        ValueError: not all of the runs have it.
    """
    rows = compare(first, second, samples, score)
    if not rows:
        raise ValueError(f"--score {score}: not all runs have it under the same label")
    return {row.test_set: row for row in rows if row.score == rows[0].score}


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


def _content(measure: Measure | LossMeasure) -> tuple[Any, Any]:
    """What a measure compares: references and translations, or a text and its losses."""
    own = measure.nats if isinstance(measure, LossMeasure) else measure.hypotheses
    return measure.references, own


def _pairs(first: dict[str, float], second: dict[str, float]) -> list[tuple[str, str, str]]:
    """Name of each pair of runs and of its parts: same names, or the only run of each system."""
    if len(first) == len(second) == 1:
        (a,), (b,) = first, second
        return [(a if a == b else f"{a}, {b}", a, b)]
    return [(name, name, name) for name in first if name in second]
