"""Dependency trees, of which one thing is kept: each token's nearest ancestor to its left."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..files import lines_of, shortened

_ID = re.compile(r"(\d{1,9})(?:(-|\.)(\d{1,9}))?")
_HEAD = re.compile(r"\d{1,9}")


@dataclass(frozen=True)
class Parse:
    """A parsed sentence.

    Attributes:
        tokens: as they stand in the text
        ancestors: of each token, the index of its nearest ancestor that stands to its left; -1 for
            none
    """

    tokens: tuple[str, ...]
    ancestors: tuple[int, ...]


def parse(
    tokens: Sequence[str], heads: Sequence[int], token_of: Sequence[int] | None = None
) -> Parse:
    """Climbs the tree from every token.

    Args:
        tokens: as they stand in the text
        heads: of each word, the index of its head, or -1 for a root
        token_of: of each word, the index of its token, in order, where tokens are made of several
            words (German "im" of "in" and "dem"); default: a token is a word

    Raises:
        ValueError: a head is no word, or a word never comes to a root
    """
    if token_of is None:
        token_of = range(len(heads))
    _check(heads)
    ancestors = []
    for token in range(len(tokens)):
        # From a token's first word, over all that stands in it or to its right.
        above = heads[bisect_left(token_of, token)]
        while above >= 0 and token_of[above] >= token:
            above = heads[above]
        ancestors.append(token_of[above] if above >= 0 else -1)
    return Parse(tuple(tokens), tuple(ancestors))


def _check(heads: Sequence[int]) -> None:
    """Every word comes to a root."""
    rooted: set[int] = set()
    for word in range(len(heads)):
        path = []
        while word >= 0 and word not in rooted:
            if word >= len(heads):
                raise ValueError(f"head {word + 1} is none of {len(heads)} words")
            if len(path) > len(heads):
                raise ValueError(f"word {path[0] + 1} never comes to a root")
            path.append(word)
            word = heads[word]
        rooted.update(path)


def read_conllu(path: Path) -> Iterator[Parse]:
    """The sentences of a CoNLL-U file (https://universaldependencies.org/format.html).

    Multiword tokens (``1-2``) are tokens of the text; empty nodes (``1.1``) are left out.

    Raises:
        ValueError: naming file and line of what cannot be read
    """
    block: list[tuple[int, str]] = []
    for number, line in enumerate(lines_of(path), start=1):
        if line.strip():
            block.append((number, line))
        elif block:
            yield from _sentence(path, block)
            block = []
    yield from _sentence(path, block)


def _sentence(path: Path, block: list[tuple[int, str]]) -> Iterator[Parse]:
    tokens: list[str] = []
    heads: list[int] = []
    token_of: list[int] = []
    until = 0  # the last word of the multiword token that was begun
    for number, line in block:
        if line.startswith("#"):
            continue
        where = f"{path}: line {number}"
        columns = line.rstrip("\r").split("\t")
        found = _ID.fullmatch(columns[0])
        if len(columns) != 10 or found is None:
            raise ValueError(f"{where}: not ten columns of CoNLL-U with an ID first: {line[:60]!r}")
        first, kind, last = found.groups()
        if kind == ".":
            continue
        if int(first) != len(heads) + 1:
            raise ValueError(f"{where}: ID {columns[0]} where {len(heads) + 1} is expected")
        if kind == "-":
            if until >= int(first) or int(last) < int(first):
                raise ValueError(
                    f"{where}: ID {columns[0]} overlaps the token before, or ends first"
                )
            until = int(last)
            tokens.append(columns[1])
            continue
        if int(first) > until:
            tokens.append(columns[1])
        if not _HEAD.fullmatch(columns[6]):
            raise ValueError(f"{where}: HEAD must be a number, not {shortened(columns[6])!r}")
        heads.append(int(columns[6]) - 1)
        token_of.append(len(tokens) - 1)
    if until > len(heads):
        raise ValueError(f"{path}: line {block[-1][0]}: the token {until} is not there")
    if tokens:
        try:
            yield parse(tokens, heads, token_of)
        except ValueError as error:
            raise ValueError(f"{path}: sentence before line {block[-1][0] + 1}: {error}") from None
