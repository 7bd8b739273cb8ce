"""Where a sentence ends: rules over punctuation, and Moses' lists of abbreviations."""

from __future__ import annotations

import re
from functools import lru_cache

from sacremoses import MosesTokenizer

# The end of a sentence: its mark, closing quotation marks and brackets, and white space; Chinese
# and Japanese write none. A row of marks is looked at once, as a whole: some are thousands long.
_END = re.compile(
    r"""(?P<mark>(?<![.!?…])[.!?…]++)(?P<closing>(?:["'”’“«»›‹)\]]|\s[»›](?=\s))*)\s+"""
    r"""|[。！？]+[」』）”]*\s*"""
)
_LAST_WORD = re.compile(r"[^\s(\[\"'“„«»‚‘]*$")
_INITIALS = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]")  # of "U.S." and "Ph.D."
_NEAR = 30  # characters around a mark that are looked at: more than any abbreviation has
_OPENING = "\"'“„«»‚‘‹›([-–—¿¡ "


def split_sentences(text: str, lang: str) -> list[str]:
    """The sentences of a text, each without the white space around it.

    A full stop ends no sentence after an abbreviation or an initial of the language, between
    numbers, or before a small letter where the text has capital ones. Nothing but white space is
    lost.
    """
    has_capitals = any(c.isupper() for c in text)
    sentences = []
    start = 0
    for end in _END.finditer(text):
        if end["mark"] is not None and not _ends_here(text, end, lang, has_capitals):
            continue
        sentences.append(text[start : end.end()].strip())
        start = end.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _ends_here(text: str, end: re.Match[str], lang: str, has_capitals: bool) -> bool:
    """Whether a mark that white space follows is the end of a sentence."""
    following = text[end.end() : end.end() + _NEAR].lstrip(_OPENING)
    if not following:
        return True
    if has_capitals and following[0].islower():
        return False
    if end["mark"] != "." or end["closing"]:
        return True
    word = _LAST_WORD.search(text[max(0, end.start() - _NEAR) : end.start()])[0]
    always, before_numbers = _abbreviations(lang)
    if word in always or (len(word) == 1 and word.isalpha()):
        return False
    if word[:1].isupper() and _INITIALS.fullmatch(word):  # "5 p.m." may well end one
        return False
    return not (word in before_numbers and following[0].isdigit())


@lru_cache
def _abbreviations(lang: str) -> tuple[frozenset[str], frozenset[str]]:
    """Words whose full stop ends no sentence: always, and before a number alone.

    For languages without a list Moses takes the English one.
    """
    moses = MosesTokenizer(lang)
    before_numbers = frozenset(moses.NUMERIC_ONLY_PREFIXES)
    prefixes = frozenset(moses.NONBREAKING_PREFIXES) - before_numbers
    # Text that was lower-cased has its abbreviations in small letters.
    return prefixes | {prefix.lower() for prefix in prefixes if len(prefix) > 2}, before_numbers
