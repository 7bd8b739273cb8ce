"""Reads the lines of a file or of standard input, whatever bytes they contain."""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Iterator
from typing import IO

from ..errors import UserError
from ..files import check_is_text

logger = logging.getLogger(__name__)


def read_lines(path: str, broken: list[int] | None = None) -> Iterator[str]:
    """Yield the lines of a file, or of standard input for ``-``, stripped of white space.

    A line ends at a line feed and nowhere else, so that lines are counted as everybody counts them.
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
