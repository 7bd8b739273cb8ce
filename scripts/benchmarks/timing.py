"""Times of models taken alternately in one process: A B B A, or A B C C B A."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from .models import Setting


@dataclass(frozen=True)
class Comparison:
    """Times of the baseline (A), the other model (B) and that on torch alone (C), in seconds; each
    has two of every round."""

    baseline: list[float]
    other: list[float]
    alone: list[float] = field(default_factory=list)

    def medians(self) -> tuple[float, ...]:
        return tuple(statistics.median(x) for x in (self.baseline, self.other, self.alone) if x)

    def ratio(self) -> float:
        """Median time of the other model in units of the baseline's."""
        baseline, other = self.medians()[:2]
        return other / baseline

    def spread(self) -> tuple[float, float]:
        """Lowest and highest ratio among the rounds."""
        rounds = range(0, len(self.baseline), 2)
        ratios = [sum(self.other[i : i + 2]) / sum(self.baseline[i : i + 2]) for i in rounds]
        return min(ratios), max(ratios)

    def loses(self) -> bool:
        """Whether the other model is slower than on torch alone, by more than its times vary: three
        quarters of its turns take longer than three quarters of torch's."""
        if not self.alone:
            return False
        quarter = len(self.other) // 4
        return sorted(self.other)[quarter] > sorted(self.alone)[-1 - quarter]


def alternate(*work: Callable[[], object], rounds: int, setting: Setting) -> Comparison:
    """Runs A B B A, or A B C C B A, in each round, after a warm-up of all: on a GPU a longer one,
    in which kernels are compiled and clocks rise."""
    device, clock = setting.device, setting.clock
    for run in work * (1 if device == "cpu" else 3):
        timed(run, device)
    return alternate_seconds(*(partial(timed, run, device, clock) for run in work), rounds=rounds)


def alternate_seconds(*work: Callable[[], float], rounds: int) -> Comparison:
    """The same of functions that take their time themselves, without a warm-up."""
    times: list[list[float]] = [[] for _ in work]
    turns = list(zip(times, work, strict=True))
    for _ in range(rounds):
        for found, seconds in turns + turns[::-1]:
            found.append(seconds())
    return Comparison(*times)


def timed(work: Callable[[], object], device: str, clock: str = "perf_counter") -> float:
    """Seconds that the work takes, on a GPU until its last kernel is done.

    Args:
        work: what is timed
        device: where it runs
        clock: of the module time
    """
    now = getattr(time, clock)
    started = now()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return now() - started
