"""``fairseq-interactive`` answers every line, whatever bytes it contains.

A line ends at a line feed and nowhere else, so that lines are counted as everybody counts them.

Replaced in fairseq's ``interactive``:
- ``buffered_read``: a byte that is no UTF-8 ended the program, a carriage return inside a line made
  two lines of it, standard input was read in the encoding of the environment. Now each line is
  decoded by itself: U+FFFD, which no dictionary has, stands for what is no UTF-8, and a warning
  names the line. Answers are written as UTF-8, and at once, so that another program can wait for
  each of them.
- ``make_batches``: a line with more tokens than the model can read, or than ``--max-tokens``, ended
  the program; with ``--skip-invalid-size-inputs-valid-test`` its answer was missing. So did a line
  whose ``--constraints`` are more tokens than its translation may have. Now the answer is an empty
  line, and an error names the line and both numbers. fairseq's own symbols in a line are unknown
  words, and a warning names them (see `control_words`).
- ``utils.import_user_module``: replaces the two where this module was imported before that command.
"""

from __future__ import annotations

import functools
import gzip
import io
import logging
import math
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from fairseq import utils

from ...errors import UserError
from ...files import check_is_text
from ...text import control_words
from .length_limits import limit_of

logger = logging.getLogger(__name__)


class Lines(list[str]):
    """Lines of the input that are translated together.

    Args:
        lines: stripped lines.
        first: the number of the first of them in the input, from 1.
    """

    def __init__(self, lines: list[str], first: int):
        super().__init__(lines)
        self.first = first


def read_lines(path: str, broken: list[int] | None = None) -> Iterator[str]:
    """Yield the lines of a file, or of standard input for ``-``, stripped of white space.

    A byte order mark at the start is no part of the first line.

    Args:
        path: the file; it is uncompressed where its name ends in .gz
        broken: gets the numbers of lines that are not UTF-8, in the place of a warning each

    Raises:
        OSError: the file cannot be read.
        UserError: it is compressed in another way, or UTF-16, or a broken gzip file.
    """
    with _open(path) as file:
        for number, line in enumerate(_raw_lines(file, path), start=1):
            if number == 1:
                check_is_text(line, "standard input" if path == "-" else path)
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                if broken is None:
                    logger.warning(
                        "line %d of the input is not valid UTF-8 (%s); U+FFFD stands for what is "
                        "not",
                        number,
                        error,
                    )
                else:
                    broken.append(number)
                text = line.decode(errors="replace")
            yield (text.removeprefix("\ufeff") if number == 1 else text).strip()


def _open(path: str) -> IO[bytes]:
    if str(path).endswith(".gz"):
        return gzip.open(path)
    return open(0 if path == "-" else path, "rb", closefd=path != "-")


def _raw_lines(file: IO[bytes], path: str) -> Iterator[bytes]:
    try:
        yield from iter(file.readline, b"")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: broken gzip file ({error})") from error


def buffered_read(path: str, buffer_size: int) -> Iterator[Lines]:
    """Yield `buffer_size` lines at a time; of the last lines as many as there are."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)
    first, buffer = 1, []
    for line in read_lines(path):
        buffer.append(line)
        if len(buffer) == buffer_size:
            yield Lines(buffer, first)
            first, buffer = first + buffer_size, []
    if buffer:
        yield Lines(buffer, first)


def _make_batches(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make_batches(
        lines: list[str], cfg: Any, task: Any, max_positions: Any, encode_fn: Callable[[str], str]
    ) -> Any:
        limits = [("--max-tokens", cfg.dataset.max_tokens)]
        if max_positions is not None:
            most = max_positions[0] if isinstance(max_positions, tuple) else max_positions
            limits.append(("the model", most))
        what, most = min(
            ((what, most) for what, most in limits if most is not None),
            key=lambda limit: limit[1],
            default=("", math.inf),
        )
        search = cfg.generation
        sources = [line.split("\t")[0] if search.constraints else line for line in lines]
        pieces = functools.cache(encode_fn)  # the original encodes the lines again

        def encoded(text: str) -> str:
            return control_words.as_unknown(pieces(text))

        first = getattr(lines, "first", 1)
        for number, source in enumerate(sources, start=first):
            if words := control_words.found_in(pieces(source)):
                logger.warning("line %d of the input: %s", number, control_words.message(words))
        _, lengths = task.get_interactive_tokens_and_lengths(sources, encoded)
        for row, length in enumerate(lengths):
            problem = ""
            if length > most:
                problem = f"{length} tokens, {what} takes {most}; its translation is left empty"
            elif search.constraints:
                wanted = sum(len(encoded(text).split()) for text in lines[row].split("\t")[1:])
                longest = max_positions[1] - 1 if isinstance(max_positions, tuple) else math.inf
                room = limit_of(length, search.max_len_a, search.max_len_b, search.min_len, longest)
                if wanted > room:
                    problem = (
                        f"constraints of {wanted} tokens, its translation may have {room} "
                        "(--max-len-b); it is left empty"
                    )
            if problem:
                logger.error("line %d of the input has %s", first + row, problem)
                lines[row] = ""
        return original(lines, cfg, task, max_positions, encoded)

    return make_batches


def _replace_in_interactive() -> None:
    for name in ("__main__", "fairseq_cli.interactive"):  # the first by ``python -m``
        module = sys.modules.get(name)
        if getattr(module, "buffered_read", buffered_read) is not buffered_read:
            module.buffered_read = buffered_read
            module.make_batches = _make_batches(module.make_batches)


def _import_user_module(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def import_user_module(args: Any) -> None:
        original(args)
        _replace_in_interactive()

    return import_user_module


def install() -> None:
    """Make ``fairseq-interactive`` read and batch lines this way."""
    _replace_in_interactive()
    utils.import_user_module = _import_user_module(utils.import_user_module)
