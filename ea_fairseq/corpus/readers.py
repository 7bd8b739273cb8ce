"""File formats: from one pair of files to pairs of sentences, or from one file to its lines.

Lines end at line feeds only. Python's text mode would also break lines at carriage returns, and
str.splitlines() at U+2028 and others: one such character would shift all later pairs.
"""

import contextlib
import gzip
import html
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO

from ..files import check_is_text
from .inputs import Source

Pair = tuple[str, ...]  # source and target; of a language model's text, one line alone

_DROPPED = ("<url>", "<talkid>", "<keywords>", "<speaker>", "<reviewer", "<translator")
_TITLES = re.compile("</?(?:title|description)>")
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|#[0-9]+|#x[0-9a-fA-F]+);")
_SEGMENT = re.compile(r"<seg\b[^>]*?(?:/>|>(.*?)</seg>)", re.DOTALL)
_NUMBERS = [str(byte) for byte in range(256)]


def read_pairs(*sources: Source) -> Iterator[Pair]:
    """Yields the pairs of sentences of two files, or the lines of one, as they stand there.

    Raises:
        ValueError: broken UTF-8 or compression, or a differing number of sentences.
    """
    sides = [FORMATS[source.format](source) for source in sources]
    counts = [0 for _ in sides]
    while True:
        lines = [next(side, None) for side in sides]
        counts = [n + (line is not None) for n, line in zip(counts, lines, strict=True)]
        if None in lines:
            break
        yield tuple(lines)
    counts = [n + sum(1 for _ in side) for n, side in zip(counts, sides, strict=True)]
    if len(set(counts)) > 1:
        source, target = sources
        raise ValueError(
            f"{source.label} has {counts[0]} sentences, {target.label} has {counts[1]}: "
            "the two must be parallel"
        )


@contextlib.contextmanager
def _opened(source: Source) -> Iterator[IO[bytes]]:
    opener = gzip.open if source.file.suffix == ".gz" else open
    try:
        with opener(source.file, "rb") as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{source.label}: broken gzip file ({error})") from error


def read_lines(source: Source) -> Iterator[str]:
    """One sentence a line, gzipped where the name ends in .gz."""
    number = 0
    try:
        with _opened(source) as file:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    check_is_text(line, source.label)
                text = line.removesuffix(b"\n").decode("utf-8")
                yield text.removeprefix("\ufeff") if number == 1 else text
    except UnicodeDecodeError as error:
        raise ValueError(f"{source.label}: line {number} is not valid UTF-8 ({error})") from error


def read_bytes(source: Source) -> Iterator[str]:
    """Bytes as numbers, those between two line feeds a line; of the whole file or of its span.

    A line that the end of the span cuts is a line as well.
    """
    first, end = source.span or (0, sys.maxsize)
    left = end - first
    with _opened(source) as file:
        file.seek(first)
        while line := file.readline(left):  # of 0 bytes at the end of the span
            left -= len(line)
            yield " ".join([_NUMBERS[byte] for byte in line.removesuffix(b"\n")])
    if source.span and left:
        raise ValueError(
            f"{source.label}: ends {left} bytes before byte {end}, the end of its span"
        )


def read_tags(source: Source) -> Iterator[str]:
    """TED training text: lines of text between lines of tags.

    The lines that describe a talk are dropped; of title and description only the tags are.
    """
    for line in read_lines(source):
        if not any(tag in line for tag in _DROPPED):
            yield _TITLES.sub("", line)


def read_segments(source: Source) -> Iterator[str]:
    """XML or SGML test sets: the <seg> elements, in order.

    Found by pattern: the SGML files are not well-formed XML, a bare & may stand in them. Test
    sets fit into memory.
    """
    segments = _SEGMENT.findall("\n".join(read_lines(source)))
    if not segments:
        raise ValueError(f"{source.label}: no <seg> element in it")
    for segment in segments:
        yield _ENTITY.sub(lambda entity: html.unescape(entity[0]), segment.replace("\n", " "))


def read_column(column: int, source: Source) -> Iterator[str]:
    """One of the first two columns, counted from 0, of lines divided by tabs."""
    return column_of(read_lines(source), column, source.label)


def column_of(lines: Iterator[str], column: int, label: str) -> Iterator[str]:
    """Likewise of lines that are read already; errors name their file by its label."""
    for number, line in enumerate(lines, start=1):
        columns = line.split("\t", 2)
        if len(columns) < 2:
            raise ValueError(f"{label}: line {number} has no tab: source, tab, target are expected")
        yield columns[column]


FORMATS: dict[str, Callable[[Source], Iterator[str]]] = {
    "lines": read_lines,
    "tags": read_tags,
    "segments": read_segments,
    "tsv src": partial(read_column, 0),
    "tsv ref": partial(read_column, 1),
    "bytes": read_bytes,
}
