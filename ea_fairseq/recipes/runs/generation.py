"""Translations out of fairseq-generate's output, in the order of the corpus."""

from __future__ import annotations

import re
from pathlib import Path

from ...files import read_lines, shortened
from ...text.pieces import join_subwords

_LINE = re.compile(r"([HD])-(\d+)\t(.*)")
_SOURCE = re.compile(r"S-(\d+)\t")
_TARGET = re.compile(r"T-(\d+)\t(.*)")
_ANY_LINE = re.compile(r"[STHDPAE]-\d+\t")


def check_targets(path: Path, files: dict[Path, list[str]]) -> None:
    """Refuse references of other sentences than those that were translated.

    The output holds the target sentences of the data as T lines. They and the references are
    compared by their letters and digits alone, since either may be tokens or text; a few may
    differ, as the preparation may have changed them, but not most.

    Args:
        path: fairseq-generate's output
        files: name -> references, a sentence an item

    Raises:
        ValueError: more than half of the sentences differ from those of a file.
    """
    found = (_TARGET.fullmatch(line) for line in read_lines(path))
    targets = {int(match[1]): match[2] for match in found if match and "<unk>" not in match[2]}
    for name, references in files.items():
        differ = sorted(
            number
            for number, target in targets.items()
            if number >= len(references) or _letters(target) != _letters(references[number])
        )
        if 2 * len(differ) > len(targets):
            number = differ[0]
            there = shortened(references[number]) if number < len(references) else "nothing"
            raise ValueError(
                f"{name}: of another test set than {path}: of the sentences that were translated "
                f"{len(differ)} of {len(targets)} have another reference there; sentence "
                f"{number + 1} is {shortened(targets[number])!r} and {there!r}"
            )


def _letters(text: str) -> str:
    text = re.sub("&[a-z]+;|&#[0-9]+;", "", text)  # Moses' tokens of quotes and brackets
    return "".join(character for character in text.casefold() if character.isalnum())


def check_text_alone(files: dict[Path, list[str]]) -> None:
    """Refuse what commands print beside text where sentences alone are expected.

    Raises:
        ValueError: naming the file.
    """
    for name, lines in files.items():
        if any(_ANY_LINE.match(line) for line in lines):
            found = "lines of fairseq-generate's output; give that as --generated"
        elif lines and all(line.startswith('{"') for line in lines):
            found = "an object in every line, as ea-translate --json writes them"
        elif lines and all("\t" in line for line in lines):
            found = "a tab in every line, as ea-translate --scores and --alignments write them"
        else:
            continue
        raise ValueError(f"{name}: has {found}; a file with one sentence a line is needed")


def read_generated(path: Path) -> list[str]:
    """The best translations, as tokens without BPE marks, sorted by sentence number.

    fairseq-generate translates the sentences ordered by length and prints them so, several times
    with --nbest. A D line is ``D-<number> TAB <score> TAB <tokens>``, where the tokens may be
    none at all; the H line before it is the same before --bpe and --tokenizer decode it.

    Raises:
        ValueError: no translation in the file, a sentence is missing between others, or one was
            made text already; two outputs in the file.
    """
    found: dict[str, dict[int, str]] = {"H": {}, "D": {}}
    given = set()
    for line in read_lines(path):
        if source := _SOURCE.match(line):
            if source[1] in given:
                raise ValueError(
                    f"{path}: has two outputs of fairseq-generate, one behind the other: S-"
                    f"{source[1]} stands in it twice"
                )
            given.add(source[1])
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
