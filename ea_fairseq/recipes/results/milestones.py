"""Epochs, updates and core hours until a training reached a validation perplexity."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .curves import read_curves


@dataclass(frozen=True)
class Milestone:
    """A validation, and what training had cost by then, validations included.

    Without core hours where the number of threads is not known.
    """

    perplexity: float
    epoch: int
    updates: int
    core_hours: float | None


@dataclass(frozen=True)
class Progress:
    """The validations of one training, in order, and whether more are to come.

    With the reason for which core hours are not known, if they are not.
    """

    validations: list[Milestone]
    ended: bool
    no_hours: str

    @property
    def best(self) -> Milestone:
        """The first one with the lowest perplexity."""
        return min(self.validations, key=lambda validation: validation.perplexity)

    def first_at_most(self, perplexity: float) -> Milestone | None:
        """The first one as good as that; None where none is."""
        good = (v for v in self.validations if v.perplexity <= perplexity)
        return next(good, None)


def read_progress(run: Path) -> Progress:
    """The validations that a run's training logged.

    Raises:
        ValueError: no log, or no perplexities in it.
    """
    log = run / "logs" / "train.log"
    if not log.exists():
        raise ValueError(f"{run}: no run with a logs/train.log in it")
    curves = read_curves(log)
    updates, perplexities = curves.curve("valid", "ppl")
    if not updates:
        raise ValueError(f"{log}: no perplexities of the validation set in it")
    threads = _threads(log)
    known = len(threads) == 1 and "not given" not in threads
    hours = [m / 60 * int(threads[0]) if known else None for m in curves.minutes(updates)]
    logged = dict(zip(*curves.curve("valid", "epoch"), strict=True))
    epochs = [int(logged[update]) for update in updates]
    found = zip(perplexities, epochs, updates, hours, strict=True)
    ended = not (run / "steps").exists() or (run / "steps" / "train.json").exists()
    listed = ", ".join(threads) or "not logged"
    no_hours = f"{log}: they need one number of threads (--threads); it is {listed}"
    return Progress([Milestone(*values) for values in found], ended, "" if known else no_hours)


def _threads(log: Path) -> list[str]:
    """Threads of the training, from the commands that the runner wrote into its log."""
    text = log.read_text(encoding="utf-8", errors="replace")
    commands = re.findall(r"^\$ (.*fairseq_cli\.train.*)", text, re.MULTILINE)
    given = (re.search(r"\bOMP_NUM_THREADS=(\d{1,9})\b", command) for command in commands)
    return sorted({match[1] if match else "not given" for match in given})
