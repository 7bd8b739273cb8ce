"""An end for tests of what once took for ever."""

import contextlib
import signal


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
