"""One step of a run: stamped when done, with its settings, so that it is never done twice."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...files import read_json, write_json
from ..results.differences import differences
from .changed_settings import comparable


@dataclass(frozen=True)
class Step:
    """A step of a run and the settings that its output depends on.

    ``settings`` includes those of the steps before it, so a change there shows here.
    """

    name: str
    folder: Path
    settings: dict[str, Any]

    @property
    def stamp(self) -> Path:
        """Exists once the step is done, and says with which settings."""
        return self.folder / "steps" / f"{self.name}.json"

    @property
    def started(self) -> Path:
        """Exists from the step's first start on, and says with which settings."""
        return self.folder / "steps" / f"{self.name}.started.json"

    @property
    def log(self) -> Path:
        """What the step printed, over all attempts."""
        return self.folder / "logs" / f"{self.name}.log"

    def is_done(self) -> bool:
        """Whether the step was finished with exactly these settings."""
        return self.stamp.exists() and not self._differences(self.stamp)

    def changes(self) -> dict[str, str]:
        """What differs from the settings that the step was last started with."""
        if not self.started.exists():
            return {}
        return self._differences(self.started)

    def _differences(self, path: Path) -> dict[str, str]:
        return differences(comparable(read_json(path)["settings"]), comparable(self.settings))

    def start(self, goes_on: bool = False, **notes: Any) -> None:
        """Note the settings and the time that earlier attempts took.

        Args:
            goes_on: earlier attempts count though the settings changed
            notes: what `noted` gives from now on
        """
        seconds = 0.0
        # What was finished and is done again takes its time anew.
        goes_on = goes_on or (not self.stamp.exists() and not self.changes())
        if self.started.exists() and goes_on:
            before = read_json(self.started)
            # A killed attempt leaves no word of when it ended, but its log was last written then.
            last = self.log.stat().st_mtime if self.log.exists() else before["began"]
            seconds = before["earlier_seconds"] + max(0.0, last - before["began"])
        self.stamp.unlink(missing_ok=True)
        content = {"settings": self.settings, "began": time.time(), "earlier_seconds": seconds}
        content |= {name: note for name, note in notes.items() if note}
        # For this attempt's own time, which a clock that is set meanwhile does not change.
        write_json(self.started, content | {"monotonic": time.monotonic()})

    def finish(self, facts: dict[str, Any]) -> None:
        """Stamp the step as done; ``facts`` about how go into the stamp."""
        started = read_json(self.started)
        seconds = started["earlier_seconds"] + time.monotonic() - started["monotonic"]
        write_json(self.stamp, {"settings": self.settings, "seconds": round(seconds, 1), **facts})

    def facts(self) -> dict[str, Any]:
        """What the stamp says; nothing where there is none."""
        return read_json(self.stamp) if self.stamp.exists() else {}

    def noted(self, name: str) -> Any:
        """A fact of the last attempt that ended, or what the last one began with; None without."""
        began = read_json(self.started) if self.started.exists() else {}
        return self.facts().get(name) or began.get(name)

    def seconds(self) -> float | None:
        """Time that the step took, all attempts together."""
        return self.facts().get("seconds")
