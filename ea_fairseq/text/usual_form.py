"""Normalises look-alike characters to those of the model's training text.

Letters and accents are one character (Unicode's form NFC) or each a character (NFD: text out of
PDFs, names of files on macOS), and text of web pages has soft hyphens and spaces without width in
its words. Read as they come, they are words that a model never saw.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from .processing import TextSettings

# Soft hyphen; spaces without width, marks of direction; of emoji; the byte order mark. Not the
# joiners U+200C and U+200D, which change what words of Persian and of India's scripts say.
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe0e\ufe0f\ufeff]"
)
# What is a smaller part of a text was there by chance.
_SELDOM = 1e-5


def accents_apart(line: str) -> bool:
    """Whether a line has accents, or parts of Korean syllables, apart that NFC would join."""
    if unicodedata.is_normalized("NFC", line):
        return False
    return any(len(unicodedata.normalize("NFC", each)) < len(each) for each in _letters(line))


class UsualForm:
    """Joins letters and accents as the text that a model was trained on mostly has them, and
    leaves out invisible characters that it hardly has.

    Tokens of bytes, and text that comes split into tokens, stay as they are; so do the invisible
    characters where the model's own settings make spaces of them.

    Args:
        counts: tokens of that text, and how often each stood there
        settings: how it became tokens
    """

    def __init__(self, counts: Iterable[tuple[str, int]], settings: TextSettings):
        tokenize = settings.tokenize
        split_already = tokenize.tokenizer == "none" and settings.subword == "none"
        self._any = not split_already and settings.subword != "bytes"
        self._leaves_out = (
            "test" not in tokenize.printable_only and settings.subword != "sentencepiece"
        )
        self._apart: Counter[str] = Counter()  # accent -> how often it stands alone
        self._joined: Counter[str] = Counter()  # accent -> how often it is a part of a letter
        self._invisible: Counter[str] = Counter()
        total = 0
        for token, count in counts:
            total += count
            if not token.isascii():
                self._count(token, count)
        self._seldom = _SELDOM * total

    def __call__(self, line: str) -> str:
        """The line in that form; of most lines nothing changes."""
        if not self._any:
            return line
        if self._leaves_out:
            line = _INVISIBLE.sub(self._kept, line)
        if not accents_apart(line):
            return line
        return "".join(self._usual_letter(letter) for letter in _letters(line))

    def _count(self, token: str, count: int) -> None:
        for character in _INVISIBLE.findall(token):
            self._invisible[character] += count
        for letter in _letters(token):
            # Torn off, or apart beside its letter; others have no joined form that could be meant.
            if unicodedata.combining(letter[0]):
                self._apart[letter[0]] += count
            for accent in _joins(letter):
                self._apart[accent] += count
            for character in letter:
                parts = unicodedata.normalize("NFD", character)
                if unicodedata.normalize("NFC", parts) == character:
                    for part in parts[1:]:
                        self._joined[part] += count

    def _kept(self, found: re.Match[str]) -> str:
        return found[0] if self._invisible[found[0]] > self._seldom else ""

    def _usual_letter(self, letter: str) -> str:
        accents = _joins(letter)
        if not accents or sum(self._joined[each] - self._apart[each] for each in accents) < 0:
            return letter
        return unicodedata.normalize("NFC", letter)


def _joins(letter: str) -> list[str]:
    """The accents of a letter that NFC would join with it, or with each other."""
    joined = unicodedata.normalize("NFC", letter)
    if len(joined) >= len(letter):
        return []
    return [part for part in letter if _is_accent(part) and part not in joined]


def _letters(line: str) -> list[str]:
    """Each character of a line with the accents behind it."""
    starts = [i for i, character in enumerate(line) if i == 0 or not _is_accent(character)]
    return [line[start:end] for start, end in pairwise([*starts, len(line)])]


def _is_accent(character: str) -> bool:
    """Whether a character belongs to the one before: a mark, or a vowel or a final consonant
    (U+1161 to U+1175, U+11A8 to U+11C2) of a Korean syllable."""
    korean = "\u1161" <= character <= "\u1175" or "\u11a8" <= character <= "\u11c2"
    return korean or unicodedata.category(character)[0] == "M"
