"""What programs have around their work: help, signals, errors in one line, the exit status."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Sequence

from ..errors import CommandParser, program_name


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
        the exit code: 0 when all is done, 1 after an error, 130 after Ctrl-C or SIGTERM
    """
    args = parser.parse_args(argv)
    if threading.current_thread() is threading.main_thread():
        # As Ctrl-C: files that are being written are left whole.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return work(args) or 0
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
