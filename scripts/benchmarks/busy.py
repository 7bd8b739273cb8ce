"""Other work beside a measurement: processes that use a core each, as much as they get."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

#: Ends when the measurement does, even one that is killed: its standard input is closed then.
_PROGRAM = """
import sys, threading, os
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True: pass
"""


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Keeps so many processes busy inside the context."""
    command = [sys.executable, "-c", _PROGRAM]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def fair_share(threads: int, count: int) -> float:
    """The least time that work of some threads takes beside so many busy processes, in units of
    what it takes alone: every thread has its equal share of the cores."""
    cores = len(os.sched_getaffinity(0))
    return max(1.0, (threads + count) / cores) / max(1.0, threads / cores)
