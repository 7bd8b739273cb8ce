"""Binarized data that is damaged, or does not belong to its dictionary, is refused in one line.

fairseq reads what ``fairseq-preprocess`` wrote when a batch needs it: data cut short fails in the
middle of an epoch, a token number beyond the dictionary as an index error inside the model. Here
each pair of files is checked once, when a task loads it, before anything is trained or translated.

Replaced in fairseq:
- ``indexed_dataset.make_dataset``: checks the two files, and the token numbers where the dictionary
  is known, before they are opened.
- ``indexed_dataset.dataset_exists``: takes data of which one file of the two is missing for no
  data; with several parts (``train``, ``train1``, ...) training went on without it.
- ``translation.load_langpair_dataset``: of several parts (``train``, ``train1``) the first was to
  be taken -1 times, the default of ``--upsample-primary``, and none could be loaded; it is taken
  once.
- ``TranslationTask.load_dataset``, ``LanguageModelingTask.load_dataset``: of several folders
  (``bin1:bin2``) the first one's dictionaries are used for all; where another's differ, its numbers
  meant other words in every other epoch.

Text that is not binarized (``--dataset-impl raw``) is left alone. What cannot be found: a token
number changed to another one that the dictionary has. Whether the dictionary is that of the
model is for `ea_fairseq.checkpoints.text_identity`.
"""

from __future__ import annotations

import os
import struct
from typing import Any, NamedTuple

import numpy as np
from fairseq import utils
from fairseq.data import Dictionary, indexed_dataset
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq.file_io import PathManager
from fairseq.tasks import translation
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask

from ..errors import UserError
from .around import around

# The index: magic, version, type of the tokens, number of sentences; then for each sentence its
# size (4 bytes) and, after all the sizes, its place in the data in bytes (8 bytes).
_MAGIC = MMapIndexedDataset.Index._HDR_MAGIC
_HEADER = struct.Struct("<QBQ")
_START = len(_MAGIC) + _HEADER.size
_TOKEN_TYPES = {
    code: np.dtype(kind)
    for code, kind in indexed_dataset._code_to_dtype.items()
    if np.issubdtype(kind, np.integer)
}
_PER_SENTENCE = 4 + 8
_AT_ONCE = 1 << 20  # sentences or tokens looked at in one step, so that memory stays small


def check_files(path: str) -> np.dtype:
    """Compare the index ``<path>.idx`` with itself and with the data ``<path>.bin``.

    Args:
        path: the two files, without their endings.

    Returns:
        The type of the token numbers.

    Raises:
        UserError: naming the file and the place, if one is missing, cut short, damaged, does not
            belong to the other, or holds no sentence.
    """
    index, data = path + ".idx", path + ".bin"
    header = _read_index(index)
    end = _check_places(index, header)
    found = os.path.getsize(data)
    if found < end:
        raise UserError(f"{data} is cut short: {found} bytes instead of the {end} of its index")
    if found > end:
        raise UserError(f"{data} is not of its index: {found} bytes instead of {end}")
    return header.kind


class _Index(NamedTuple):
    """The sentences of some data: their number, the type of their tokens, and of each its size in
    tokens and its place in bytes, read from the file as they are needed."""

    count: int
    kind: np.dtype
    sizes: np.ndarray
    places: np.ndarray


def _read_index(index: str) -> _Index:
    with open(index, "rb") as file:
        header = file.read(_START)
    length = os.path.getsize(index)
    if not _MAGIC.startswith(header[: len(_MAGIC)]):
        raise UserError(
            f"{index} is no index of binarized data: it begins with {header[: len(_MAGIC)]!r}"
        )
    if len(header) < _START:
        raise UserError(
            f"{index} is cut short: {length} bytes, where the header alone has {_START}"
        )
    version, code, count = _HEADER.unpack(header[len(_MAGIC) :])
    if version != 1 or code not in _TOKEN_TYPES:
        raise UserError(f"{index} is damaged: version {version}, token type {code} in its header")
    expected = _START + _PER_SENTENCE * count
    if length != expected:
        problem = "cut short" if length < expected else "damaged"
        raise UserError(
            f"{index} is {problem}: {length} bytes instead of {expected} for {count} sentences"
        )
    if count == 0:
        raise UserError(f"{index}: the data has no sentences")
    sizes = np.memmap(index, np.int32, "r", _START, (count,))
    places = np.memmap(index, np.int64, "r", _START + 4 * count, (count,))
    return _Index(count, _TOKEN_TYPES[code], sizes, places)


def _check_places(index: str, header: _Index) -> int:
    """Check that each sentence begins where the one before it ends; returns where the last ends."""
    count, kind, sizes, places = header
    end = 0
    for first in range(0, count, _AT_ONCE):
        size = sizes[first : first + _AT_ONCE].astype(np.int64)
        place = places[first : first + _AT_ONCE]
        begins = end + kind.itemsize * (np.cumsum(size) - size)
        wrong = (size < 0) | (place != begins)
        if wrong.any():
            at = int(wrong.argmax())
            raise UserError(
                f"{index} is damaged: sentence {first + at + 1} of {count} has size {size[at]} and"
                f" begins at byte {place[at]} instead of {begins[at]}"
            )
        end = int(begins[-1] + kind.itemsize * size[-1])
    return end


def check_tokens(path: str, kind: np.dtype, dictionary: Dictionary) -> None:
    """Look for token numbers that the dictionary does not have, in one pass over ``<path>.bin``.

    Each sentence must also end with the token for its end. fairseq counts on it, always writes it,
    and a block that never reached the disk reads as zeros, which are numbers of the dictionary.

    Args:
        path: as for `check_files`, which must have passed.
        kind: the type of the token numbers.
        dictionary: the one to read the data with.

    Raises:
        UserError: naming the file, the first such number and the sentence.
    """
    data, index = path + ".bin", path + ".idx"
    count, _, sizes, places = _read_index(index)
    if (sizes == 0).any():
        raise UserError(
            f"{data} is damaged: sentence {int((sizes == 0).argmax()) + 1} of {count} has no token,"
            " not even its end"
        )
    tokens = np.memmap(data, kind, "r")
    for first in range(0, len(tokens), _AT_ONCE):
        part = tokens[first : first + _AT_ONCE]
        if part.max() < len(dictionary) and part.min() >= 0:
            continue
        at = first + int(((part < 0) | (part >= len(dictionary))).argmax())
        sentence = int(np.searchsorted(places, at * kind.itemsize, side="right"))
        raise UserError(
            f"{data} does not fit its dictionary of {len(dictionary)} entries: token number"
            f" {tokens[at]} in sentence {sentence} of {count}; use the dictionary that it was"
            " binarized with, or binarize the text again"
        )
    for first in range(0, count, _AT_ONCE):
        size, place = sizes[first : first + _AT_ONCE], places[first : first + _AT_ONCE]
        last = tokens[place // kind.itemsize + size - 1]
        if (last != dictionary.eos()).any():
            at = int((last != dictionary.eos()).argmax())
            raise UserError(
                f"{data} is damaged: sentence {first + at + 1} of {count} ends with token number"
                f" {last[at]} instead of {dictionary.eos()}, the end of sentence"
            )


def _check_pair(path: str) -> bool:
    """True if both files are there, False if none is.

    Raises:
        UserError: naming the one that is missing, if the other is there.
    """
    missing = [name for name in (path + ".idx", path + ".bin") if not os.path.exists(name)]
    if len(missing) == 1:
        raise UserError(f"{missing[0]} is missing; binarize the data again")
    return not missing


@around(indexed_dataset, "make_dataset")
def _check_before_opening(
    original: Any,
    path: str,
    impl: str,
    fix_lua_indexing: bool = False,
    dictionary: Dictionary | None = None,
) -> Any:
    # fairseq takes an index that it does not know for the format of its early days, "cached".
    if impl in ("mmap", "cached", "lazy") and _check_pair(path):
        kind = check_files(path)
        if dictionary is not None:
            check_tokens(path, kind, dictionary)
    return original(path, impl, fix_lua_indexing=fix_lua_indexing, dictionary=dictionary)


@around(indexed_dataset, "dataset_exists")
def _half_is_an_error(original: Any, path: str, impl: str | None) -> bool:
    if impl != "raw" and not PathManager.path_requires_pathmanager(path):
        _check_pair(path)
    return original(path, impl)


@around(translation, "load_langpair_dataset")
def _take_each_part_once(original: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("upsample_primary") == -1:
        kwargs["upsample_primary"] = 1
    return original(*args, **kwargs)


@around(TranslationTask, "load_dataset")
@around(LanguageModelingTask, "load_dataset")
def _check_dictionaries(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    if isinstance(self, LanguageModelingTask):
        data, dictionaries = self.args.data, {"dict.txt": self.dictionary}
    else:
        data = self.cfg.data
        sides = {self.cfg.source_lang: self.src_dict, self.cfg.target_lang: self.tgt_dict}
        dictionaries = {f"dict.{language}.txt": words for language, words in sides.items()}
    check_folders(data, dictionaries)
    original(self, *args, **kwargs)


def check_folders(data: str, dictionaries: dict[str, Dictionary]) -> None:
    """Compare the dictionaries of several folders of data, where they have them, with those used.

    Args:
        data: as fairseq takes it, separated by colons.
        dictionaries: file name -> the first folder's.

    Raises:
        UserError: naming the first file with other entries, or the same in another order.
    """
    first, *others = utils.split_paths(data)
    for folder in others:
        for name, dictionary in dictionaries.items():
            path = os.path.join(folder, name)
            if os.path.exists(path) and Dictionary.load(path).symbols != dictionary.symbols:
                raise UserError(
                    f"{path} has other entries than {os.path.join(first, name)}, which is used for "
                    f"both: binarize the text of {folder} with --srcdict and --tgtdict of {first}"
                )
