"""Translations out of fairseq-generate's output, in the order of the corpus."""

from __future__ import annotations

import re
from pathlib import Path

from ..files import read_lines

_LINE = re.compile(r"([SD])-(\d+)\t(.*)")


def read_generated(path: Path) -> tuple[list[str], list[str]]:
    """Sources and best translations, as tokens without BPE marks, sorted by sentence number.

    fairseq-generate translates the sentences ordered by length and prints them so, several times
    with --nbest. A D line is ``D-<number> TAB <score> TAB <tokens>``, where the tokens may be
    none at all.

    Raises:
        ValueError: no translation in the file, or a sentence is missing between others.
    """
    sources: dict[int, str] = {}
    hypotheses: dict[int, str] = {}
    for line in read_lines(path):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        kind, number, text = match[1], int(match[2]), match[3]
        if kind == "S":
            sources[number] = text
        else:  # the best of --nbest comes first
            hypotheses.setdefault(number, text.partition("\t")[2])
    if not hypotheses:
        raise ValueError(f"{path}: no translation in it (lines that start with 'D-<number>')")
    missing = sorted(set(range(max(hypotheses) + 1)) - hypotheses.keys())
    if missing:
        shown = ", ".join(str(number) for number in missing[:5])
        raise ValueError(f"{path}: {len(missing)} sentences without translation: {shown} ...")
    order = range(len(hypotheses))
    return [sources.get(i, "") for i in order], [hypotheses[i] for i in order]
