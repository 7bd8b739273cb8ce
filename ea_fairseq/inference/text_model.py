"""What reads and writes text with trained models: model folders, loaded, and their text."""

from __future__ import annotations

import logging
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ..checkpoints.finite_weights import unusable_weight
from ..errors import UserError
from ..files import sha256
from ..text.processing import TextSettings
from .build_model import load_model
from .model_folder import TRANSLATION, ModelFolder, read_model_folder
from .search import BeamSearch

logger = logging.getLogger(__name__)

#: Tokens of a batch, padding included.
MAX_TOKENS = 1500
EOS = "</s>"
#: Why there is no text of a model whose weights are finite, and too large.
NO_NUMBERS = "the model's scores are no numbers"

# From so many unknown tokens on, and from such a part of all, somebody is told.
_MANY_UNKNOWN, _LARGE_PART = 3, 0.2

# With int8 the compiled library multiplies bytes; what torch does then is float32.
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.float32}


class TextModel:
    """A model folder, or several that decide together, ready for use.

    Nothing changes by its use: threads may share one. Its ``models`` may be given other weights, by
    load_state_dict, an optimizer or operations under no_grad. Changes through ``.data`` or numpy,
    which torch does not count, are not seen by the compiled library: behind them,
    ``model.load_state_dict(model.state_dict())`` makes them count.

    Args:
        model: the folder; or a list of folders with equal dictionaries and text settings
        device: torch's name of where to compute
        dtype: "float32" or "bfloat16"; or "int8", about as good, for one model that translates
            with plain or evolving attention in the compiled library on the CPU: faster where the
            processor has AVX-512 VNNI; elsewhere float32 is the better choice
        threads: of torch, for the whole process; default: torch's own choice

    Raises:
        UserError: naming what is missing, damaged, or does not fit.
    """

    #: The task of fairseq's that the models are for.
    TASK: str

    def __init__(
        self,
        model: str | Path | Sequence[str | Path],
        *,
        device: str = "cpu",
        dtype: str = "float32",
        threads: int | None = None,
    ):
        several = isinstance(model, Sequence) and not isinstance(model, str)
        paths = list(model) if several else [model]
        if not paths or not all(isinstance(path, str | Path) for path in paths):
            raise UserError(f"model is {model!r}: expected a model folder, or a list of them")
        if dtype not in _DTYPES:
            raise UserError(f"dtype is {dtype!r}: choose from {', '.join(_DTYPES)}")
        if threads is not None:
            if threads < 1:
                raise UserError(f"threads is {threads!r}: expected a whole number from 1")
            torch.set_num_threads(threads)
        self.folders: list[ModelFolder] = [read_model_folder(path) for path in paths]
        for folder in self.folders:
            _check_task(folder, self.TASK)
        for other in self.folders[1:]:
            _check_same_text(self.folders[0], other)
        self.config = self.folders[0].config
        loaded = [load_model(folder) for folder in self.folders]
        self.source_dictionary, self.target_dictionary = loaded[0][1]
        for folder, (model, _) in zip(self.folders, loaded, strict=True):
            weights = {} if dtype != "bfloat16" else dict(model.named_parameters())
            if bad := unusable_weight(weights, torch.bfloat16):
                raise UserError(f"dtype {dtype!r}: {folder.path}: {bad}: choose float32")
        try:
            self.models = [m.to(device=device, dtype=_DTYPES[dtype]) for m, _ in loaded]
        except (RuntimeError, AssertionError) as error:  # torch built without the device, say
            reason = str(error).splitlines()[0]
            if "not compiled with CUDA" in reason:
                reason = (
                    "this torch is built for CPUs alone: install a build for GPUs, or choose cpu"
                )
            raise UserError(f"device {device!r}: {reason}") from error
        self._beam_search = BeamSearch(self.models, self.target_dictionary, dtype == "int8")
        compiled = self._beam_search.compiled
        if dtype == "int8" and (compiled is None or compiled.encoder is None):
            raise UserError(
                "dtype 'int8' is for one model with plain or evolving attention that translates, "
                "on the CPU where there is a C++ compiler: choose float32"
            )
        self._processing = self.folders[0].text_processing()
        self._told_of_unknown = False

    def tokens(self, text: str) -> list[str]:
        """A text's tokens as the model reads them, without the end of sentence."""
        return self._processing.tokens(text)

    def numbers(self, tokens: list[str]) -> list[int]:
        """The numbers of what a model reads, and the end of sentence."""
        words = self.source_dictionary
        numbers = [words.index(token) for token in tokens]
        # A text that speaks of fairseq's own symbols has no padding or end in it.
        return [n if n >= words.nspecial else words.unk() for n in numbers] + [words.eos()]

    def unknown(self, tokens: Iterable[str]) -> list[str]:
        """Those of a text's tokens that a model reads as the unknown word, in their order."""
        words = self.source_dictionary
        tokens = [token for token in tokens if token != EOS]
        return [t for t, n in zip(tokens, self.numbers(tokens), strict=False) if n == words.unk()]

    def _tell_of_unknown(self, sources: Iterable[list[str]]) -> None:
        """A warning, once, where a large part of what is read is unknown."""
        if self._told_of_unknown:
            return
        sources = list(sources)
        unknown = [token for source in sources for token in self.unknown(source)]
        count = sum(map(len, sources))
        if len(unknown) < _MANY_UNKNOWN or len(unknown) < _LARGE_PART * count:
            return
        self._told_of_unknown = True
        takes = self.config.text.takes
        advice = f": text for it must be {takes}" if takes else ", which knows other text"
        examples = ", ".join(map(shown, dict.fromkeys(unknown)))
        logger.warning(
            "%d of %d tokens of the text are unknown to the model%s (unknown: %s)",
            len(unknown),
            count,
            advice,
            textwrap.shorten(examples, 80, placeholder="..."),
        )

    def text(self, tokens: list[str]) -> str:
        """What a model's tokens say; its special symbols, but the unknown word, say nothing."""
        words = self.target_dictionary
        silent = (words.bos_word, words.pad_word, words.eos_word)
        return self._processing.text([token for token in tokens if token not in silent])

    def batches(
        self, sources: Sequence[list[str]], max_tokens: int = MAX_TOKENS
    ) -> Iterator[list[int]]:
        """Places of token sequences that are read together: of like length, the longest first, as
        fairseq's LSTM wants it within a batch, and so that memory is short at once.

        Args:
            sources: token sequences, without the end of sentence
            max_tokens: tokens of a batch, padding included; a longer sequence is alone
        """
        batch: list[int] = []
        for i in sorted(range(len(sources)), key=lambda i: -len(sources[i])):
            if batch and (len(sources[batch[0]]) + 1) * (len(batch) + 1) > max_tokens:
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def _in_batches(
        self,
        answer: Callable[[list[int]], Iterable[Any]],
        sources: Sequence[list[str]],
        max_tokens: int,
        progress: bool = False,
        unit: str = "",
    ) -> list[Any]:
        """What ``answer`` gives for token sequences, batch by batch, in the order of the sequences.

        Args:
            answer: the answers to the sequences at some places, in the order of the places
            sources, max_tokens: as for `batches`
            progress: whether to show a progress bar on standard error
            unit: what it counts
        """
        found: dict[int, Any] = {}
        with tqdm(total=len(sources), disable=not progress, unit=unit, file=sys.stderr) as bar:
            for batch in self.batches(sources, max_tokens):
                found.update(zip(batch, answer(batch), strict=True))
                bar.update(len(batch))
        return [found[i] for i in range(len(sources))]


def check_whole_number(name: str, value: Any) -> None:
    """Refuses what is no whole number from 1.

    Raises:
        UserError: naming it
    """
    if type(value) is not int or value < 1:
        raise UserError(f"{name} is {value!r}: expected a whole number from 1")


def as_list(name: str, texts: Any) -> tuple[list[Any], bool]:
    """A text, or each of a list, as a list, and whether it was one alone.

    Raises:
        UserError: for what is neither, by the ``name`` of the argument
    """
    if isinstance(texts, str):
        return [texts], True
    if _is_no_list(texts):
        raise UserError(f"{name} is {shown(texts)}: expected text (str), or a list of texts")
    return list(texts), False


def in_buffers(
    name: str,
    texts: Iterable[str],
    buffer: int,
    answer: Callable[[list[str], int], Iterable[Any]],
    progress: bool,
) -> Iterator[Any]:
    """The answers to texts as they come, ``buffer`` of which are read and answered together.

    Args:
        name: of the argument, for messages
        texts: any number of them
        buffer: at least 1
        answer: of some texts, the first of which has that number, counted from 0
        progress: whether to show a progress bar on standard error

    Raises:
        UserError: for texts that are none, and a buffer of no text
    """
    if isinstance(texts, str) or _is_no_list(texts):  # of a text, each letter would be one
        raise UserError(f"{name} is {shown(texts)}: expected a list of texts, or an iterator")
    check_whole_number("buffer", buffer)
    texts = iter(texts)
    number = 0
    with tqdm(disable=not progress, unit=" texts", file=sys.stderr) as bar:
        while chunk := list(islice(texts, buffer)):
            for result in answer(chunk, number):
                yield result
                bar.update()
            number += len(chunk)


def _is_no_list(texts: Any) -> bool:
    """Whether something cannot stand for several texts in their order."""
    return isinstance(texts, bytes | Mapping | set) or not isinstance(texts, Iterable)


def shown(value: Any) -> str:
    """A value as a message shows it."""
    return textwrap.shorten(repr(value), 60, placeholder="...")


def _check_task(folder: ModelFolder, task: str) -> None:
    config = folder.config
    if config.task == task:
        return
    if config.task == TRANSLATION:
        languages = f"{config.text.source_lang} to {config.text.target_lang}"
        raise UserError(f"{folder.path}: translates from {languages}: that is ea-translate's work")
    raise UserError(
        f"{folder.path}: holds a language model, which translates nothing: ea-generate goes on "
        "with a text"
    )


def _flat(settings: TextSettings) -> dict[str, Any]:
    """Text settings by name, those of the tokenization beside the others."""
    found = vars(settings) | vars(settings.tokenize)
    del found["tokenize"]
    return found


def _check_same_text(folder: ModelFolder, other: ModelFolder) -> None:
    """Refuse an ensemble of models that read or write different tokens."""
    if folder.config.text != other.config.text:
        theirs, ours = (_flat(one.config.text) for one in (other, folder))
        differing = [
            f"{name}: {theirs[name]}, {ours[name]}" for name in ours if theirs[name] != ours[name]
        ]
        raise UserError(
            f"{other.path}: has other languages or text settings than {folder.path}: "
            + "; ".join(differing)
        )
    names = [*folder.config.dictionaries, folder.config.codes]
    for name in filter(None, names):
        if sha256(folder.path / name) != sha256(other.path / name):
            raise UserError(f"{other.path / name}: differs from {folder.path / name}")
