"""Whether two systems differ: bootstrap over test sentences, and over the seeds they were run with.

A score would have come out otherwise with other test sentences and with other seeds. One sample of
the bootstrap draws sentences (the same ones for every run of both systems) and, for each system,
runs; its difference is that of the mean scores of the runs drawn, on the sentences drawn.

Of n runs n - 1 are drawn, with replacement. Drawing n would make the variance of their mean too
small by (n - 1) / n, a third of it with three runs; with n - 1 it is right (Rao and Wu, 1988). Two
things stay wrong (``tests/thorough/false_alarms.py`` measures both). What one run makes of a
sentence, and another run would not, is drawn twice, with the run and with the sentence: no
bootstrap of both is free of that (Owen, 2007), which makes intervals too wide and p too large. And
two or three runs say little about how widely seeds scatter, which makes p too small where they
scatter more than sentences. A single run says nothing about it: then sentences alone are left to
chance.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy


@dataclass(frozen=True)
class Difference:
    """The second system's mean score minus the first's, in points of the score.

    ``interval`` holds the middle 95 % of the bootstrap's differences. ``p`` is two-sided: how often
    chance alone would move the difference by as much as what was observed.
    """

    observed: float
    interval: tuple[float, float]
    p: float


def draw_sentences(sentences: int, samples: int) -> numpy.ndarray:
    """How often each sentence is in each sample: (samples, sentences).

    The draws are those of sacrebleu's paired bootstrap, from the same seed (12345, or the
    environment's SACREBLEU_SEED).
    """
    chosen = _generator().choice(sentences, size=(samples, sentences), replace=True)
    return numpy.stack([numpy.bincount(row, minlength=sentences) for row in chosen]).astype(float)


def sampled_scores(
    statistics: numpy.ndarray, counts: numpy.ndarray, score: Callable[[list[float]], float]
) -> numpy.ndarray:
    """The score of one run in every sample: (samples,).

    Args:
        statistics: (sentences, quantities), what is summed over sentences before scoring
        counts: (samples, sentences), from ``draw_sentences``
        score: the score that such a sum gives
    """
    return numpy.array([score(total) for total in (counts @ statistics).tolist()])


def two_level(first: numpy.ndarray, second: numpy.ndarray, observed: float) -> Difference:
    """The difference of two systems, seeds and sentences left to chance.

    Args:
        first: (runs, samples), ``sampled_scores`` of every run of the first system
        second: (runs, samples) of the second, which may have another number of runs
        observed: the difference of the mean scores on the test set as it is

    A run of one system is not tied to the run of the other with the same seed: two models make
    different use of the same random numbers. Where they are alike all the same, p is too large.
    """
    generator = _generator(of_seeds=True)
    differences = _mean_of_drawn(second, generator) - _mean_of_drawn(first, generator)
    low, high = numpy.quantile(differences, [0.025, 0.975])
    # Rounding must not decide whether a system differs from itself.
    as_far = numpy.abs(differences - observed) >= abs(observed) * (1 - 1e-9)
    p = (int(as_far.sum()) + 1) / (len(differences) + 1)
    return Difference(observed, (float(low), float(high)), p)


def holm(p: Sequence[float]) -> list[float]:
    """p-values of several comparisons, corrected after Holm (1979), in the order given.

    At most that share of families of comparisons in which nothing differs has any value as small,
    however the comparisons depend on each other. The smallest of n values is multiplied by n, the
    next one by n - 1, and so on; none falls below one before it, nor rises above 1.
    """
    corrected, largest = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        corrected[i] = largest
    return corrected


def sacrebleu_p(first: numpy.ndarray, second: numpy.ndarray, observed: float) -> float:
    """sacrebleu's p-value of one pair of runs: (samples,) each; for comparison with others' papers.

    sacrebleu centres the *absolute* differences and counts those on one side, which often gives
    about half of the two-sided p-value of ``two_level``.
    """
    if observed == 0 and (first == second).all():
        return 1.0  # sacrebleu counts samples that differ by more, of which there are none
    differences = numpy.abs(second - first)
    larger = differences - differences.mean() > abs(observed)
    return (int(larger.sum()) + 1) / (len(differences) + 1)


def _mean_of_drawn(scores: numpy.ndarray, generator: numpy.random.Generator) -> numpy.ndarray:
    """The mean score of the runs that each sample draws: (samples,)."""
    runs, samples = scores.shape
    chosen = generator.integers(runs, size=(max(runs - 1, 1), samples))
    return scores[chosen, numpy.arange(samples)].mean(axis=0)


def _generator(of_seeds: bool = False) -> numpy.random.Generator:
    """Random numbers from sacrebleu's seed; those that draw seeds are a stream of their own."""
    text = os.environ.get("SACREBLEU_SEED", "12345")
    if text.lower() == "none":
        return numpy.random.default_rng()
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"SACREBLEU_SEED={text}: choose a whole number, or none")
    return numpy.random.default_rng((int(text), 1) if of_seeds else int(text))
