"""What a program does around its work: signals, errors in one line, the exit status."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable


def run_program(work: Callable[[], None], program: str) -> int:
    """Does the work; what goes wrong is told on standard error.

    Args:
        work: of the program
        program: name for messages

    Returns:
        the exit code: 0 when all is done, 1 after an error, 130 after Ctrl-C or SIGTERM
    """
    if threading.current_thread() is threading.main_thread():
        # As Ctrl-C: files that are being written are left whole.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        work()
    except (ValueError, OSError) as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
