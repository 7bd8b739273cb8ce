"""Reads `<pad>`, `<s>` and `</s>` in a text as words, not as fairseq's symbols.

Replaced in fairseq:
- ``VocabularyDatasetBinarizer.binarize_line`` and ``GeneratorHubInterface.binarize``: the words
  ``<s>``, ``<pad>`` and ``</s>`` of a text became the symbols of these names: a sentence ended in
  its middle, a word was left out of the loss, the attention and the output. Now they are unknown
  words, as in ``ea-translate``. ``<unk>``, which texts made for language models have, stays what it
  is. (`dirty_input` does the same for ``fairseq-interactive``. ``Dictionary.encode_line`` is left
  alone: some of fairseq's pretrained models write their symbols by it.)
- ``binarizer.Chunker``: a warning names the first line of a file with each of these words.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

from fairseq import binarizer
from fairseq.hub_utils import GeneratorHubInterface

from ...text.control_words import as_unknown, found_in, message
from . import raw_text

logger = logging.getLogger(__name__)


class Chunker(raw_text.Chunker):
    """Lines of a file, the first of which with each of the words is named."""

    def _lines(self) -> Iterator[str]:
        named: set[str] = set()
        for line in super()._lines():
            if new := [word for word in found_in(line) if word not in named]:
                named.update(new)
                logger.warning("%s: line %d: %s", self.path, self._number(), message(new))
            yield line


def _binarize_line(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def binarize_line(
        self: binarizer.VocabularyDatasetBinarizer, line: str, *args: Any, **kwargs: Any
    ) -> Any:
        return original(self, as_unknown(line), *args, **kwargs)

    return binarize_line


def _binarize(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def binarize(self: GeneratorHubInterface, sentence: str) -> Any:
        if words := found_in(sentence):
            logger.warning(message(words))
        return original(self, as_unknown(sentence))

    return binarize


def install() -> None:
    """Make fairseq read text so."""
    binarizer.Chunker = Chunker
    kind = binarizer.VocabularyDatasetBinarizer
    kind.binarize_line = _binarize_line(kind.binarize_line)
    GeneratorHubInterface.binarize = _binarize(GeneratorHubInterface.binarize)
