"""File formats: from one pair of files to pairs of sentences.

Lines end at line feeds only. Python's text mode would also break lines at carriage returns, and
str.splitlines() at U+2028 and others: one such character would shift all later pairs.
"""

import gzip
import html
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from .inputs import Source

Pair = tuple[str, str]

_DROPPED = ("<url>", "<talkid>", "<keywords>", "<speaker>", "<reviewer", "<translator")
_TITLES = re.compile("</?(?:title|description)>")
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|#[0-9]+|#x[0-9a-fA-F]+);")
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL)


def read_pairs(source: Source, target: Source) -> Iterator[Pair]:
    """Yields the pairs of sentences of two files, as they stand in the file.

    Raises:
        ValueError: broken UTF-8 or compression, or a differing number of sentences.
    """
    read = FORMATS[source.format]
    sides = read(source), read(target)
    counts = [0, 0]
    while True:
        lines = [next(side, None) for side in sides]
        counts = [n + (line is not None) for n, line in zip(counts, lines, strict=True)]
        if None in lines:
            break
        yield lines[0], lines[1]
    counts = [n + sum(1 for _ in side) for n, side in zip(counts, sides, strict=True)]
    if counts[0] != counts[1]:
        raise ValueError(
            f"{source.label} has {counts[0]} sentences, {target.label} has {counts[1]}: "
            "the two must be parallel"
        )


def read_lines(source: Source) -> Iterator[str]:
    """One sentence a line, gzipped where the name ends in .gz."""
    number = 0
    try:
        with _open(source.file) as file:
            for number, line in enumerate(file, start=1):
                text = line.removesuffix(b"\n").decode("utf-8")
                yield text.removeprefix("\ufeff") if number == 1 else text
    except UnicodeDecodeError as error:
        raise ValueError(f"{source.label}: line {number} is not valid UTF-8 ({error})") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{source.label}: broken gzip file ({error})") from error


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


FORMATS: dict[str, Callable[[Source], Iterator[str]]] = {
    "lines": read_lines,
    "tags": read_tags,
    "segments": read_segments,
}


def _open(path: Path):
    return gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")
