"""Training text of several parts: how often each pair is taken, and a tag before its source.

A weight repeats the pairs of a part, or leaves some of them out, evenly over the part: with 2.5,
each pair is there twice and every second one a third time; with 0.25 every fourth one is there.

A tag, such as ``<BT>`` for back-translated text (Caswell et al. 2019, arXiv 1906.06442), is the
first token of each source of a part. It is put there after tokenising and passed by where subwords
are learned and applied, so that it is one token of the dictionary.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fractions import Fraction

from .readers import Pair


@dataclass
class PartText:
    """The pairs of one part of a split, and what becomes of them; see config.Part."""

    pairs: Iterable[Pair]
    weight: float = 1
    tag: str | None = None

    def __post_init__(self) -> None:
        # Exact, 100 times 0.29 is 29; and whole numbers, for fractions take microseconds a pair.
        self._weight, self._whole = Fraction(str(self.weight)).as_integer_ratio()
        self._due = 0  # what earlier pairs left of a copy, of `_whole`

    def copies(self) -> int:
        """How often the next pair of the part is taken."""
        number, self._due = divmod(self._due + self._weight, self._whole)
        return number

    def tagged(self, source: str) -> str:
        """A tokenised source with the part's tag."""
        return source if self.tag is None else f"{self.tag} {source}"


def divide(line: str, tags: Collection[str]) -> tuple[str, str]:
    """The tag that a line of tokens begins with, its space included, and the rest."""
    if tags:
        first, space, rest = line.partition(" ")
        if first in tags:
            return first + space, rest
    return "", line
