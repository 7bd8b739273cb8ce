"""Model folders made of any checkpoint of the two tasks of `TASKS`."""

from __future__ import annotations

import platform
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from ..corpus.config import tokenization
from ..errors import UserError
from ..files import read_lines
from ..text.processing import TextSettings
from ..text.subwords import loaded
from .build_model import unshared_weights
from .fairseq_checkpoint import TrainedModel
from .model_folder import ModelConfig, Search, write_model_folder

#: How a language model goes on unless it is asked otherwise: 200 tokens behind the prefix.
GOING_ON = Search(max_len_a=1.0, max_len_b=199)

#: Language of a text that nobody has named: ISO 639's word for it.
_UNKNOWN_LANGUAGE = "und"


def export_checkpoint(
    checkpoint: Path,
    folder: Path,
    data: Path | None = None,
    languages: tuple[str | None, str | None] = (None, None),
    tokenize: Any = None,
    codes: Path | None = None,
    language: str | None = None,
) -> None:
    """Makes a model folder of a checkpoint.

    Args:
        checkpoint: of fairseq's tasks translation or language_modeling
        folder: the model folder
        data: folder of the dictionaries; default: the one that the checkpoint was trained on
        languages: source and target; default: the checkpoint's
        tokenize: a corpus.yml's settings of that name; default: text comes tokenised. Whether Moses
            escaped and split hyphens the dictionary tells, where they do not
        codes: BPE codes or sentencepiece model; default: text comes split into subwords
        language: of a language model's text, which decides how it is tokenised

    Raises:
        UserError: naming what is missing.
        ValueError: naming a file of codes that holds none.
    """
    if codes is not None:
        kind = subword_kind(codes)
        loaded(kind, codes)
        # To subword-nmt, a dictionary's words and counts are merges too.
        if kind == "bpe" and all(re.fullmatch(r"\S+ \d+", line) for line in read_lines(codes)):
            raise UserError(f"{codes}: is empty or a dictionary: expected BPE codes")
    trained = TrainedModel(checkpoint, data, languages)
    if codes is not None:
        _check_pieces(codes, kind, trained)
    tokenize = {"tokenizer": "none"} if tokenize is None else tokenize
    settings = tokenization(tokenize)
    if settings.tokenizer == "moses":
        settings = replace(settings, **_moses_options(trained.words[0].symbols, tokenize))
    known = trained.languages
    if known is not None and language is not None:
        raise UserError(f"{checkpoint}: translates: --language is for a language model")
    if known is None and language is None and settings.tokenizer != "none":
        raise UserError(f"{checkpoint}: give --language, by whose rules text is tokenised")
    config = ModelConfig(
        trained.arch,
        trained.options,
        TextSettings(
            *(known or (language or _UNKNOWN_LANGUAGE,) * 2),
            settings,
            "none" if codes is None else kind,
        ),
        search=Search() if known else GOING_ON,
        versions=versions(),
        command=command(),
        task=trained.task,
    )
    write_model_folder(folder, config, unshared_weights(trained.model), trained.dictionaries, codes)


def _moses_options(symbols: Sequence[str], given: Any) -> dict[str, bool]:
    """How Moses was called, as its words in a dictionary show, beside what is given."""
    found = {
        "escape": any(symbol.startswith(("&apos;", "&quot;", "&amp;")) for symbol in symbols),
        "split_hyphens": "@-@" in symbols,
    }
    return {name: value for name, value in found.items() if name not in given}


def _check_pieces(codes: Path, kind: str, trained: TrainedModel) -> None:
    """Refuse codes learned for another model, which would split text into unknown pieces.

    A model's own have almost all pieces of its dictionary, and, unless that was cut, it has almost
    all of theirs.
    """
    pieces = subword_pieces(codes, kind)
    symbols = trained.words[0].symbols[trained.words[0].nspecial :]
    known = {symbol for symbol in symbols if len(symbol.removesuffix("@@")) > 1}
    if len(common := pieces & known) < min(len(pieces), len(known)) / 2:
        raise UserError(
            f"{codes}: are of another model: {trained.dictionaries[0]} has {len(common):,} of "
            f"their {len(pieces):,} subwords"
        )


def subword_pieces(codes: Path, kind: str) -> set[str]:
    """The subwords of more than one character that codes or a sentencepiece model make."""
    if kind == "sentencepiece":
        import sentencepiece

        model = sentencepiece.SentencePieceProcessor(model_file=str(codes))
        none = model.is_control, model.is_unknown, model.is_unused, model.is_byte
        numbers = (n for n in range(model.get_piece_size()) if not any(one(n) for one in none))
        return {piece for piece in map(model.id_to_piece, numbers) if len(piece) > 1}
    merged = {"".join(line.split()[:2]) for line in read_lines(codes) if line[:1] != "#"}
    return {
        piece.removesuffix("</w>") if piece.endswith("</w>") else f"{piece}@@" for piece in merged
    }


def subword_kind(codes: Path) -> str:
    """Whether a file holds BPE codes or a sentencepiece model.

    Raises:
        UserError: naming the file, if it cannot be read.
    """
    try:
        start = codes.read_bytes()[:4096]
    except OSError as error:
        raise UserError(f"{codes}: cannot be read: {error.strerror}") from error
    try:
        # A sentencepiece model is binary; 4096 bytes may end within a character.
        start.decode("utf-8", errors="strict" if len(start) < 4096 else "ignore")
    except UnicodeDecodeError:
        return "sentencepiece"
    return "sentencepiece" if b"\0" in start or start[:1] == b"\n" else "bpe"


def versions() -> dict[str, str]:
    """Of what a model is read and run with."""
    packages = ("ea_fairseq", "torch", "ve-fairseq")
    return {
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in packages},
    }


def command() -> str:
    """The command line that makes a folder."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
