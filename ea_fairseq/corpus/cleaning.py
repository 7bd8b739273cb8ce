"""Which pairs of sentences to train on."""

from .config import Cleaning


def trainable(source: str, target: str, cleaning: Cleaning, unit: str) -> bool:
    """Whether to train on a pair.

    Args:
        source, target: strings of words or of subwords.
        cleaning: the limits.
        unit: "words" or "subwords", what the strings consist of. An empty side is never
            trainable; the limits hold only if they are meant for this unit.
    """
    lengths = len(source.split()), len(target.split())
    shorter, longer = min(lengths), max(lengths)
    if shorter == 0:
        return False
    if unit != cleaning.unit:
        return True
    if shorter < cleaning.min or longer > cleaning.max:
        return False
    return cleaning.ratio is None or longer <= cleaning.ratio * shorter
