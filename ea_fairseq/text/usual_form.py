"""Characters that look alike and are others to a model: a line as its training text would have it.

Letters and accents are one character (Unicode's form NFC) or each a character (NFD: text out of
PDFs, names of files on macOS), and text of web pages has soft hyphens and spaces without width in
its words. Read as they come, they are words that a model never saw.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

# Soft hyphen; joiners, marks of direction and spaces, all without width; the byte order mark.
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]")


def accents_apart(line: str) -> bool:
    """Whether a line has accents, or parts of Korean syllables, apart that NFC would join."""
    if unicodedata.is_normalized("NFC", line):
        return False
    return any(len(unicodedata.normalize("NFC", each)) < len(each) for each in _letters(line))


class UsualForm:
    """Joins letters and accents as the text that a model was trained on mostly has them, and
    leaves out invisible characters that it does not have.

    Args:
        counts: tokens of that text, and how often each stood there
    """

    def __init__(self, counts: Iterable[tuple[str, int]]):
        self._apart: Counter[str] = Counter()  # accent -> how often it stands alone
        self._joined: Counter[str] = Counter()  # accent -> how often it is a part of a letter
        self._invisible: set[str] = set()
        for token, count in counts:
            if token.isascii():
                continue
            self._invisible.update(_INVISIBLE.findall(token))
            for character in token:
                if _is_accent(character):
                    self._apart[character] += count
                    continue
                parts = unicodedata.normalize("NFD", character)
                if unicodedata.normalize("NFC", parts) == character:
                    for part in parts[1:]:
                        self._joined[part] += count

    def __call__(self, line: str) -> str:
        """The line in that form; of most lines nothing changes."""
        line = _INVISIBLE.sub(lambda found: found[0] if found[0] in self._invisible else "", line)
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
