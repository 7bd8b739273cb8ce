"""``fairseq-preprocess`` splits lines at newlines only, and names a line that is not UTF-8.

Replaced in fairseq's ``data.dictionary`` and ``binarizer``:
- ``Chunker``: a carriage return inside a line made two lines of it, so that all later sentences of
  that language had the translations of others; a byte order mark became part of the first word; a
  byte that is no UTF-8 ended in a traceback, without the file's name. Now a line ends at a line
  feed and nowhere else, the mark is left out, and text that is no UTF-8 is named with its line.
- ``find_offsets``: finds the same ends of lines, for several ``--workers``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType

from fairseq import binarizer
from fairseq.data import dictionary

from ...errors import UserError
from ...files import check_is_text


def find_offsets(filename: str, num_chunks: int) -> list[int]:
    """Where the parts of a file begin that several processes read, and where the last one ends.

    Args:
        filename: the text
        num_chunks: the number of parts, from 1

    Returns:
        ``num_chunks + 1`` places in bytes, each the beginning of a line or the end of the file.
    """
    with open(filename, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        offsets = [0]
        for part in range(1, num_chunks):
            file.seek(size // num_chunks * part)
            file.readline()
            offsets.append(file.tell())
        return [*offsets, size]


class Chunker:
    """The lines of a part of a file, as text without their line feeds.

    Args:
        path: the file
        start_offset: the part's first byte, the beginning of a line
        end_offset: the byte behind its last line; 0 for the end of the file

    Raises:
        UserError: while reading: the file is no UTF-8; the message names it and the line.
    """

    def __init__(self, path: str, start_offset: int, end_offset: int):
        self.path, self.start_offset, self.end_offset = path, start_offset, end_offset

    def __enter__(self) -> Iterator[str]:
        self.file = open(self.path, "rb")  # noqa: SIM115  (closed at the end of the context)
        return self._lines()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.file.close()

    def _lines(self) -> Iterator[str]:
        self.place = self.start_offset  # the first byte of the line that is read
        self.file.seek(self.place)
        for line in self.file:
            if self.place == 0:
                check_is_text(line, self.path)
            if 0 < self.end_offset < self.place + len(line):
                break
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{self.path}: line {self._number()} is not UTF-8 ({error.reason}: byte "
                    f"0x{line[error.start]:02x} at {error.start}); save the file as UTF-8, or "
                    "leave that line out here and in the other language"
                ) from None
            text = text.removeprefix("\ufeff") if self.place == 0 else text
            yield text.removesuffix("\n")
            self.place += len(line)

    def _number(self) -> int:
        """The number of the line that is read, from 1."""
        with open(self.path, "rb") as file:
            number, line_end = 1, 0
            for line in file:
                line_end += len(line)
                if line_end > self.place:
                    break
                number += 1
            return number


def install() -> None:
    """Make dictionaries and binarized data of lines read this way."""
    for module in (binarizer, dictionary):
        module.Chunker, module.find_offsets = Chunker, find_offsets
