"""``fairseq-preprocess``: a line of the file is a sentence of the data, numbered by one dictionary.

Replaced in fairseq:
- ``Chunker`` of ``data.dictionary`` and ``binarizer``: a carriage return inside a line made two
  lines of it, so that all later sentences of that language had the translations of others; a byte
  order mark became part of the first word; a byte that is no UTF-8 ended in a traceback, without
  the file's name. Now a line ends at a line feed and nowhere else, the mark is left out, and text
  that is no UTF-8 is named with its line.
- ``find_offsets`` there: finds the same ends of lines, for several ``--workers``.
- ``VocabularyDatasetBinarizer.binarize_line`` and ``GeneratorHubInterface.binarize``: the words
  ``<s>``, ``<pad>`` and ``</s>`` of a text became the symbols of these names: a sentence ended in
  its middle, a word was left out of the loss, the attention and the output. Now they are unknown
  words, as in ``ea-translate``, and a warning names the first line of a file with each of them.
  ``<unk>``, which texts made for language models have, stays what it is.
  (``Dictionary.encode_line`` is left alone: some of fairseq's pretrained models write their symbols
  by it.)
- ``utils.import_user_module``, with which the command begins: with ``--srcdict`` or ``--tgtdict``
  it wrote that dictionary over the one in ``--destdir``, whatever other data lay there: their
  numbers then meant other words, and a model was trained on them. ``--bpe`` and ``--tokenizer``
  were left out without a word, and files of different length became data that no training takes.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from fairseq import binarizer, utils
from fairseq.data import Dictionary, dictionary
from fairseq.hub_utils import GeneratorHubInterface

from ..errors import UserError
from ..files import check_is_text, count_lines
from ..text.control_words import as_unknown, found_in, message
from .around import around

logger = logging.getLogger(__name__)


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


@contextlib.contextmanager
def lines_of_part(path: str, start_offset: int, end_offset: int) -> Iterator[Iterator[str]]:
    """A context with the lines of a part of a file, as text without their line feeds.

    Args:
        path: the file
        start_offset: the part's first byte, the beginning of a line
        end_offset: the byte behind its last line; 0 for the end of the file

    Raises:
        UserError: while reading: the file is no UTF-8; the message names it and the line.
    """
    with open(path, "rb") as file:
        yield (text for _, text in _texts(file, start_offset, end_offset))


@contextlib.contextmanager
def _lines_with_symbols_named(
    path: str, start_offset: int, end_offset: int
) -> Iterator[Iterator[str]]:
    """`lines_of_part`, with a warning of the first line that has one of fairseq's symbols."""
    with open(path, "rb") as file:
        yield _naming_symbols(file, _texts(file, start_offset, end_offset))


def _texts(file: IO[bytes], start_offset: int, end_offset: int) -> Iterator[tuple[int, str]]:
    """Of each line of a part, its first byte's place in the file and its text."""
    place = start_offset
    file.seek(place)
    for line in file:
        if place == 0:
            check_is_text(line, file.name)
        if 0 < end_offset < place + len(line):
            break
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"{file.name}: line {_line_number(file.name, place)} is not UTF-8 ({error.reason}: "
                f"byte 0x{line[error.start]:02x} at {error.start}); save the file as UTF-8, or "
                "leave that line out here and in the other language"
            ) from None
        text = text.removeprefix("\ufeff") if place == 0 else text
        yield place, text.removesuffix("\n")
        place += len(line)


def _naming_symbols(file: IO[bytes], texts: Iterator[tuple[int, str]]) -> Iterator[str]:
    named: set[str] = set()
    for place, text in texts:
        if new := [word for word in found_in(text) if word not in named]:
            named.update(new)
            number = _line_number(file.name, place)
            logger.warning("%s: line %d: %s", file.name, number, message(new))
        yield text


def _line_number(path: str, place: int) -> int:
    """The number, from 1, of the line that begins at a place in bytes."""
    number = 1
    with open(path, "rb") as file:
        for line in file:
            place -= len(line)
            if place < 0:
                break
            number += 1
    return number


dictionary.Chunker, binarizer.Chunker = lines_of_part, _lines_with_symbols_named
dictionary.find_offsets = binarizer.find_offsets = find_offsets


@around(binarizer.VocabularyDatasetBinarizer, "binarize_line")
def _binarize_line(original: Any, self: Any, line: str, *args: Any, **kwargs: Any) -> Any:
    return original(self, as_unknown(line), *args, **kwargs)


@around(GeneratorHubInterface, "binarize")
def _binarize(original: Any, self: GeneratorHubInterface, sentence: str) -> Any:
    if words := found_in(sentence):
        logger.warning(message(words))
    return original(self, as_unknown(sentence))


@around(utils, "import_user_module")
def _check_first(original: Any, args: argparse.Namespace) -> None:
    original(args)
    if hasattr(args, "destdir") and hasattr(args, "joined_dictionary"):
        check(args)


def check(args: argparse.Namespace) -> None:
    """Refuse what would be wrong or without effect.

    Args:
        args: the options of ``fairseq-preprocess``.

    Raises:
        UserError: naming the file or the option.
    """
    for name in ("bpe", "tokenizer"):
        if getattr(args, name) is not None:
            raise UserError(
                f"--{name} has no effect on fairseq-preprocess, which takes text that is tokenised "
                "and split: leave it out"
            )
    if not (args.only_source or args.dict_only):
        _check_lengths(args)
    for language, given in _dictionaries(args):
        _check_dictionary(args, language, given)


def _check_lengths(args: argparse.Namespace) -> None:
    prefixes = [args.trainpref, args.validpref, args.testpref]
    for prefix in ",".join(filter(None, prefixes)).split(","):
        paths = [f"{prefix}.{lang}" for lang in (args.source_lang, args.target_lang)]
        if not all(map(os.path.isfile, paths)):
            continue  # fairseq names it
        source, target = map(_lines, paths)
        if source != target:
            raise UserError(
                f"{paths[0]} has {source} lines and {paths[1]} has {target}: each must be the "
                "translation of the other's at its place"
            )


def _lines(path: str) -> int:
    with open(path, "rb") as file:
        return count_lines(file, path)


def _dictionaries(args: argparse.Namespace) -> Iterator[tuple[str | None, str]]:
    """Each language, None for that of a text alone, whose dictionary is given, and that."""
    source, target = args.srcdict, args.tgtdict
    if args.joined_dictionary:
        source = target = source or target
    if source:
        yield args.source_lang, source
    if target and not args.only_source:
        yield args.target_lang, target


def _check_dictionary(args: argparse.Namespace, language: str | None, given: str) -> None:
    end = f".{language}" if language else ""
    there = Path(args.destdir, f"dict{end}.txt")
    if not there.exists() or Dictionary.load(given).symbols == Dictionary.load(str(there)).symbols:
        return
    written = set() if args.dict_only else {file + end for file in _written(args)}
    pairs = f"*-*{end}" if language else "*"
    for file in sorted(Path(args.destdir).glob(f"{pairs}.idx")):
        if file.stem not in written:
            raise UserError(
                f"{given} has other entries than {there}, and {file} is numbered by the latter: "
                "give another --destdir, or the dictionary that is there"
            )


def _written(args: argparse.Namespace) -> Iterator[str]:
    """What the command writes, without a language and the endings of files."""
    pair = f".{args.source_lang}-{args.target_lang}" if args.source_lang else ""
    for split in ("train", "valid", "test"):
        prefixes = getattr(args, f"{split}pref")
        count = len(prefixes.split(",")) if prefixes else 0
        for number in range(min(count, 1) if split == "train" else count):
            yield f"{split}{number or ''}{pair}"
