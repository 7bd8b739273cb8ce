"""From a raw line to tokens and back: cleaning, normalising, tokenising, detokenising."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

# Control characters and Unicode's line and paragraph separators: other programs would break a
# line or a token there. A non-breaking space stays: the punctuation rules look at it.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def clean_line(line: str, nfc: bool = False) -> str:
    """`line` without surrounding space, a space in place of each control character.

    Args:
        nfc: whether letters and their accents become one character, Unicode's form NFC
    """
    line = _CONTROL.sub(" ", line).strip()
    return unicodedata.normalize("NFC", line) if nfc else line


@dataclass(frozen=True)
class Tokenization:
    """How a line becomes tokens: key `tokenize` of a corpus.yml.

    The keys that hold a list take true, false, or some of train/valid/test.
    """

    tokenizer: str = "moses"  # moses, or none for text that is tokenised already
    # Unicode's form NFC: letters and accents written apart become one character. Of raw/ as well,
    # so that test sets are scored in the form that the model writes.
    nfc: tuple[str, ...] = ()
    normalize: tuple[str, ...] = ()  # unify quotation marks, dashes, spaces
    straight_apostrophes: tuple[str, ...] = ()  # ’ becomes '
    printable_only: tuple[str, ...] = ()  # a space in place of invisible characters
    lowercase: bool = False
    escape: bool = False  # & < > | ' " [ ] as XML entities, as Moses' Perl scripts do
    split_hyphens: bool = False  # foo-bar becomes foo @-@ bar

    def as_json(self) -> dict[str, Any]:
        """What files keep of it: keys that came later only where they say something, so that it
        stays what earlier versions wrote and read."""
        settings = {key: [*v] if isinstance(v, tuple) else v for key, v in asdict(self).items()}
        return {key: value for key, value in settings.items() if key != "nfc" or value}


class _FastMosesTokenizer(MosesTokenizer):
    """sacremoses' tokenizer with its character sets built once instead of for every token."""

    _lower = frozenset(MosesTokenizer.IsLower)
    _alpha = frozenset(MosesTokenizer.IsAlpha)

    def __init__(self, lang: str):
        super().__init__(lang)
        self.NONBREAKING_PREFIXES = frozenset(self.NONBREAKING_PREFIXES)
        self._alpha = frozenset(self.IsAlpha)  # the parent class widens it for some languages

    def islower(self, text: str) -> bool:
        return self._lower.issuperset(text)

    def isanyalpha(self, text: str) -> bool:
        return not self._alpha.isdisjoint(text)


class Tokenizer:
    """Turns a clean line into space-separated tokens.

    Args:
        lang: language code; decides on abbreviations, apostrophes and quotation marks.
        settings: the corpus' `tokenize` settings.
        kind: "train", "valid" or "test"; some settings hold for some of them only.
        subword: "bpe" or "sentencepiece", whose marker must not appear in the text; or "none".
    """

    def __init__(self, lang: str, settings: Tokenization, kind: str, subword: str):
        self.settings = settings
        self.straighten = kind in settings.straight_apostrophes
        self.printable = kind in settings.printable_only
        self.subword = subword
        self.moses = _FastMosesTokenizer(lang) if settings.tokenizer == "moses" else None
        self.substitutions = []
        if kind in settings.normalize:
            rules = MosesPunctNormalizer(lang).substitutions
            self.substitutions = [(re.compile(pattern), by) for pattern, by in rules]

    def __call__(self, line: str) -> str:
        if self.straighten:
            line = line.replace("’", "'")
        if self.substitutions:
            for pattern, by in self.substitutions:
                line = pattern.sub(by, line)
            line = line.strip()
        if self.printable:
            line = "".join(c if c.isprintable() or c.isspace() else " " for c in line)
        if self.moses:
            line = self.moses.tokenize(
                line,
                aggressive_dash_splits=self.settings.split_hyphens,
                escape=self.settings.escape,
                return_str=True,
            )
        if self.settings.lowercase:
            line = line.lower()
        return " ".join(protect_marker(line, self.subword).split())


def protect_marker(line: str, subword: str) -> str:
    """Changes what looks like the mark of a subword, so that restoring words cannot be misled.

    BPE writes "@@" after a piece that continues: every "@@" of the text becomes "@ @", which is
    also what the Moses rules do. sentencepiece writes U+2581 before a word: it becomes "_".
    """
    if subword == "bpe":
        return re.sub("@(?=@)", "@ ", line)
    if subword == "sentencepiece":
        return line.replace("\u2581", "_")
    return line


def detokenize(tokens: list[str], lang: str) -> list[str]:
    """Undo Moses tokenization."""
    join = detokenizer(lang)
    return [join(line.split()) for line in tokens]


# A time of day, which Moses' rules tear apart: "1 : 35" would become "1: 35".
_TIME = re.compile(r"\b(\d{1,2}) : (?=\d\d\b)")
# Arabic, Persian, Urdu and Indian marks, of which Moses' rules know none.
_MARK = re.compile(r" (?=[\u061f\u060c\u061b\u06d4\u0964\u0965](?: |$))")
# Quotation marks of which Moses' rules know none either; in French spaces belong there.
_QUOTED = re.compile(r"« ([^«»]*) »")

# Codes of three letters, of languages that are scored or joined by rules of their own.
_TWO_LETTERS = {
    **dict(zho="zh", chi="zh", cmn="zh", yue="zh", jpn="ja", kor="ko"),
    **dict(tha="th", khm="km", lao="lo", mya="my", bur="my"),
}


def plain_language(language: str) -> str:
    """The code of a language alone, of one such as "EN", "pt_BR" or "zho_Hans"."""
    code = re.split("[_-]", language.lower())[0]
    return _TWO_LETTERS.get(code, code)


def has_usual_form(language: str) -> bool:
    """Whether a language's code has the form by which Moses' rules know languages."""
    return re.fullmatch("[a-z]{2}", language) is not None


def detokenizer(lang: str) -> Callable[[list[str]], str]:
    """What makes a line of tokens, in a language."""
    # Of Korean alone sacremoses keeps the spaces between words. Its rules for Czech look for a
    # decimal number at the end of the line, not where they are: those without a language do not.
    plain = plain_language(lang)
    join = MosesDetokenizer(lang={"ko": "ko", "cs": ""}.get(plain, lang)).detokenize

    def joined(tokens: list[str]) -> str:
        line = _MARK.sub("", join(_TIME.sub(r"\1:", " ".join(tokens)).split(" ")))
        return line if plain == "fr" else _QUOTED.sub(r"«\1»", line)

    return joined
