"""Programs of ours in forks of this process, which has imported what they need already."""

import io
import os
import signal
import sys
import time

import torch


class Fork:
    """A program's `main` as a process with pipes, as subprocess.Popen gives them.

    `stdin` is a descriptor to read from (None: a pipe, whose other end is `self.stdin`); `closed`
    leaves it without standard output.
    """

    def __init__(self, main, *arguments, stdin=None, closed=False):
        reading, self.stdin = (stdin, None) if stdin is not None else _pipe("wb")
        out, err = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become(main, [str(argument) for argument in arguments], reading, out, err, closed)
        for descriptor in (reading, out[1], err[1]):
            os.close(descriptor)
        self.stdout, self.stderr = open(out[0], "rb"), open(err[0], "rb")

    def terminate(self):
        os.kill(self.pid, signal.SIGTERM)

    def wait(self, seconds=900):
        """Its exit status; killed where it does not end."""
        if self.stdin is not None:
            self.stdin.close()
        end = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.005)


def _pipe(mode):
    reading, writing = os.pipe()
    return reading, open(writing, mode)


def _become(main, arguments, reading, out, err, closed):
    status = 1
    try:
        for number, descriptor in enumerate((reading, out[1], err[1])):
            os.dup2(descriptor, number)
        os.closerange(3, 256)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        torch.set_num_threads(1)
        sys.stdin = io.TextIOWrapper(open(0, "rb"), encoding="utf-8")
        sys.stdout = io.TextIOWrapper(open(1, "wb", 0), encoding="utf-8", write_through=True)
        sys.stderr = io.TextIOWrapper(open(2, "wb", 0), encoding="utf-8", write_through=True)
        if closed:
            sys.stdout = None  # which closes it
        status = main(arguments)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status or 0)
