"""Which pairs of sentences to train on."""

from .config import Cleaning


def trainable(source: str, target: str, cleaning: Cleaning, unit: str) -> bool:
    """Whether to train on a pair; see `why_dropped`."""
    return why_dropped(source, target, cleaning, unit) is None


def why_dropped(source: str, target: str, cleaning: Cleaning, unit: str) -> str | None:
    """Why not to train on a pair, in a few words; None for a pair to train on.

    Args:
        source, target: strings of words or of subwords.
        cleaning: the limits.
        unit: "words" or "subwords", what the strings consist of. An empty side is never
            trainable; the limits hold only if they are meant for this unit.
    """
    lengths = len(source.split()), len(target.split())
    shorter, longer = min(lengths), max(lengths)
    if shorter == 0:
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
