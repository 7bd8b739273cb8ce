"""Tests that wait: for a condition, for a process's end, for what once took for ever."""

import contextlib
import signal
import time


@contextlib.contextmanager
def in_time(seconds):
    """Ends what takes longer by an error."""

    def end(*_):
        raise TimeoutError("took too long")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def wait_for(condition, seconds=600):
    """Until it is true, for so long at most."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def running(pid):
    """Whether a process runs; one that ended may wait to be collected."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
