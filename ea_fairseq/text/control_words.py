"""fairseq's own symbols where a text contains them as words: unknown words there."""

UNKNOWN = "<unk>"
_WORDS = ("<s>", "<pad>", "</s>")


def found_in(text: str) -> list[str]:
    """Which of the words stand in a text."""
    if not any(word in text for word in _WORDS):
        return []
    words = text.split()
    return [word for word in _WORDS if word in words]


def as_unknown(text: str) -> str:
    """The text with the unknown word in the place of each of them."""
    if not found_in(text):
        return text
    return " ".join(UNKNOWN if word in _WORDS else word for word in text.split())


def message(words: list[str]) -> str:
    """What a warning says about such words, behind the line they stand in."""
    return f"{' and '.join(words)} in a text: taken for an unknown word, not for fairseq's symbol"
