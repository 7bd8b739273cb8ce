"""What line-by-line commands share: files, standard streams, device, error messages."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from ..files import (
    check_folder_of,
    check_is_text,
    check_output,
    is_stream,
    named_error,
    new_file,
    writing_mode,
)
from ..user_dir import add_user_dir
from .program import end_in_order

#: Lines that are read, sorted by length and answered together where nobody waits for an answer.
BUFFER = 2000
_PROBLEMS_SHOWN = 20

#: Lines with problems, numbered from 1, and whether any of them has no answer.
Outcome = tuple[list[tuple[int, str]], bool]


def add_files(parser: argparse.ArgumentParser, verb: str) -> None:
    """Options of where lines come from and go to; ``verb`` says what is done to them."""
    files = parser.add_argument_group("files")
    files.add_argument(
        "--input", type=Path, metavar="FILE", help="text, or .gz (default: standard input)"
    )
    files.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="text, or .gz; there when complete; FILE.part of an interrupted one (default: "
        "standard output)",
    )
    files.add_argument(
        "--buffer-size",
        type=int,
        metavar="N",
        help=f"{verb} N lines at a time (default: {BUFFER}; 1 from a terminal)",
    )


def add_ensemble(group: argparse._ArgumentGroup) -> None:
    """The option of more models than one."""
    group.add_argument(
        "--ensemble",
        type=Path,
        nargs="+",
        default=[],
        metavar="MODEL",
        help="more models that decide together with the first",
    )


def add_machine(parser: argparse.ArgumentParser, tokens: str, dtypes: dict[str, str]) -> None:
    """Options of where to compute.

    Args:
        parser: of the command
        tokens: which of them --max-tokens counts
        dtypes: types of numbers, the default first, and what is to be said of each
    """
    machine = parser.add_argument_group("machine")
    machine.add_argument("--threads", type=int, metavar="N", help="(default: torch's choice)")
    machine.add_argument("--device", default="cpu", help="torch's name of it (default: cpu)")
    machine.add_argument(
        "--dtype",
        choices=list(dtypes),
        default=next(iter(dtypes)),
        help="; ".join(["of numbers (default: %(default)s)", *filter(None, dtypes.values())]),
    )
    machine.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help=f"{tokens} at once (default: what is fast)",
    )
    add_user_dir(machine)


def run(answer: Callable[[], Outcome], program: str) -> int:
    """Answers lines; what goes wrong is told on standard error.

    Args:
        answer: does it
        program: name for messages

    Returns:
        the exit code: 0 when every line has its answer
    """
    logging.basicConfig(format=f"{program}: %(message)s", level=logging.WARNING)
    end_in_order()  # what was written until then is kept
    try:
        problems, unanswered = answer()
    except (ValueError, OSError) as error:
        reason: object = error
        if isinstance(error, OSError) and error.filename is not None:
            reason = f"{error.strerror}: {error.filename}"
        if isinstance(error, BrokenPipeError):  # whoever reads our output has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        else:
            print(f"{program}: error: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        if interrupt.args:
            print(f"{program}: {interrupt}", file=sys.stderr)
        return 130
    for number, problem in problems[:_PROBLEMS_SHOWN]:
        print(f"{program}: line {number}: {problem}", file=sys.stderr)
    if len(problems) > _PROBLEMS_SHOWN:
        numbers = ", ".join(str(number) for number, _ in problems[_PROBLEMS_SHOWN:])
        print(f"{program}: likewise lines {numbers}", file=sys.stderr)
    return 1 if unanswered else 0


def check_files(args: argparse.Namespace) -> bool:
    """Looks at the options of `add_files` before anything is loaded.

    Returns:
        whether somebody types the lines

    Raises:
        ValueError: naming what cannot be used
    """
    if args.buffer_size is not None and args.buffer_size < 1:
        raise ValueError(f"--buffer-size {args.buffer_size}: give 1 or more")
    if args.input is not None and not args.input.exists():
        raise ValueError(f"{args.input}: no such file")
    if args.output is not None:
        check_folder_of(args.output, "--output")
        for path in (args.output, part_of(args.output)):
            check_output(path, "--output", [args.input or Path("/dev/stdin")])
    if args.input is not None and args.input.is_file() and args.input.suffix != ".gz":
        with open(args.input, "rb") as file:
            check_is_text(file.read(10), str(args.input))
    return args.input is None and sys.stdin is not None and sys.stdin.isatty()


def buffer_size(args: argparse.Namespace, talking: bool) -> int:
    """How many lines are answered at a time."""
    return args.buffer_size or (1 if talking else BUFFER)


def lines(path: Path | None, talking: bool, broken: list[int]) -> Iterator[str]:
    """The lines of a file or of standard input; who types them is asked for each.

    Args:
        path: the file, which may be compressed by gzip; None for standard input
        talking: whether somebody types
        broken: gets the numbers of the lines that are not UTF-8
    """
    from ..text.lines import read_lines

    given = read_lines("-" if path is None else str(path), broken)
    while True:
        if talking:
            print("> ", end="", file=sys.stderr, flush=True)
        line = next(given, None)
        if line is None:
            break
        yield line
    if talking:
        print(file=sys.stderr)


def write(
    path: Path | None,
    answers: Iterable[tuple[list[str], str | None, bool]],
    broken: Sequence[int] = (),
) -> Outcome:
    """Writes the answers to lines as they come.

    Args:
        path: the file; None for standard output
        answers: of each line: the lines to write, its problem or None, and whether it is answered
        broken: what `lines` has found: a line that is not UTF-8 counts as not answered
    """
    problems, unanswered = [], False
    with _output(path) as output:
        for number, (written, problem, is_answered) in enumerate(answers, start=1):
            for line in written:
                output.write(f"{line}\n")
            if not _is_compressed(path):  # a block of its own for every line would be large
                output.flush()
            if problem is not None:
                problems.append((number, problem))
                unanswered |= not is_answered
    if broken:
        others = f", nor are {len(broken) - 1:,} more lines" if len(broken) > 1 else ""
        problem = f"is not UTF-8{others} (U+FFFD stands for what is not): make UTF-8 of the text"
        problems.append((broken[0], f"{problem} first, as by iconv -f LATIN1 -t UTF-8"))
    return sorted(problems), unanswered or bool(broken)


def part_of(path: Path) -> Path:
    """Where lines stay that were written before an interruption."""
    path = path.resolve()
    return path.with_name(f"{path.name}.part")


def _is_compressed(path: Path | None) -> bool:
    return path is not None and path.suffix == ".gz"


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that is there when it is complete; UTF-8 whatever the locale.

    Raises:
        OSError: naming the file
        KeyboardInterrupt: either says where the lines are that were written before it
    """
    if path is None:
        if sys.stdout is None:
            raise ValueError("standard output is closed: give --output FILE")
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        yield sys.stdout
        return
    try:
        with new_file(path) as temporary:
            try:
                opened = gzip.open if _is_compressed(path) else open
                mode = f"{writing_mode(temporary)}t"
                with opened(temporary, mode, encoding="utf-8", newline="\n") as file:
                    yield file
            except (KeyboardInterrupt, OSError) as stop:  # the latter: a disk that is full
                if is_stream(path) or not (temporary.exists() and temporary.stat().st_size):
                    raise
                part = part_of(path)
                os.replace(temporary, part)
                kept = f"{part} has what was written"
                if isinstance(stop, KeyboardInterrupt):
                    raise KeyboardInterrupt(f"interrupted: {kept}") from None
                raise named_error(stop, f"{stop.filename or path} ({kept})") from None
    except OSError as error:
        raise error if error.filename is not None else named_error(error, path) from None
