"""Letters and their accents: one character (Unicode's form NFC) or each a character (NFD).

Both look the same and are different tokens: text of the other form than a model was trained on
reads as words that it never saw. Files from macOS and text copied out of PDFs come as NFD.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable


def accents_apart(line: str) -> bool:
    """Whether a line has accents, or parts of Korean syllables, apart that NFC would join."""
    if unicodedata.is_normalized("NFC", line):
        return False
    return any(len(unicodedata.normalize("NFC", each)) < len(each) for each in _letters(line))


class Composition:
    """Joins letters and accents as the text that a model was trained on mostly has them.

    Args:
        counts: tokens of that text, and how often each stood there
    """

    def __init__(self, counts: Iterable[tuple[str, int]]):
        self._apart: Counter[str] = Counter()  # accent -> how often it stands alone
        self._joined: Counter[str] = Counter()  # accent -> how often it is a part of a letter
        for token, count in counts:
            if token.isascii():
                continue
            for character in token:
                if _is_accent(character):
                    self._apart[character] += count
                    continue
                parts = unicodedata.normalize("NFD", character)
                if unicodedata.normalize("NFC", parts) == character:
                    for part in parts[1:]:
                        self._joined[part] += count

    def __call__(self, line: str) -> str:
        """The line, its letters joined with those accents that are no characters of the text."""
        if not accents_apart(line):
            return line
        return "".join(self._joined_letter(letter) for letter in _letters(line))

    def _joined_letter(self, letter: str) -> str:
        joined = unicodedata.normalize("NFC", letter)
        if len(joined) >= len(letter):
            return letter
        gone = [part for part in letter if _is_accent(part) and part not in joined]
        usual = sum(self._joined[part] - self._apart[part] for part in gone) >= 0
        return joined if usual else letter


def _letters(line: str) -> list[str]:
    """Each character of a line with the accents behind it."""
    letters: list[str] = []
    for character in line:
        if letters and _is_accent(character):
            letters[-1] += character
        else:
            letters.append(character)
    return letters


def _is_accent(character: str) -> bool:
    """Whether a character belongs to the one before: a combining mark, or a vowel or a final
    consonant (U+1161 to U+1175, U+11A8 to U+11C2) of a Korean syllable."""
    korean = "\u1161" <= character <= "\u1175" or "\u11a8" <= character <= "\u11c2"
    return korean or unicodedata.combining(character) != 0
