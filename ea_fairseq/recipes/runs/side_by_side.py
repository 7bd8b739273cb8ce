"""Several commands at once, each with a log of its own, told apart in one output."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..says.recipe import SECTIONS
from .execution import die_with_parent

#: What the runner says of a step, and why it ends.
_PROGRESS = re.compile(rf"(prepare|{'|'.join(SECTIONS)}) +\S|ea-recipe: error: ")


@dataclass(frozen=True)
class Job:
    """A command, what it is called, and where all that it prints is kept."""

    name: str
    command: list[str]
    log: Path


def run_side_by_side(
    jobs: Sequence[Job], at_once: int, show: Callable[[Job, str], None]
) -> dict[str, int]:
    """Run commands, some at once; one that fails does not stop the others.

    Args:
        jobs: the commands, in the order in which they begin
        at_once: how many run side by side
        show: called with every line that a command prints, without its end

    Returns:
        the exit code of each by its name, in the order in which they ended

    Interrupted, it asks all of them to end (SIGTERM) and waits; interrupted again, it kills them.
    """
    waiting = list(jobs)
    codes: dict[str, int] = {}
    with selectors.DefaultSelector() as selector, _ending(selector):
        while waiting or selector.get_map():
            while waiting and len(selector.get_map()) < at_once:
                running = _Running.start(waiting.pop(0))
                selector.register(running.output, selectors.EVENT_READ, running)
            _read_some(selector, show, codes)
    return codes


def progress(line: str) -> bool:
    """Whether a line that ea-recipe prints tells how far it is; its report comes later."""
    return bool(_PROGRESS.match(line))


@dataclass
class _Running:
    """A command that runs, and the beginning of a line whose end it has not printed yet."""

    job: Job
    process: subprocess.Popen
    log: BinaryIO
    begun: bytes = b""

    @classmethod
    def start(cls, job: Job) -> _Running:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        log = open(job.log, "ab")
        process = subprocess.Popen(
            job.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches this process alone, which asks its children once to end.
            process_group=0,
            preexec_fn=die_with_parent,
        )
        return cls(job, process, log)

    @property
    def output(self) -> BinaryIO:
        """Where what it prints can be read."""
        assert self.process.stdout is not None
        return self.process.stdout

    def read(self) -> list[bytes] | None:
        """Keep what it printed; the lines that are whole by now, or None once it prints no more."""
        chunk = os.read(self.output.fileno(), 65536)
        self.log.write(chunk)
        self.log.flush()
        *lines, self.begun = re.split(rb"[\r\n]+", self.begun + chunk)
        return lines if chunk else None

    def end(self) -> int:
        """Its exit code, once it prints no more."""
        self.output.close()
        self.log.close()
        return self.process.wait()


def _read_some(
    selector: selectors.BaseSelector, show: Callable[[Job, str], None], codes: dict[str, int]
) -> None:
    """Read what commands have printed, waiting until one has; note those that have ended."""
    for key, _ in selector.select():
        running: _Running = key.data
        lines = running.read()
        if lines is None:
            selector.unregister(running.output)
            lines = [running.begun]
            codes[running.job.name] = running.end()
        for line in lines:
            if line:
                show(running.job, line.decode(errors="replace"))


@contextlib.contextmanager
def _ending(selector: selectors.BaseSelector):
    """Leave nothing running behind the block, however it is left."""
    try:
        yield
    except BaseException:
        left = [key.data for key in selector.get_map().values()]
        for running in left:
            running.process.terminate()
        try:
            while selector.get_map():
                _read_some(selector, lambda job, line: None, {})
        finally:
            for running in left:
                running.process.kill()
                running.process.wait()
        raise
