"""Runs one step of a recipe: shown while it runs, logged, stamped when done, never run twice."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..files import read_json, write_json
from .commands import printable
from .differences import differences
from .resuming import comparable

if sys.platform == "linux":
    _libc = ctypes.CDLL(None)


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

    def start(self, goes_on: bool = False) -> None:
        """Note the settings and the time that earlier attempts took.

        Args:
            goes_on: earlier attempts count though the settings changed
        """
        seconds = 0.0
        if self.started.exists() and (goes_on or not self.changes()):
            before = read_json(self.started)
            # A killed attempt leaves no word of when it ended, but its log was last written then.
            last = self.log.stat().st_mtime if self.log.exists() else before["began"]
            seconds = before["earlier_seconds"] + max(0.0, last - before["began"])
        self.stamp.unlink(missing_ok=True)
        write_json(
            self.started,
            {"settings": self.settings, "began": time.time(), "earlier_seconds": seconds},
        )

    def finish(self, facts: dict[str, Any]) -> None:
        """Stamp the step as done; ``facts`` about how go into the stamp."""
        started = read_json(self.started)
        seconds = started["earlier_seconds"] + time.time() - started["began"]
        write_json(self.stamp, {"settings": self.settings, "seconds": round(seconds, 1), **facts})

    def seconds(self) -> float | None:
        """Time that the step took, all attempts together."""
        return read_json(self.stamp)["seconds"] if self.stamp.exists() else None


def execute(
    command: list[str], log: Path, environment: dict[str, str], lock: int | None = None
) -> None:
    """Print a command, run it, pass on what it prints and keep that in ``log`` as well.

    ``lock`` is a descriptor for the command to hold, see ``ea_fairseq.files.locked``.

    Raises:
        ValueError: the command failed.
    """
    print(f"\n$ {printable(command, environment)}", flush=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    reading, writing = _terminal() if sys.stdout.isatty() else os.pipe()
    with open(log, "ab") as kept:
        kept.write(f"$ {printable(command, environment)}\n".encode())
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            # Warnings of hydra's about fairseq's use of it would bury what matters.
            env={"PYTHONWARNINGS": "ignore", **os.environ, **environment},
            pass_fds=[] if lock is None else [lock],
            preexec_fn=_die_with_parent,
        )
        os.close(writing)
        try:
            _pass_on(reading, kept)
            code = child.wait()
        except BaseException:
            # Let it end in order and say so (a training may save first); if asked again, do not.
            child.terminate()
            try:
                _pass_on(reading, kept)
            finally:
                child.kill()
                child.wait()
            raise
        finally:
            os.close(reading)
    if code:
        raise ValueError(f"{log}: the command ended with exit code {code}; its output is in there")


def _terminal() -> tuple[int, int]:
    """A pseudo-terminal: progress bars are drawn only where a program sees a terminal."""
    reading, writing = os.openpty()
    size = shutil.get_terminal_size()
    # Of no width, as a new one is, a bar would not be drawn either.
    termios.tcsetwinsize(writing, (size.lines or 24, size.columns or 80))
    return reading, writing


def _pass_on(reading: int, log: BinaryIO) -> None:
    """Copy what a command prints to our output and to its log until it prints no more."""
    while True:
        try:
            chunk = os.read(reading, 65536)
        except OSError:  # how Linux reports that nobody writes to a pseudo-terminal any more
            return
        if not chunk:
            return
        log.write(chunk)
        log.flush()
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def _die_with_parent() -> None:
    """Have the kernel end the child when the runner dies, even by SIGKILL (Linux only)."""
    if sys.platform == "linux":
        _libc.prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
