"""Which pairs of sentences to train on, or which lines of a language model's text."""

from .config import Cleaning
from .readers import Pair


def trainable(pair: Pair, cleaning: Cleaning, unit: str) -> bool:
    """Whether to train on a pair; see `why_dropped`."""
    return why_dropped(pair, cleaning, unit) is None


def why_dropped(pair: Pair, cleaning: Cleaning, unit: str) -> str | None:
    """Why not to train on a pair, in a few words; None for a pair to train on.

    Args:
        pair: strings of words or of subwords.
        cleaning: the limits.
        unit: "words" or "subwords", what the strings consist of. A pair with an empty side is
            never trainable, an empty line of a language model's text only where `min` is 0; the
            limits hold only if they are meant for this unit.
    """
    lengths = [len(side.split()) for side in pair]
    shorter, longer = min(lengths), max(lengths)
    if shorter == 0 and (len(pair) > 1 or cleaning.min > 0):
        return "empty"
    if unit != cleaning.unit:
        return None
    if shorter < cleaning.min:
        return f"less than {cleaning.min} {unit}"
    if longer > cleaning.max:
        return f"more than {cleaning.max} {unit}"
    if cleaning.ratio is not None and longer > cleaning.ratio * shorter:
        return f"one side more than {cleaning.ratio:g} times as long"
    return None
