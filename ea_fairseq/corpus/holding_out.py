"""Validation and test sets out of training text, for corpora that come as two files.

Drawn are different sources: of pairs with the same source, wherever they stand, at most one is
held out and none is trained on. Which ones is decided by a hash of the source and the seed, so
that the same text gives the same sets, and a text that grows keeps most of them.
"""

import hashlib
import heapq
from collections.abc import Iterable

from ..text.tokens import clean_line
from .cleaning import trainable
from .config import Cleaning
from .readers import Pair


def key(source: str, seed: int) -> int:
    """The number by which a clean source is drawn; spaces and case make no difference."""
    text = " ".join(source.casefold().split())
    return int.from_bytes(hashlib.sha256(f"{seed}\t{text}".encode()).digest()[:8])


def draw(
    pairs: Iterable[Pair], sizes: dict[str, int], seed: int, cleaning: Cleaning, nfc: bool = False
) -> dict[int, str]:
    """Draws pairs that are fit for training, as far as words between spaces tell.

    Args:
        pairs: the training text, as it stands in its files.
        sizes: split -> number of pairs.
        seed: of the choice.
        cleaning: the limits for training.
        nfc: whether letters and accents become one character, as in preparation.

    Returns:
        `key` of each source drawn -> its split.

    Raises:
        ValueError: there are not that many different sources.
    """
    wanted = sum(sizes.values())
    heap: list[int] = []  # the smallest keys, negative: the largest of them comes first
    drawn: set[int] = set()
    for pair in pairs:
        clean = tuple(clean_line(line, nfc) for line in pair)
        if not trainable(clean, cleaning, unit=cleaning.unit):
            continue
        number = key(clean[0], seed)
        if number in drawn or (len(heap) == wanted and number >= -heap[0]):
            continue
        drawn.add(number)
        if len(heap) < wanted:
            heapq.heappush(heap, -number)
        else:
            drawn.remove(-heapq.heapreplace(heap, -number))
    if len(heap) < wanted:
        shown = ", ".join(f"{split}: {size}" for split, size in sizes.items())
        raise ValueError(
            f"hold_out asks for {wanted} pairs ({shown}), and the training text has {len(heap)} "
            "different sources that are fit"
        )
    order = sorted(drawn)
    splits = [split for split, size in sizes.items() for _ in range(size)]
    # Neighbours in the order of a hash have nothing to do with each other.
    return dict(zip(order, splits, strict=True))
