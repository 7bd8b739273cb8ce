"""A recipe for one's own text: a file of one sentence a line for each language, or one TSV."""

from __future__ import annotations

import gzip
import math
import operator
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from ...corpus.config import LANGUAGE
from ...corpus.readers import column_of
from ...files import check_is_text, new_folder, write_lines

#: Pairs held out for each of validation and test, at most, and as a part of all.
MOST_HELD_OUT = 1000
PART_HELD_OUT = 20
#: Pairs from which on -> merges.
SUBWORDS = {0: 2000, 10_000: 6000, 100_000: 10_000, 1_000_000: 32_000}
#: Fewer pairs are refused; with fewer than the latter a warning says what to expect.
LEAST_PAIRS, FEW_PAIRS = 50, 5000

CORPUS = """\
# {count:,} pairs of sentences. All keys: ea_fairseq/corpus/config.py
source_lang: "{source}"
target_lang: "{target}"
files:
  train: {train}
# Drawn from the training text, the same ones every time; none of their sources is trained on.
hold_out: {{valid: {held}, test: {held}}}
seed: 1
tokenize:
  nfc: true            # letters and accents are one character, not two
  normalize: true      # one kind of quotation marks, dashes, spaces
  lowercase: false     # true: then `lowercase: true` in common.yml as well
clean:
  max: 250             # words of a training sentence
subword: bpe
subword_size: {merges}
dictionary: joint
"""

COMMON = """\
# What all models of this corpus share: see examples/translation/README.md of ea_fairseq.
# Batch, epochs, patience, warm-up and dropout are those for {count:,} pairs, {tokens:,} subwords
# of the longer side, and {updates:,} updates an epoch, about.
corpus: corpus.yml

train:                 # options of fairseq-train
  task: translation
  share-all-embeddings: true
  dropout: {dropout}
  optimizer: adam
  adam-betas: (0.9, 0.98)
  weight-decay: 1e-4
  lr: 1e-3
  lr-scheduler: inverse_sqrt
  warmup-updates: {warmup}
  criterion: label_smoothed_cross_entropy
  label-smoothing: 0.1
  # fairseq drops the last sentences of a data set that do not fill a multiple of 8.
  required-batch-size-multiple: 1
  max-tokens: {batch}     # tokens of a batch; fewer where the memory is not enough
  max-epoch: {epochs}
  patience: {patience}          # epochs without a better validation loss, and the training ends
  keep-last-epochs: 10
  # BLEU of greedy translations of the validation set, for the learning curves.
  eval-bleu: true
  eval-bleu-args: '{{"beam": 1, "max_len_a": 1.2, "max_len_b": 10}}'
  eval-bleu-remove-bpe: subword_nmt
  eval-tokenized-bleu: true

average:               # checkpoints that are averaged in the end
  num-epoch-checkpoints: 10

generate:              # options of fairseq-generate
  required-batch-size-multiple: 1
  beam: 5
  lenpen: 1
  max-len-b: 300       # subwords of a translation; fairseq's default is 200
  max-tokens: 4000
  post-process: subword_nmt

evaluate:
  lowercase: false
"""


@dataclass(frozen=True)
class Schedule:
    """How long and in which steps to train on a corpus of some size.

    Measured on Multi30K, German to English: see examples/translation/README.md.

    Attributes:
        batch: tokens of a batch: a power of two from 512 to 4,096, near a 50th of the corpus up to
            2,048, near a 250th beyond
        updates: in an epoch, about
        epochs: at most 50, or so many that there are 6,000 updates; never more than 300
        patience: epochs without a better validation loss: 5, or 1,000 updates' worth up to 10
        warmup: updates until the learning rate is highest: a tenth of all, at most 4,000
        dropout: 0.3 below 10,000 pairs, 0.2 below a million, else 0.1
    """

    batch: int
    updates: int
    epochs: int
    patience: int
    warmup: int
    dropout: float


def schedule(pairs: int, tokens: int) -> Schedule:
    """The schedule for a corpus.

    Args:
        pairs: of sentences
        tokens: subwords of the longer side, about
    """
    exponent = math.log2(max(tokens, 1))
    small = min(max(round(exponent - math.log2(50)), 9), 11)
    batch = 2 ** max(small, min(round(exponent - math.log2(250)), 12))
    updates = max(1, round(tokens / batch))
    epochs = min(max(50, math.ceil(6000 / updates)), 300)
    return Schedule(
        batch=batch,
        updates=updates,
        epochs=epochs,
        patience=min(max(5, round(1000 / updates)), 10),
        warmup=max(1, min(round(updates * epochs / 10), 4000)),
        dropout=0.3 if pairs < 10_000 else 0.2 if pairs < 1_000_000 else 0.1,
    )


@dataclass(frozen=True)
class NewRecipe:
    """What was written.

    Attributes:
        pairs: of sentences
        examples: some pairs, the first, the last and one between: number, source, target
    """

    pairs: int
    examples: list[tuple[int, str, str]]


def write_recipe(folder: Path, files: list[Path]) -> NewRecipe:
    """Write ``corpus.yml`` and ``common.yml`` for two files.

    Args:
        folder: to make; languages at the end of its name (``my.de-en``) must be those of the files
        files: source and target, of one name but for the language at its end: corpus.de corpus.en;
            or one .tsv of both, whose languages the folder's name says; with .gz behind it or not

    Returns:
        what the caller shows of it

    Raises:
        ValueError: naming the file or folder that does not fit.
    """
    if folder.exists():
        raise ValueError(f"--new {folder}: is there already; choose another name")
    named = re.search(r"\.([^.-]+)-([^.-]+)$", folder.name)
    both = len(files) == 1  # in one file
    source, target = _languages_of_tsv(folder, named, files) if both else languages_of(files)
    if named and named.groups() != (source, target):
        raise ValueError(
            f"--new {folder}: the files are of {source} and {target}, in this order; name the "
            f"folder {folder.name.removesuffix(named[0])}.{source}-{target}"
        )
    if set(folder.name) & set(": ,"):
        raise ValueError(f"--new {folder}: choose a name without space, comma and colon")
    sides = sides_of(files)
    (pairs, of_source), (others, of_target) = (_size(lines()) for lines in sides)
    if pairs != others:
        raise ValueError(
            f"--files: {files[0]} has {pairs:,} lines, {files[1]} has {others:,}: "
            "they must hold the same sentences"
        )
    if pairs < LEAST_PAIRS:
        raise ValueError(
            f"--files: {files[0]} has {pairs} lines: too few to train on: some thousand pairs show "
            "how everything works, some ten thousand make a model of use"
        )
    if all(map(operator.eq, *(lines() for lines in sides))):
        raise ValueError(
            f"--files: {source} and {target} are the same text: give source and translation"
        )
    # As seen from the recipe: both may be moved together.
    place = os.path.realpath(folder.parent) + os.sep + folder.name
    text = Path(os.path.realpath(files[0].parent), files[0].name)
    text = text if both else _plain(text).with_suffix("")
    path = os.path.relpath(text, place).replace("\\", "\\\\").replace('"', '\\"')
    tokens = max(of_source, of_target) // 4  # subwords, about: four characters each with spaces
    settings = {
        "count": pairs,
        "source": source,
        "target": target,
        "train": f'{{path: "{path}", format: tsv}}' if both else f'"{path}"',
        "held": max(1, min(MOST_HELD_OUT, pairs // PART_HELD_OUT)),
        "merges": max((least, size) for least, size in SUBWORDS.items() if pairs >= least)[1],
        "tokens": round(tokens, -max(len(str(tokens)) - 2, 0)),
        **vars(schedule(pairs, tokens)),
    }
    with new_folder(folder) as temporary:
        for name, text in {"corpus.yml": CORPUS, "common.yml": COMMON}.items():
            write_lines(temporary / name, text.format(**settings).rstrip("\n").split("\n"))
    return NewRecipe(pairs, _examples(sides, pairs))


def _languages_of_tsv(
    folder: Path, named: re.Match[str] | None, files: list[Path]
) -> tuple[str, str]:
    """The languages at the end of the folder's name, which a TSV's says nothing about."""
    file = files[0]
    if _plain(file).suffix != ".tsv":
        raise ValueError(
            f"--files {file}: give two files, such as corpus.de corpus.en, or one in .tsv with the "
            "source, a tab and the target in each line"
        )
    if not file.is_file():
        raise ValueError(f"--files {file}: no such file")
    if named is None or not all(map(LANGUAGE.fullmatch, named.groups())) or named[1] == named[2]:
        raise ValueError(
            f"--new {folder}: which languages {file} is of is said by the folder's name: my.de-en"
        )
    return named[1], named[2]


def sides_of(files: list[Path]) -> list[Callable[[], Iterator[str]]]:
    """What reads the source's lines, and the target's: of two files, or of the columns of one."""
    if len(files) == 2:
        return [partial(_lines, file) for file in files]
    return [partial(_column, files[0], column) for column in range(2)]


def _column(file: Path, column: int) -> Iterator[str]:
    return column_of(_lines(file), column, f"--files {file}")


def languages_of(files: list[Path]) -> tuple[str, str]:
    """The languages at the end of the names of two files.

    Raises:
        ValueError: the names differ in more, or a file is not there, or is there twice.
    """
    for file in files:
        if not file.is_file():
            raise ValueError(f"--files {file}: no such file")
        if file.suffix == ".gz" and _plain(file).exists():
            raise ValueError(
                f"--files {file}: {_plain(file).name} is there as well, and would be taken: give "
                "that one, or move one of them"
            )
    source, target = (_plain(file).suffix.removeprefix(".") for file in files)
    names = {_plain(file.absolute()).with_suffix("") for file in files}
    if len(names) != 1 or not source or not target:
        raise ValueError(
            f"--files {files[0]} {files[1]}: name them alike but for the language at the end, such "
            "as corpus.de corpus.en"
        )
    if source == target:
        raise ValueError(f"--files {files[0]} {files[1]}: give one file for each language")
    for file, language in zip(files, (source, target), strict=True):
        if not LANGUAGE.fullmatch(language):
            raise ValueError(
                f"--files {file}: {language} is no language code of letters, digits and _, which "
                "the name must end in: rename it"
            )
    return source, target


def _plain(file: Path) -> Path:
    """The name without what tells that the file is compressed."""
    return file.with_suffix("") if file.suffix == ".gz" else file


def _size(text: Iterator[str]) -> tuple[int, int]:
    """Numbers of lines and of characters."""
    lines = characters = 0
    for line in text:
        lines += 1
        characters += len(line)
    return lines, characters


def _examples(sides: list[Callable[[], Iterator[str]]], pairs: int) -> list[tuple[int, str, str]]:
    """The first pair, one in the middle and the last: where a line is missing, they do not fit."""
    found = []
    for number in sorted({0, pairs // 2, pairs - 1}):
        source, target = (next(islice(lines(), number, None)) for lines in sides)
        found.append((number + 1, source, target))
    return found


def _lines(file: Path) -> Iterator[str]:
    """The lines of a file without their ends.

    Raises:
        ValueError: naming the file, and the line that is not UTF-8.
    """
    try:
        with gzip.open(file) if file.suffix == ".gz" else open(file, "rb") as lines:
            for number, line in enumerate(lines, start=1):
                if number == 1:
                    check_is_text(line, f"--files {file}")
                yield line.decode().rstrip("\r\n").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise ValueError(
            f"--files {file}: line {number} is not UTF-8; make UTF-8 of it first: iconv -f "
            "LATIN1 -t UTF-8, or what it is"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"--files {file}: cannot be read: {error}") from None
