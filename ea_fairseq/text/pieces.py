"""Words of subwords; needs no other package, since every command of fairseq's reads it."""

from __future__ import annotations


def join_subwords(tokens: list[str], subword: str) -> list[str]:
    """Words of subwords, as fairseq's ``--post-process`` makes them."""
    if subword == "bpe":
        return (" ".join(tokens) + " ").replace("@@ ", "").split()
    if subword == "sentencepiece":
        return "".join(tokens).replace("\u2581", " ").split()
    return tokens
