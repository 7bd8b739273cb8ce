"""Runs a step's command: its output kept in a log, and shown as one line or as it is."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

from ...environment import for_training
from .progress import Display
from .step_commands import printable

if sys.platform == "linux":
    _libc = ctypes.CDLL(None)

#: How much of the end of a log is looked at for the reason of a failure.
_END = 20_000


def execute(
    command: list[str],
    log: Path,
    environment: dict[str, str],
    lock: int | None = None,
    display: Display | None = None,
) -> None:
    """Run a command and keep what it prints in ``log``.

    Args:
        command: as a list of words
        log: the file, which is appended to
        environment: variables for the command, beside those of this process
        lock: a descriptor for the command to hold, see ``ea_fairseq.files.locked``
        display: what shows its progress; None to print the command and all its output

    Raises:
        ValueError: the command failed; with its last line, if that is an error's. Or the log
            cannot be written, a full disk say; the command is then asked to end.
    """
    if display is None:
        print(f"\n$ {printable(command, environment)}", flush=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    show = _print if display is None else display.feed
    terminal = display is None and sys.stdout.isatty()
    with Log(log) as kept:
        kept.write(f"$ {printable(command, environment)}\n".encode())
        reading, writing = _terminal() if terminal else os.pipe()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            # Warnings of hydra's about fairseq's use of it would bury what matters.
            env={"PYTHONWARNINGS": "ignore", **for_training(), **os.environ, **environment},
            pass_fds=[] if lock is None else [lock],
            preexec_fn=die_with_parent,
        )
        os.close(writing)
        try:
            _pass_on(reading, kept, show)
            code = child.wait()
        except BaseException:
            # Let it end in order and say so (a training may save first); if asked again, do not.
            child.terminate()
            try:
                _pass_on(reading, None if kept.failed else kept, show)
            finally:
                child.kill()
                child.wait()
                if display is not None:
                    display.close()
            raise
        finally:
            os.close(reading)
    if code:
        if display is not None:
            display.close()
        raise ValueError(
            f"{_reason(log)}the command ended with exit code {code}; its output is in {log}"
        )
    if display is not None:
        display.finish()


class Log:
    """A file that grows, whose errors name it in one line."""

    def __init__(self, path: Path):
        self.path = path
        self.failed = False
        self.file = open(path, "ab", buffering=0)

    def write(self, chunk: bytes) -> None:
        """Write all of it.

        Raises:
            ValueError: that was not possible.
        """
        rest = memoryview(chunk)
        try:
            while rest:
                rest = rest[self.file.write(rest) :]
        except OSError as error:
            self.failed = True
            raise ValueError(f"{self.path}: cannot be written: {error.strerror}") from error

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


def _reason(log: Path) -> str:
    """The last line of a log, if it is that of an error."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - _END))
        lines = file.read().decode(errors="replace").strip().splitlines() or [""]
    found = re.fullmatch(r"(?:\S+: )?(?:error|\w*Error): (.*)", lines[-1])
    return f"{found[1]}; " if found else ""


def _terminal() -> tuple[int, int]:
    """A pseudo-terminal: progress bars are drawn only where a program sees a terminal."""
    reading, writing = os.openpty()
    size = shutil.get_terminal_size()
    # Of no width, as a new one is, a bar would not be drawn either.
    termios.tcsetwinsize(writing, (size.lines or 24, size.columns or 80))
    return reading, writing


def _pass_on(reading: int, log: Log | None, show: Callable[[bytes], None]) -> None:
    """Show what a command prints, and keep it in its log, until it prints no more."""
    while True:
        try:
            chunk = os.read(reading, 65536)
        except OSError:  # how Linux reports that nobody writes to a pseudo-terminal any more
            return
        if not chunk:
            return
        if log is not None:
            log.write(chunk)
        show(chunk)


def _print(output: bytes) -> None:
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()


def die_with_parent() -> None:
    """Have the kernel end the child when the runner dies, even by SIGKILL (Linux only)."""
    if sys.platform == "linux":
        _libc.prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
