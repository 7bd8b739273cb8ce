"""Binarized data that is damaged, or does not belong to its dictionary, is refused in one line.

fairseq reads what ``fairseq-preprocess`` wrote when a batch needs it: data cut short fails in the
middle of an epoch, a token number beyond the dictionary as an index error inside the model, and a
missing target as a model called without its arguments. Here each pair of files is checked once,
when a task loads it, before anything is trained or translated.

Replaced in fairseq:
- ``indexed_dataset.make_dataset``: checks the two files, and the token numbers where the dictionary
  is known, before they are opened. The format of fairseq's early days (``lazy``, ``cached``) is
  refused: ``cached`` ends in a traceback before its first batch, and with ``lazy`` the processes
  that load data share one place in the file, so that they get parts of one another's sentences.
- ``indexed_dataset.dataset_exists``: takes data of which one file of the two is missing for no
  data; with several parts (``train``, ``train1``, ...) training went on without it.
- ``translation.load_langpair_dataset``: source and target of different length, in one line. Of
  several parts (``train``, ``train1``) the first was to be taken -1 times, the default of
  ``--upsample-primary``, and none could be loaded; it is taken once.
- ``TranslationTask.load_dataset``, ``LanguageModelingTask.load_dataset``: of several folders
  (``bin1:bin2``) the first one's dictionaries are used for all; where another's differ, its numbers
  meant other words in every other epoch.
- ``TranslationTask.build_criterion`` and ``FairseqTask.build_generator``: a loss, and
  ``--score-reference`` and ``--prefix-size``, of data without target sentences, in one line.
- ``Dictionary.add_from_file``: names no file when a line of it cannot be read.

Text that is not binarized (``--dataset-impl raw``) is left alone. What cannot be found: a token
number changed to another one that the dictionary has. Whether the dictionary is that of the
model is for ``text_identity``.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from fairseq import utils
from fairseq.data import Dictionary, LanguagePairDataset, indexed_dataset
from fairseq.data.indexed_dataset import IndexedDataset, MMapIndexedDataset
from fairseq.file_io import PathManager
from fairseq.tasks import translation
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask

from ...errors import UserError

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
    count, kind = _read_header(index)
    if count == 0:
        raise UserError(f"{index}: the data has no sentences")
    end = _check_places(index, count, kind.itemsize)
    found = os.path.getsize(data)
    if found < end:
        raise UserError(f"{data} is cut short: {found} bytes instead of the {end} of its index")
    if found > end:
        raise UserError(f"{data} is not of its index: {found} bytes instead of {end}")
    return kind


def _read_header(index: str) -> tuple[int, np.dtype]:
    """The number of sentences and the type of their tokens."""
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
    return count, _TOKEN_TYPES[code]


def _check_places(index: str, count: int, itemsize: int) -> int:
    """Check that each sentence begins where the one before it ends; returns where the last ends."""
    sizes, places = _sizes(index, count), _places(index, count)
    end = 0
    for first in range(0, count, _AT_ONCE):
        size = sizes[first : first + _AT_ONCE].astype(np.int64)
        place = places[first : first + _AT_ONCE]
        ends = end + itemsize * np.cumsum(size)
        wrong = (size < 0) | (place != ends - itemsize * size)
        if wrong.any():
            at = int(wrong.argmax())
            raise UserError(
                f"{index} is damaged: sentence {first + at + 1} of {count} has size {size[at]} and"
                f" begins at byte {place[at]} instead of {ends[at] - itemsize * size[at]}"
            )
        end = int(ends[-1])
    return end


def _sizes(index: str, count: int) -> np.ndarray:
    return np.memmap(index, np.int32, "r", _START, (count,))


def _places(index: str, count: int) -> np.ndarray:
    return np.memmap(index, np.int64, "r", _START + 4 * count, (count,))


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
    count, _ = _read_header(index)
    sizes, places = _sizes(index, count), _places(index, count)
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


def _check_before_opening(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make_dataset(
        path: str,
        impl: str,
        fix_lua_indexing: bool = False,
        dictionary: Dictionary | None = None,
    ) -> Any:
        # fairseq takes an index that it does not know for the format of its early days, "cached".
        if impl in ("mmap", "cached", "lazy") and _check_pair(path):
            with open(path + ".idx", "rb") as file:
                old = file.read(8) == IndexedDataset._HDR_MAGIC
            if old:
                raise UserError(
                    f"{path}.idx has the format of --dataset-impl lazy and cached, which several "
                    "processes cannot read: binarize the text again with the default, mmap"
                )
            kind = check_files(path)
            if dictionary is not None:
                check_tokens(path, kind, dictionary)
            if impl != "mmap":
                raise UserError(
                    f"--dataset-impl {impl} does not fit {path}.idx, whose format is mmap: leave "
                    "the option out"
                )
        return original(path, impl, fix_lua_indexing=fix_lua_indexing, dictionary=dictionary)

    return make_dataset


def _half_is_an_error(original: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def dataset_exists(path: str, impl: str | None) -> bool:
        if impl != "raw" and not PathManager.path_requires_pathmanager(path):
            _check_pair(path)
        return original(path, impl)

    return dataset_exists


def _equal_lengths(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_langpair_dataset(data_path: str, split: str, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("upsample_primary") == -1:
            kwargs["upsample_primary"] = 1
        try:
            return original(data_path, split, *args, **kwargs)
        except AssertionError as error:
            if "same number of examples" in str(error):
                raise UserError(f"{os.path.join(data_path, split)}: {error}") from error
            raise

    return load_langpair_dataset


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


def check_targets(task: FairseqTask, what: str) -> None:
    """Refuse data without target sentences.

    Args:
        task: whose data it is, those of validation among them.
        what: needs them.

    Raises:
        UserError: naming the data and the split.
    """
    for split, dataset in task.datasets.items():
        if isinstance(dataset, LanguagePairDataset) and dataset.tgt is None:
            data = (task.cfg or task.args).data  # the latter of fairseq's older tasks
            raise UserError(f"{what} needs target sentences: {data} has none for {split}")


def _one_dictionary(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_dataset(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, LanguageModelingTask):
            data, dictionaries = self.args.data, {"dict.txt": self.dictionary}
        else:
            data = self.cfg.data
            sides = {self.cfg.source_lang: self.src_dict, self.cfg.target_lang: self.tgt_dict}
            dictionaries = {f"dict.{language}.txt": words for language, words in sides.items()}
        check_folders(data, dictionaries)
        original(self, *args, **kwargs)
        if getattr(self, "_ea_has_loss", False):
            check_targets(self, "the loss")

    return load_dataset


def _with_loss(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def build_criterion(self: TranslationTask, *args: Any, **kwargs: Any) -> Any:
        self._ea_has_loss = True  # before it loads its data
        return original(self, *args, **kwargs)

    return build_criterion


def _targets_to_score(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def build_generator(
        self: FairseqTask, models: Any, args: Any, *more: Any, **kwargs: Any
    ) -> Any:
        for name in ("score_reference", "prefix_size"):
            if getattr(args, name, 0) > 0:
                check_targets(self, f"--{name.replace('_', '-')}")
        return original(self, models, args, *more, **kwargs)

    return build_generator


def _name_the_file(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def add_from_file(self: Dictionary, f: Any) -> None:
        try:
            original(self, f)
        except Exception as error:
            # Of fairseq's own, one is a plain Exception and names the file.
            own = type(error) in (ValueError, RuntimeError, Exception)
            if isinstance(f, str) and own:
                raise UserError(f"dictionary {f}: {error}") from error
            raise

    return add_from_file


def install() -> None:
    """Make fairseq check binarized data."""
    indexed_dataset.make_dataset = _check_before_opening(indexed_dataset.make_dataset)
    indexed_dataset.dataset_exists = _half_is_an_error(indexed_dataset.dataset_exists)
    translation.load_langpair_dataset = _equal_lengths(translation.load_langpair_dataset)
    for task in (TranslationTask, LanguageModelingTask):
        task.load_dataset = _one_dictionary(task.load_dataset)
    TranslationTask.build_criterion = _with_loss(TranslationTask.build_criterion)
    FairseqTask.build_generator = _targets_to_score(FairseqTask.build_generator)
    Dictionary.add_from_file = _name_the_file(Dictionary.add_from_file)
