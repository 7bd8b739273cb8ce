"""Learning curves out of fairseq's logs (JSON, simple or tqdm) or TensorBoard files."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ...errors import check_package

#: ``2026-01-01 12:00:00 | INFO | valid | epoch 001 | ...``; a progress bar may stand before it.
_LINE = re.compile(r"\| INFO \| (train_inner|train|valid\w*) \| (.*)")
#: When a line was logged.
_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) \| INFO \| ")
#: What fairseq logs once, before a process begins to train.
_BEGINNING = "| INFO | fairseq_cli.train | max tokens per device"
#: ``loss=2.5, wall=6`` while training, ``loss 2.5 | wall 6`` at the end of an epoch.
_PAIR = re.compile(r"(?:^|[ |,])([a-z_]+)[= ]([-+\d.e]+|inf|nan)(?=,| \||\s*$)")


@dataclass
class Curves:
    """What one training logged: kind of record -> quantity -> number of updates -> value.

    The kinds are fairseq's: ``train_inner`` (every --log-interval updates), ``train`` and
    ``valid`` (every epoch). A later record of the same update replaces the earlier one, so that
    a training that was stopped and resumed gives one curve.
    """

    records: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    valid_tag: str = ""

    def kind(self, tag: str) -> str | None:
        """The kind of records with one of fairseq's tags, None for those that are left out: of
        several sets of validation the first alone counts, as it does for fairseq."""
        if not tag.startswith("valid"):
            return tag
        self.valid_tag = self.valid_tag or tag
        return "valid" if tag == self.valid_tag else None

    def add(self, kind: str, quantity: str, updates: int, value: float) -> None:
        """Note one value; what is not a number keeps its place, and draws no curve."""
        self.records.setdefault(kind, {}).setdefault(quantity, {})[updates] = value

    def points(self, kind: str, quantity: str) -> list[tuple[int, float]]:
        """Updates and values, sorted by updates, those that are no numbers too."""
        return sorted(self.records.get(kind, {}).get(quantity, {}).items())

    def curve(self, kind: str, quantity: str) -> tuple[list[int], list[float]]:
        """Updates and values, sorted by updates; empty where nothing was logged."""
        points = [point for point in self.points(kind, quantity) if math.isfinite(point[1])]
        return [updates for updates, _ in points], [value for _, value in points]

    @property
    def updates(self) -> list[int]:
        """The updates at which anything was logged."""
        kinds = self.records.values()
        return sorted({updates for kind in kinds for points in kind.values() for updates in points})

    def minutes(self, updates: list[int]) -> list[float]:
        """Training time after so many updates, interpolated between the times logged.

        It counts on over resumed processes, what was between them left out. Where the log does not
        say when a process began, it is fairseq's own "wall", which begins anew with each.
        """
        import numpy

        walls: dict[int, float] = {0: 0.0}
        for quantity in ("wall", "elapsed"):
            for kind in ("train", "train_inner", "valid"):
                walls |= dict(zip(*self.curve(kind, quantity), strict=True))
        known = sorted(walls)
        seconds = numpy.interp(updates, known, [walls[update] for update in known])
        return [float(second) / 60 for second in seconds]


@dataclass
class MeanCurve:
    """One quantity of several trainings, record by record, as far as all of them have come and
    where all have a number.

    Records are matched by their number, the first with the first: those of one epoch need not be at
    the same update.
    """

    updates: list[float]
    minutes: list[float]
    values: list[float]
    deviations: list[float]
    cut: bool

    @classmethod
    def of(cls, seeds: list[Curves], kind: str, quantity: str) -> MeanCurve:
        """Means, and the sample standard deviations of the values (0 of a single training)."""
        curves = [seed.points(kind, quantity) for seed in seeds]
        shortest = min(map(len, curves))
        numbers = [
            record
            for record in range(shortest)
            if all(math.isfinite(points[record][1]) for points in curves)
        ]
        columns = []
        for seed, points in zip(seeds, curves, strict=True):
            updates = [points[record][0] for record in numbers]
            columns.append((updates, seed.minutes(updates), [points[r][1] for r in numbers]))
        updates, minutes, values = (
            [mean(record) for record in zip(*column, strict=True)]
            for column in zip(*columns, strict=True)
        )
        records = zip(*(values for _, _, values in columns), strict=True)
        deviations = [stdev(record) if len(seeds) > 1 else 0.0 for record in records]
        cut = any(len(points) > shortest for points in curves)
        return cls(updates, minutes, values, deviations, cut)


def read_curves(path: Path) -> Curves:
    """Curves of a log file, of a run's folder or of a TensorBoard folder.

    Raises:
        ValueError: no such file, or nothing in it that could be drawn.
    """
    if path.is_dir() and (path / "logs" / "train.log").exists():
        path = path / "logs" / "train.log"
    if path.is_file():
        curves = _from_log(path)
    elif path.is_dir():
        curves = _from_tensorboard(path)
    else:
        raise ValueError(f"{path}: no such file or folder")
    if not any(curves.curve(kind, "loss")[0] for kind in ("train_inner", "train", "valid")):
        raise ValueError(f"{path}: nothing to plot: no losses logged by fairseq-train in it")
    return curves


@dataclass
class _Record:
    """A line of statistics: when it was logged by the clock, in seconds, and what it says."""

    kind: str
    updates: int
    clock: float | None
    values: dict[str, float]


def _from_log(path: Path) -> Curves:
    curves = Curves()
    text = path.read_text(encoding="utf-8", errors="replace")
    # By process: the clock when it began, which is not known of lines before the first beginning.
    processes: list[tuple[float | None, list[_Record]]] = [(None, [])]
    for line in re.split(r"[\r\n]+", text):
        time = _TIME.search(line)
        clock = _clock(time[1]) if time else None
        if _BEGINNING in line:
            processes.append((clock, []))
        if match := _LINE.search(line):
            tag, stats = match.groups()
            values = (
                _json_stats(tag, stats) if stats.startswith("{") else _numbers(_PAIR.findall(stats))
            )
            number = values.pop("num_updates", math.nan)
            if not 0 <= number < 2**53:
                continue
            updates = int(number)
            if kind := curves.kind(tag):
                processes[-1][1].append(_Record(kind, updates, clock, values))
    elapsed = 0.0
    for began, records in processes:
        if began is not None:
            seconds = _seconds(began, records)
            for record, passed in zip(records, seconds, strict=True):
                record.values["elapsed"] = elapsed + passed
            elapsed += seconds[-1] if records else 0.0
        for record in records:
            for quantity, value in record.values.items():
                curves.add(record.kind, quantity, record.updates, value)
    return curves


def _seconds(began: float, records: list[_Record]) -> list[float]:
    """Seconds from the beginning of a process to each of its records.

    fairseq's "wall" does not jump where clocks are set; the clock tells the time from one to
    records without, such as validations, which come before the next record that has one.
    """
    following, bounds = math.inf, []
    for record in reversed(records):
        following = record.values.get("wall", following)
        bounds.append(following)
    found, now, clock = [], 0.0, began
    for record, bound in zip(records, reversed(bounds), strict=True):
        by_clock = now if record.clock is None else now + max(record.clock - clock, 0.0)
        now = record.values.get("wall", min(by_clock, max(bound, now)))
        clock = clock if record.clock is None else record.clock
        found.append(now)
    return found


def _clock(text: str) -> float | None:
    """A time of a log in seconds; None of what only looks like one."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def _json_stats(tag: str, text: str) -> dict[str, float]:
    """At the end of an epoch fairseq prefixes every quantity: ``valid_loss``, ``train_wall``."""
    try:
        stats = json.loads(text)
    except (ValueError, RecursionError):  # the last line of a training that was killed
        return {}
    prefix = "" if tag == "train_inner" else f"{tag}_"
    return _numbers((key.removeprefix(prefix), value) for key, value in stats.items())


def _numbers(pairs: Iterable[tuple[str, Any]]) -> dict[str, float]:
    """The values that are numbers, by their names."""
    found = {}
    for key, value in pairs:
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            found[key] = float(value)
    return found


def _from_tensorboard(folder: Path) -> Curves:
    check_package("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curves = Curves()
    for file in sorted(folder.rglob("events.out.tfevents.*")):
        kind = curves.kind(file.parent.name)
        if kind is None:
            continue
        events = EventAccumulator(str(file), size_guidance={"scalars": 0})
        events.Reload()
        for quantity in events.Tags()["scalars"]:
            for event in events.Scalars(quantity):
                curves.add(kind, quantity, event.step, event.value)
    return curves
