"""Hints: for every subword of a target sentence, the subword that its prediction should look at.

A file of hints has a line for each sentence, with a number for each subword: the position, counted
from 1, of the nearest ancestor in the dependency tree that stands to the left; where there is none,
that of the subword before, which is 0, the beginning of the sentence, for the first. Position p is
also column p of the decoder's self-attention, where 0 is the token that starts a sentence.

Source: "Bird-Eye Transformers for Text Generation Models", section 3.2 and Figure 1.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ..files import lines_of
from ..text.pieces import join_subwords
from .trees import Parse

# What Moses' tokenizer writes for a character.
_MOSES = {
    "&amp;": "&", "&lt;": "<", "&gt;": ">", "&apos;": "'", "&quot;": '"',
    "&#124;": "|", "&#91;": "[", "&#93;": "]", "@-@": "-",
}  # fmt: skip
_LETTER = re.compile("|".join(map(re.escape, _MOSES)) + "|.", re.DOTALL)


def without_marks(subwords: Iterable[str], kind: str) -> list[str]:
    """Subwords without the marks of words' ends ("bpe": @@) or beginnings ("sentencepiece")."""
    if kind == "bpe":
        return [subword.removesuffix("@@") for subword in subwords]
    return [subword.replace("\u2581", "") for subword in subwords]


def words_of(line: str, kind: str) -> list[str]:
    """The words of a line of subwords, with what Moses escaped as it was."""
    words = join_subwords(line.split(), kind)
    return [_LETTER.sub(lambda match: _MOSES.get(match[0], match[0]), word) for word in words]


def hints_of(pieces: Sequence[str], sentences: Sequence[Parse]) -> list[int]:
    """The hints of a line.

    Words are found by their letters, whatever their case, so that text and trees may be cut into
    words differently. A word is looked up at its last subword, where the decoder has read it whole;
    all subwords of a word have the same ancestors. The paper leaves both open.

    Args:
        pieces: its subwords, without marks
        sentences: what was parsed of it, in order

    Raises:
        ValueError: the sentences' letters are not the line's
    """
    tokens = [token for sentence in sentences for token in sentence.tokens]
    ancestors = []
    for sentence in sentences:
        before = len(ancestors)
        ancestors += [a + before if a >= 0 else -1 for a in sentence.ancestors]
    text, starts = letters(pieces)
    parsed, token_starts = letters(tokens)
    if text != parsed:
        raise ValueError(_difference(text, parsed))
    token_ends = [*token_starts[1:], len(parsed)]
    hints = []
    for index, start in enumerate(starts):
        token = bisect_right(token_starts, start) - 1
        ancestor = ancestors[token] if token >= 0 else -1
        if ancestor < 0:
            hints.append(index)
        else:
            hints.append(bisect_left(starts, token_ends[ancestor]))
    return hints


def hints_of_lines(
    lines: Iterable[str], parses: Iterable[Parse], kind: str, path: Path
) -> Iterator[list[int]]:
    """The hints of each line of subwords; a line may have been parsed as several sentences.

    Args:
        lines: of ``path``
        parses: of all lines, one after the other
        kind: "bpe" or "sentencepiece"
        path: for messages

    Raises:
        ValueError: naming the line where the parsed text is another, or sentences that are left
    """
    parses = iter(parses)
    for number, line in enumerate(lines, start=1):
        pieces = without_marks(line.split(), kind)
        missing = len(letters(pieces)[0])
        sentences = []
        while missing > 0 and (sentence := next(parses, None)) is not None:
            sentences.append(sentence)
            missing -= len(letters(sentence.tokens)[0])
        try:
            yield hints_of(pieces, sentences)
        except ValueError as error:
            raise ValueError(f"{path}: line {number}: {error}") from None
    if (sentence := next(parses, None)) is not None:
        text = " ".join(sentence.tokens)[:60]
        raise ValueError(f"{path} ends before the parsed sentences do: {text!r}")


def letters(pieces: Sequence[str]) -> tuple[str, list[int]]:
    """What is compared: letters without space, case and escapes; and where each piece begins."""
    raw = "".join(pieces)
    places, found, length = [], [], 0
    for match in _LETTER.finditer(raw):
        letter = _letter(match[0])
        places += [length] * len(match[0])
        found.append(letter)
        length += len(letter)
    places.append(length)
    starts, begin = [], 0
    for piece in pieces:
        starts.append(places[begin])
        begin += len(piece)
    return "".join(found), starts


def _letter(text: str) -> str:
    folded = unicodedata.normalize("NFKD", _MOSES.get(text, text)).casefold()
    return "".join(unicodedata.normalize("NFKD", folded).split())


def _difference(text: str, parsed: str) -> str:
    """Where two texts part, in a few letters."""
    place = next(
        (i for i, (a, b) in enumerate(zip(text, parsed, strict=False)) if a != b),
        min(len(text), len(parsed)),
    )
    begin = max(0, place - 10)
    return (
        f"the parsed text is another: ...{parsed[begin : place + 20]!r} where the subwords have "
        f"{text[begin : place + 20]!r}"
    )


class Hints:
    """The hints of all sentences, read from a file.

    Raises:
        ValueError: naming file and line of what is no hint
    """

    def __init__(self, path: Path):
        self.path = path
        flat, ends = [], [0]
        for number, line in enumerate(lines_of(path), start=1):
            flat.append(_numbers(line, f"{path}: line {number}"))
            ends.append(ends[-1] + len(flat[-1]))
        self._flat = np.concatenate(flat) if flat else np.empty(0, np.int32)
        self._ends = np.array(ends)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        """The hints of a sentence: (subwords,)."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._flat[self._ends[index] : self._ends[index + 1]]

    def lengths(self) -> np.ndarray:
        """Subwords of each sentence: (sentences,)."""
        return np.diff(self._ends)


def _numbers(line: str, where: str) -> np.ndarray:
    try:
        numbers = np.array(line.split(), dtype=np.int32)
    except (ValueError, OverflowError):
        raise ValueError(f"{where}: hints must be whole numbers, not {line[:60]!r}") from None
    wrong = np.flatnonzero((numbers < 0) | (numbers > np.arange(len(numbers))))
    if wrong.size:
        place = int(wrong[0])
        raise ValueError(
            f"{where}: hint {place + 1} must be from 0 to {place}, not {numbers[place]}"
        )
    return numbers
