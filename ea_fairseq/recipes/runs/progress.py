"""How far a step's command is, in one line, read from what the command prints.

On a terminal the line is drawn again and again; elsewhere it is printed now and then. Warnings are
shown once each. Everything else is in the step's log.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

#: Seconds between two lines where no terminal would draw them over each other.
BETWEEN_LINES = 30.0

_RECORD = re.compile(r"\| INFO \| (train_inner|train|valid\w*) \| (\{.*\})")
_RESUMED = re.compile(r"Loaded checkpoint \S+ \(epoch (\d+) @ (\d+) updates\)")
_BAR = re.compile(
    r"(?:(?P<what>[^|]*?):? +)?\d+%\|[^|]*\| *(?P<done>[\d.]+\w?)/(?P<all>[\d.]+\w?) \["
)
_COUNT = re.compile(r"(?P<what>\w[^:|]*): (?P<done>[\d.]+[kM]?) lines \[")
_PREPARED = re.compile(r": ((?:already )?prepared: train .* (?:pairs|lines).*)")
_WARNING = re.compile(r"(?:.*\| (?:WARNING|ERROR) \| [\w.]+ \| |warning: )(.*)")


class Status:
    """Says what the lines that a command prints tell about its progress.

    Args:
        what: the step works on, for each line of ours
    """

    def __init__(self, what: str = ""):
        self.what = what

    def read(self, line: str) -> str | None:
        """A bar of tqdm's, with the number of items where it is known; None for other lines.

        prepare.py's last line, the pairs that it has kept and dropped, is the summary.
        """
        if match := _PREPARED.search(line):
            self.what = match[1]
        if match := _BAR.search(line):
            what = (match["what"] or "").rpartition("|")[2].strip()
            return f"{self.what or what} {match['done']} of {match['all']}".strip()
        if match := _COUNT.search(line):
            return f"{match['what'].strip()}, {match['done']} lines"
        return None

    def summary(self) -> str:
        """What the finished step is reported with."""
        return self.what or "done"


class TrainingStatus(Status):
    """fairseq-train's records (``--log-format json``): epoch, update, loss, speed, time left.

    Args:
        train: the recipe's training options, of which max-epoch and max-update tell the latest end
        now: the clock, in seconds
    """

    def __init__(self, train: dict[str, Any], now: Callable[[], float] = time.monotonic):
        super().__init__()
        self.ends = {name: _limit(train.get(name)) for name in ("max-epoch", "max-update")}
        self.at_most = "at most " if _limit(train.get("patience")) else ""  # it may end before them
        self.now = now
        self.first: tuple[float, float] | None = None  # the part done at the first record, when
        self.updates = self.epochs = 0
        self.validation = ""

    def read(self, line: str) -> str | None:
        """The line for a record of training or validation."""
        if match := _RESUMED.search(line):
            return f"going on after update {int(match[2]):,}"
        match = _RECORD.search(line)
        if match is None:
            return None
        try:
            record = json.loads(match[2])
        except json.JSONDecodeError:
            return None
        kind = match[1]
        if kind.startswith("valid"):
            self.validation = _validation(kind, record)
            return None
        prefix = "" if kind == "train_inner" else "train_"
        self.updates = int(float(record.get(f"{prefix}num_updates", self.updates)))
        self.epochs = int(record.get("epoch", self.epochs))
        if kind == "train":  # at the end of an epoch
            return None
        return self._line(record)

    def _line(self, record: dict[str, Any]) -> str:
        done = float(record.get("update", 0))  # epochs, with their fraction
        parts = [f"epoch {self.epochs}{_of(self.ends['max-epoch'])}"]
        parts.append(f"update {self.updates:,}{_of(self.ends['max-update'])}")
        parts.append(f"loss {float(record['loss']):.2f}" if "loss" in record else "")
        parts.append(self.validation)
        if "wps" in record:
            parts.append(f"{float(record['wps']):,.0f} words/s")
        parts.append(self._left(self._part(done)))
        return ", ".join(part for part in parts if part)

    def _part(self, epochs: float) -> float | None:
        """The part of the training that is done; None where only patience ends it."""
        done = {"max-epoch": epochs, "max-update": self.updates}
        parts = [done[name] / end for name, end in self.ends.items() if end]
        return min(1.0, max(parts)) if parts else None

    def _left(self, part: float | None) -> str:
        if part is None:
            return ""
        now = self.now()
        self.first = self.first or (part, now)
        gained, seconds = part - self.first[0], now - self.first[1]
        if gained <= 0 or seconds <= 0:
            return f"{100 * part:.0f} %"
        left = duration(seconds * (1 - part) / gained)
        return f"{100 * part:.0f} %, {self.at_most}{left} left"

    def summary(self) -> str:
        """Epochs, updates and the last validation."""
        if not self.updates:
            return "done"
        epochs = "1 epoch" if self.epochs == 1 else f"{self.epochs:,} epochs"
        found = [epochs, f"{self.updates:,} updates", self.validation]
        return ", ".join(part for part in found if part)


class Display:
    """One step's line on the screen.

    Args:
        name: of the step
        status: what reads the command's lines
        stream: where to show it
    """

    def __init__(self, name: str, status: Status, stream: TextIO | None = None):
        self.name = name
        self.status = status
        self.stream = stream or sys.stdout
        self.drawn = self.stream.isatty()
        self.began = self.printed = time.monotonic()
        self._rest = b""
        self._warnings: set[str] = set()
        if self.drawn:
            self.show("...")

    def feed(self, output: bytes) -> None:
        """What the command printed since the last call."""
        *lines, self._rest = re.split(rb"[\r\n]", self._rest + output)
        for raw in lines:
            line = raw.decode(errors="replace")
            if (warning := _WARNING.match(line)) and warning[1] not in self._warnings:
                self._warnings.add(warning[1])
                self._print(f"warning: {warning[1]}")
            elif text := self.status.read(line):
                self.show(text)

    def finish(self) -> None:
        """Replace the line by what the step came to."""
        seconds = duration(time.monotonic() - self.began)
        self._print(f"{self.status.summary()} ({seconds})")

    def close(self) -> None:
        """Leave the line as it is, for a step that failed or was stopped."""
        if self.drawn:
            self._write("\n")

    def show(self, text: str) -> None:
        """Says how far the step is."""
        line = f"{self.name:9} {text}"
        if self.drawn:
            columns = shutil.get_terminal_size().columns
            self._write(f"\r\x1b[K{line[: columns - 1]}")
        elif time.monotonic() - self.printed >= BETWEEN_LINES:
            self.printed = time.monotonic()
            self._write(f"{line}\n")

    def _print(self, text: str) -> None:
        start = "\r\x1b[K" if self.drawn else ""
        self._write(f"{start}{self.name:9} {text}\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 20 min``."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _validation(kind: str, record: dict[str, Any]) -> str:
    parts = []
    for name, label in (("loss", "validation loss"), ("bleu", "BLEU")):
        if f"{kind}_{name}" in record:
            parts.append(f"{label} {float(record[f'{kind}_{name}']):.2f}")
    return ", ".join(parts)


def _limit(value: Any) -> float:
    return max(0.0, float(value)) if value is not None else 0.0


def _of(end: float) -> str:
    return f" of {end:,.0f}" if end else ""
