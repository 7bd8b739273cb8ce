"""Applying subwords: subword-nmt's BPE, or sentencepiece."""

from functools import lru_cache, partial
from pathlib import Path

from subword_nmt.apply_bpe import BPE

# Words a process remembers the pieces of; subword-nmt would remember every word it ever saw.
CACHE = 500_000


def apply(kind: str, path: Path, lines: list[str]) -> list[str]:
    """Splits each line into subwords, separated by spaces.

    Args:
        kind: "bpe" or "sentencepiece".
        path: what `learn` wrote.
        lines: tokenised text.
    """
    return _load(kind, path, path.stat().st_mtime_ns)(lines)


@lru_cache(maxsize=1)
def _load(kind: str, path: Path, modified: int):
    """Loaded once in each process, and again if the file changes."""
    if kind == "sentencepiece":
        import sentencepiece

        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        return lambda lines: [" ".join(model.encode(line, out_type=str)) for line in lines]
    with open(path, encoding="utf-8", newline="\n") as codes:
        return partial(_apply_bpe, BPE(codes))


def _apply_bpe(bpe: BPE, lines: list[str]) -> list[str]:
    if len(bpe.cache) > CACHE:
        bpe.cache.clear()
    return [bpe.segment(line) for line in lines]
