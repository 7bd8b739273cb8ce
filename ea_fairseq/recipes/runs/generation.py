"""Translations out of fairseq-generate's output, in the order of the corpus."""

from __future__ import annotations

import re
from pathlib import Path

from ...files import read_lines
from ...text.pieces import join_subwords

_LINE = re.compile(r"([HD])-(\d+)\t(.*)")


def read_generated(path: Path) -> list[str]:
    """The best translations, as tokens without BPE marks, sorted by sentence number.

    fairseq-generate translates the sentences ordered by length and prints them so, several times
    with --nbest. A D line is ``D-<number> TAB <score> TAB <tokens>``, where the tokens may be
    none at all; the H line before it is the same before --bpe and --tokenizer decode it.

    Raises:
        ValueError: no translation in the file, a sentence is missing between others, or one was
            made text already.
    """
    found: dict[str, dict[int, str]] = {"H": {}, "D": {}}
    for line in read_lines(path):
        match = _LINE.fullmatch(line)
        if match is not None:  # the best of --nbest comes first
            found[match[1]].setdefault(int(match[2]), match[3].partition("\t")[2])
    hypotheses = found["D"]
    if not hypotheses:
        raise ValueError(f"{path}: no translation in it (lines that start with 'D-<number>')")
    missing = sorted(set(range(max(hypotheses) + 1)) - hypotheses.keys())
    if missing:
        shown = ", ".join(str(number) for number in missing[:5])
        raise ValueError(f"{path}: {len(missing)} sentences without translation: {shown} ...")
    for number, tokens in found["H"].items():
        words = [join_subwords(tokens.split(), kind) for kind in ("none", "bpe", "sentencepiece")]
        if number in hypotheses and all(hypotheses[number].split() != made for made in words):
            raise ValueError(
                f"{path}: D-{number} is not made of the tokens of H-{number}: translate without "
                "--tokenizer, and with --post-process in place of --bpe: tokens are scored"
            )
    return [hypotheses[i] for i in range(len(hypotheses))]
