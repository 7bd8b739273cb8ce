"""A recipe for one's own text: two files of one sentence a line, one for each language."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path

from ..corpus.config import LANGUAGE
from ..files import count_lines, new_folder, write_lines

#: Pairs held out for each of validation and test, at most, and as a part of all.
MOST_HELD_OUT = 1000
PART_HELD_OUT = 20
#: Pairs from which on -> merges.
SUBWORDS = {0: 2000, 10_000: 6000, 100_000: 10_000, 1_000_000: 32_000}

CORPUS = """\
# {count:,} pairs of sentences in two files. All keys: ea_fairseq/corpus/config.py
source_lang: "{source}"
target_lang: "{target}"
files:
  train: "{path}"
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
corpus: corpus.yml

train:                 # options of fairseq-train
  task: translation
  share-all-embeddings: true
  dropout: 0.3         # less for a large corpus: 0.1
  optimizer: adam
  adam-betas: (0.9, 0.98)
  weight-decay: 1e-4
  lr: 1e-3
  lr-scheduler: inverse_sqrt
  warmup-updates: 2000
  criterion: label_smoothed_cross_entropy
  label-smoothing: 0.1
  # fairseq drops the last sentences of a data set that do not fill a multiple of 8.
  required-batch-size-multiple: 1
  max-tokens: 4096     # tokens of a batch; fewer where the memory is not enough
  max-epoch: 50
  patience: 5          # epochs without a better validation loss, and the training ends
  keep-last-epochs: 10
  # BLEU of greedy translations of the validation set, for the learning curves.
  eval-bleu: true
  eval-bleu-args: '{"beam": 1, "max_len_a": 1.2, "max_len_b": 10}'
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


def write_recipe(folder: Path, files: list[Path]) -> int:
    """Write ``corpus.yml`` and ``common.yml`` for two files.

    Args:
        folder: to make; languages at the end of its name (``my.de-en``) must be those of the files
        files: source and target, of one name but for the language at its end: corpus.de corpus.en,
            or with .gz behind it

    Returns:
        the number of pairs

    Raises:
        ValueError: naming the file or folder that does not fit.
    """
    if folder.exists():
        raise ValueError(f"--new {folder}: is there already; choose another name")
    source, target = languages_of(files)
    named = re.search(r"\.([^.-]+)-([^.-]+)$", folder.name)
    if named and named.groups() != (source, target):
        raise ValueError(
            f"--new {folder}: the files are of {source} and {target}, in this order; name the "
            f"folder {folder.name.removesuffix(named[0])}.{source}-{target}"
        )
    if set(folder.name) & set(": ,"):
        raise ValueError(f"--new {folder}: choose a name without space, comma and colon")
    counts = [_lines(file) for file in files]
    if counts[0] != counts[1]:
        raise ValueError(
            f"--files: {files[0]} has {counts[0]:,} lines, {files[1]} has {counts[1]:,}: "
            "they must hold the same sentences"
        )
    if counts[0] < 3:
        raise ValueError(f"--files: {files[0]} has {counts[0]} lines: too few to train on")
    path = str(_plain(files[0].absolute()).with_suffix(""))
    settings = {
        "count": counts[0],
        "source": source,
        "target": target,
        "path": path.replace("\\", "\\\\").replace('"', '\\"'),
        "held": max(1, min(MOST_HELD_OUT, counts[0] // PART_HELD_OUT)),
        "merges": max((least, size) for least, size in SUBWORDS.items() if counts[0] >= least)[1],
    }
    with new_folder(folder) as temporary:
        write_lines(temporary / "corpus.yml", CORPUS.format(**settings).rstrip("\n").split("\n"))
        write_lines(temporary / "common.yml", COMMON.rstrip("\n").split("\n"))
    return counts[0]


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


def _lines(file: Path) -> int:
    try:
        with gzip.open(file) if file.suffix == ".gz" else open(file, "rb") as lines:
            return count_lines(lines, f"--files {file}")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"--files {file}: cannot be read: {error}") from None
