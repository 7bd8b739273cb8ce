"""Variables that programs of this project start with, where the user did not choose otherwise.

Libraries read them when they are loaded: before torch is imported, or before a command starts.
"""

import os
import sys
from pathlib import Path

#: How long a thread of torch's spins before it gives its core away, in turns of libgomp's loop and
#: in milliseconds for Intel's library. By default many times as long, while those it waits for have
#: no core to finish on.
WAITING = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}
#: Memory that a training frees goes to its next update, not back to the system (glibc).
MEMORY = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "2147483648"}

_COMMANDS = ("ea-recipe", "ea-translate", "ea-generate")
# Beside the package in a clone, inside of it where a wheel was installed.
_SCRIPTS = [folder / "scripts" for folder in Path(__file__).resolve().parents[:2]]


def set_waiting() -> None:
    """Has torch's threads, here and in commands that are started, wait by WAITING."""
    if "OMP_WAIT_POLICY" not in os.environ and not WAITING.keys() & os.environ.keys():
        os.environ.update(WAITING)


def for_training() -> dict[str, str]:
    """MEMORY, for a command; nothing where the user has settings of malloc."""
    chosen = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    return {} if chosen else dict(MEMORY)


def is_own_program() -> bool:
    """Whether this process is one of this project's commands or scripts, none of fairseq's and
    nobody else's program."""
    program = Path(sys.argv[0] if sys.argv else "").absolute()
    return program.name in _COMMANDS or program.resolve().parent in _SCRIPTS
