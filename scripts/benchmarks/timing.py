"""Times of two models taken alternately in one process: A B B A."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Comparison:
    """Times of the baseline (A) and the other model (B), in seconds."""

    baseline: list[float]
    other: list[float]

    def medians(self) -> tuple[float, float]:
        return statistics.median(self.baseline), statistics.median(self.other)

    def ratio(self) -> float:
        """Median time of the other model in units of the baseline's."""
        baseline, other = self.medians()
        return other / baseline

    def spread(self) -> tuple[float, float]:
        """Lowest and highest ratio among the rounds, each of which has two times of both."""
        rounds = range(0, len(self.baseline), 2)
        ratios = [sum(self.other[i : i + 2]) / sum(self.baseline[i : i + 2]) for i in rounds]
        return min(ratios), max(ratios)


def alternate(
    baseline: Callable[[], object],
    other: Callable[[], object],
    rounds: int,
    device: str = "cpu",
    warm_up: int = 1,
) -> Comparison:
    """Runs A B B A in each round, after a warm-up of both: on a GPU a longer one, in which kernels
    are compiled and clocks rise."""
    work, times = (baseline, other), ([], [])
    for which in (0, 1) * (warm_up if device == "cpu" else 3 * warm_up):
        timed(work[which], device)
    for _ in range(rounds):
        for which in (0, 1, 1, 0):
            times[which].append(timed(work[which], device))
    return Comparison(*times)


def alternate_seconds(
    baseline: Callable[[], float], other: Callable[[], float], rounds: int
) -> Comparison:
    """The same of functions that take their time themselves."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for which in (0, 1, 1, 0):
            times[which].append((baseline, other)[which]())
    return Comparison(*times)


def timed(work: Callable[[], object], device: str) -> float:
    """Seconds that the work takes, on a GPU until its last kernel is done."""
    started = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started
