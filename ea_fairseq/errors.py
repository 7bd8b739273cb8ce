"""Errors meant for the person at the command line: one line that says what is wrong and where.

A mistake in an option or a file is no reason for a screen of Python. `UserError` marks such
mistakes; in a fairseq command, `install` makes Python print them as ``error: <message>``.
Every other exception keeps its traceback, and with ``EA_FAIRSEQ_TRACEBACK=1`` these do too.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import os
import re
import sys
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import NoReturn

# What fairseq itself raises for a path in the command that cannot be used.
_PATH_ERRORS = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
# Beside the package in a clone, inside of it where a wheel was installed.
_SCRIPTS = [folder / "scripts" for folder in Path(__file__).resolve().parents[:2]]


#: What is meant by an architecture or a variant that nobody has registered.
REMEDY = "if it is your own, name its folder with --user-dir, or import it before"


class UserError(ValueError):
    """Bad input. The message is one line naming the option or file, its value and the remedy."""


def check_package(name: str) -> None:
    """Refuses to begin what fails at its end for want of a package.

    Raises:
        UserError: naming the package, and the extra that has it.
    """
    if importlib.util.find_spec(name) is None:
        raise UserError(f"{name} is not installed: pip install 'ea_fairseq[recipes]'")


def perhaps_meant(name: str, known: Collection[str], most: int = 1) -> str:
    """For the end of a message about an unknown name: ": perhaps you meant ONE or OTHER" with the
    names that are like it, or nothing where none is."""
    near = difflib.get_close_matches(name, sorted(known), n=most)
    return f": perhaps you meant {' or '.join(near)}" if near else ""


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage, with the option that was meant."""

    def error(self, message: str) -> NoReturn:
        """Prints the message and ends the program with argparse's exit code."""
        options = [name for name in self._option_string_actions if name.startswith("--")]
        if unknown := re.match(r"unrecognized arguments: (--[^\s=]+)", message):
            message += perhaps_meant(unknown[1], options)
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def one_line(error: BaseException) -> str | None:
    """The message to print instead of a traceback, or None where the traceback must stay."""
    if isinstance(error, _PATH_ERRORS) and error.filename is not None:
        return f"{error.strerror}: {error.filename}"
    of_a_missing_model = type(error) is OSError and error.errno is None  # fairseq's own
    if isinstance(error, (UserError, *_PATH_ERRORS)) or of_a_missing_model:
        return " ".join(str(error).split())
    # A worker started by fairseq hands its exception over as the text of its traceback.
    if type(error).__name__ == "ProcessRaisedException":
        _, found, message = str(error).rstrip().rpartition(f"{__name__}.UserError: ")
        return " ".join(message.split()) if found else None
    return None


def program_name(script: str) -> str:
    """What messages call the program that runs: the console command, or else the script."""
    running = Path(sys.argv[0] if sys.argv else "").name
    return running if running.startswith("ea-") else script


def running_a_command() -> bool:
    """True in fairseq's commands and in this project's scripts, False in anybody else's program."""
    program = Path(sys.argv[0] if sys.argv else "").absolute()
    return (
        program.name.startswith(("fairseq-", "ea-"))
        or program.parent.name == "fairseq_cli"
        or program.resolve().parent in _SCRIPTS
    )


def install() -> None:
    """Let uncaught errors in a command end in one line. Calling it again changes nothing."""
    previous = sys.excepthook
    if getattr(previous, "_ea_fairseq", False):
        return

    def excepthook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        wanted = os.environ.get("EA_FAIRSEQ_TRACEBACK", "0") in ("", "0") and running_a_command()
        message = one_line(error) if wanted else None
        if message is None:
            previous(kind, error, traceback)
        else:
            print(f"error: {message}", file=sys.stderr)

    excepthook._ea_fairseq = True  # type: ignore[attr-defined]
    sys.excepthook = excepthook
