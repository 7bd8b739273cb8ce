"""``fairseq-preprocess`` does not mix data of different dictionaries in one folder.

Replaced in fairseq:
- ``utils.import_user_module``, with which that command begins: looks at its options. With
  ``--srcdict`` or ``--tgtdict`` it wrote that dictionary over the one in ``--destdir``, whatever
  other data lay there: their numbers then meant other words, and a model was trained on them.
  Limits of a dictionary that is given, or of the target's where there is one for both languages,
  alignments that are not there, and ``--bpe`` and ``--tokenizer`` were left out without a word;
  files of different length, or training text without a word, became data that no training takes; a
  folder with a dictionary, no text to make one of, and formats that it cannot write ended in
  tracebacks; data in fairseq's oldest format cannot be trained on (see `binarized_data`).
"""

from __future__ import annotations

import argparse
import codecs
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fairseq import utils
from fairseq.data import Dictionary

from ...errors import UserError
from ...files import count_lines


def check(args: argparse.Namespace) -> None:
    """Refuse what would be wrong or without effect.

    Args:
        args: the options of ``fairseq-preprocess``.

    Raises:
        UserError: naming the file or the option.
    """
    _check_format(args)
    _check_splitting(args)
    _check_limits(args)
    _check_files(args)
    _check_training_text(args)
    for language, given in _dictionaries(args):
        _check_dictionary(args, language, given)
    _check_new_dictionaries(args)


def _dictionaries(args: argparse.Namespace) -> Iterator[tuple[str | None, str]]:
    """Each language, None for that of a text alone, whose dictionary is given, and that."""
    source, target = args.srcdict, args.tgtdict
    if args.joined_dictionary:
        source = target = source or target
    if source:
        yield args.source_lang, source
    if target and not args.only_source:
        yield args.target_lang, target


def _check_limits(args: argparse.Namespace) -> None:
    for side, given in (("src", args.srcdict), ("tgt", args.tgtdict)):
        of_both = args.joined_dictionary and side == "tgt"
        for name, none in (("threshold", 0), ("nwords", -1)):
            value = getattr(args, name + side)
            if value == none or of_both and value == getattr(args, f"{name}src"):
                continue
            if given or args.joined_dictionary and (args.srcdict or args.tgtdict):
                raise UserError(
                    f"--{name}{side} {value} has no effect on a dictionary that is given: leave it "
                    "out, or the dictionary"
                )
            if of_both:
                raise UserError(
                    f"--{name}tgt {value} has no effect with --joined-dictionary: give --{name}src "
                    f"{value}, which is for the words of both languages"
                )


def _check_format(args: argparse.Namespace) -> None:
    problems = {
        **dict.fromkeys(("fasta", "huffman"), "fairseq-preprocess cannot write it"),
        **dict.fromkeys(("lazy", "cached"), "several processes cannot read it"),
    }
    if problem := problems.get(args.dataset_impl):
        raise UserError(
            f"--dataset-impl {args.dataset_impl}: {problem}: choose mmap, the default, or raw"
        )


def _check_splitting(args: argparse.Namespace) -> None:
    for name in ("bpe", "tokenizer"):
        if getattr(args, name) is not None:
            raise UserError(
                f"--{name} has no effect on fairseq-preprocess, which takes text that is tokenised "
                "and split: leave it out"
            )


def _check_files(args: argparse.Namespace) -> None:
    if args.dict_only:
        return
    for name in ("trainpref", "validpref", "testpref"):
        prefixes = getattr(args, name)
        if prefixes and args.align_suffix:
            path = f"{prefixes}.{args.align_suffix}"
            if not os.path.exists(path):
                raise UserError(f"--align-suffix {args.align_suffix}: {path} does not exist")
        for prefix in (prefixes or "").split(",") if not args.only_source else ():
            paths = [f"{prefix}.{lang}" for lang in (args.source_lang, args.target_lang)]
            if not all(map(os.path.isfile, paths)):
                continue  # fairseq names it
            source, target = map(_lines, paths)
            if source != target:
                raise UserError(
                    f"{paths[0]} has {source} lines and {paths[1]} has {target}: each must be the "
                    "translation of the other's at its place"
                )


def _lines(path: str) -> int:
    with open(path, "rb") as file:
        return count_lines(file, path)


def _check_training_text(args: argparse.Namespace) -> None:
    """Without a word there is nothing to learn, and a dictionary would have no entry."""
    sides = [args.source_lang] if args.only_source else [args.source_lang, args.target_lang]
    for language in sides if args.trainpref else ():
        path = f"{args.trainpref}.{language}" if language else args.trainpref
        if os.path.isfile(path) and not _has_words(path):  # fairseq names one that is not there
            raise UserError(f"{path} has no word in it: there is nothing to train on")


def _has_words(path: str) -> bool:
    with open(path, "rb") as file:
        return any(line.removeprefix(codecs.BOM_UTF8).strip() for line in file)


def _check_new_dictionaries(args: argparse.Namespace) -> None:
    """Those that are not given are made of the training text, beside no other."""
    sides = [("src", args.source_lang)]
    if not args.only_source:
        sides.append(("tgt", args.target_lang))
    for side, language in sides:
        if getattr(args, f"{side}dict"):
            continue
        joined = args.joined_dictionary and (args.srcdict or args.tgtdict)
        if not args.trainpref and not joined:
            raise UserError(f"--{side}dict is missing, or --trainpref, to make a dictionary of")
        end = f".{language}" if language else ""
        if (there := Path(args.destdir, f"dict{end}.txt")).exists():
            raise UserError(
                f"{there} exists: for more data of it give --{side}dict {there}"
                + (", without --joined-dictionary" if args.joined_dictionary else "")
                + "; else another --destdir"
            )


def _check_dictionary(args: argparse.Namespace, language: str | None, given: str) -> None:
    end = f".{language}" if language else ""
    there = Path(args.destdir, f"dict{end}.txt")
    if not there.exists() or Dictionary.load(given).symbols == Dictionary.load(str(there)).symbols:
        return
    written = set() if args.dict_only else {file + end for file in _written(args)}
    pairs = f"*-*{end}" if language else "*"
    for file in sorted(Path(args.destdir).glob(f"{pairs}.idx")):
        if file.stem not in written:
            raise UserError(
                f"{given} has other entries than {there}, and {file} is numbered by the latter: "
                "give another --destdir, or the dictionary that is there"
            )


def _written(args: argparse.Namespace) -> Iterator[str]:
    """What the command writes, without a language and the endings of files."""
    pair = f".{args.source_lang}-{args.target_lang}" if args.source_lang else ""
    for split in ("train", "valid", "test"):
        prefixes = getattr(args, f"{split}pref")
        count = len(prefixes.split(",")) if prefixes else 0
        for number in range(min(count, 1) if split == "train" else count):
            yield f"{split}{number or ''}{pair}"


def _look_first(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def import_user_module(args: Any) -> None:
        original(args)
        if hasattr(args, "destdir") and hasattr(args, "joined_dictionary"):
            check(args)

    return import_user_module


def install() -> None:
    """Make ``fairseq-preprocess`` look first."""
    utils.import_user_module = _look_first(utils.import_user_module)
