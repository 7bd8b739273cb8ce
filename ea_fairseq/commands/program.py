"""What programs have around their work: help, signals, errors in one line, the exit status."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType

from ..errors import CommandParser, program_name
from ..files import silence_terminal


def described(description: str, script: str) -> CommandParser:
    """A parser that shows a program's description as it is written.

    Args:
        description: of the program
        script: its name in messages, where it does not run as a console command
    """
    return CommandParser(
        prog=program_name(script),
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def end_in_order() -> None:
    """Have SIGTERM, and a terminal that is closed, do what Ctrl-C does.

    What runs ends through the code that leaves its files whole, and has its trainings save. Outside
    of the main thread, where no signal can be handled, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup ignores it
        signal.signal(signal.SIGHUP, _hung_up)


def _hung_up(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # the shell and the kernel may both send it
    silence_terminal()
    raise KeyboardInterrupt


def run_program(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    work: Callable[[argparse.Namespace], int | None],
) -> int:
    """Does what a command line asks for; what goes wrong is told on standard error.

    Args:
        parser: of the command line
        argv: the command line; None for this process's
        work: does it; may return an exit code

    Returns:
        the exit code: 0 when all is done, 1 after an error, 130 after Ctrl-C, SIGTERM or SIGHUP
    """
    args = parser.parse_args(argv)
    end_in_order()
    try:
        return work(args) or 0
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
