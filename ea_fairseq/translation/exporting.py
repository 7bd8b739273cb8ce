"""Model folders made of a recipe's run, or of any checkpoint of the two tasks of `TASKS`."""

from __future__ import annotations

import platform
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

from ..corpus.config import tokenization
from ..errors import UserError
from ..files import read_json, read_lines
from ..recipes.data_folders import data_of_run
from ..text.processing import TextSettings
from ..text.sentences import split_sentences
from ..text.subwords import loaded
from .building import unshared_weights
from .fairseq_checkpoint import TrainedModel
from .model_folder import (
    CONFIG,
    Longest,
    ModelConfig,
    Search,
    write_model_folder,
)

# Lines of the training data in which its lengths are counted.
_LINES = 200_000
# The share of lines that may be longer than what is called the longest.
_LONGER = 0.001
# So many sentences in a line, as one line in a hundred has, were learned.
_USUAL = 0.01

#: How a language model goes on unless it is asked otherwise: 200 tokens behind the prefix.
_GOING_ON = Search(max_len_a=1.0, max_len_b=199)

#: Language of a text that nobody has named: ISO 639's word for it.
_UNKNOWN_LANGUAGE = "und"

# What a model folder knows of fairseq-generate's options: option -> name, the others that change
# nothing but speed and looks, and those that make another search.
_SEARCH_OPTIONS = {
    "beam": "beam",
    "lenpen": "lenpen",
    "unkpen": "unkpen",
    "unnormalized": "unnormalized",
    "min-len": "min_len",
    "max-len-a": "max_len_a",
    "max-len-b": "max_len_b",
}
_WITHOUT_EFFECT = frozenset(
    [
        *("max-tokens", "batch-size", "required-batch-size-multiple", "num-workers"),
        *("post-process", "remove-bpe", "nbest", "print-step", "print-alignment", "cpu", "fp16"),
        *("no-progress-bar", "log-format", "log-interval", "task", "scoring", "quiet"),
        *("source-lang", "target-lang", "skip-invalid-size-inputs-valid-test", "seed"),
    ]
)


def export_run(run: Path, folder: Path) -> list[str]:
    """Makes a model folder of a recipe's run.

    Args:
        run: the run's folder, <work-dir>/runs/<corpus>/<recipe>/seed<k>
        folder: the model folder

    Returns:
        what the folder lacks of the run, a sentence each

    Raises:
        UserError: naming what is missing.
    """
    checkpoint = checkpoint_of_run(run)
    corpus, codes, dictionaries, data = _text_of_run(run)
    lacks = []
    results = read_json(run / "results.json") if (run / "results.json").exists() else {}
    tokenize, subword = tokenization(corpus["tokenize"]), corpus["subword"]
    if "language" in corpus:
        files = corpus["prepared"]["settings"]["files"].values()
        if any(part["format"] == "bytes" for parts in files for part in parts):
            subword = "bytes"
        text = TextSettings(corpus["language"], corpus["language"], tokenize, subword)
        trained = TrainedModel(checkpoint, dictionaries)
        longest, search = Longest(), _GOING_ON
    else:
        text = TextSettings(corpus["source_lang"], corpus["target_lang"], tokenize, subword)
        trained = TrainedModel(checkpoint, dictionaries, (text.source_lang, text.target_lang))
        sources = [data / kind / f"train.{text.source_lang}" for kind in ("raw", "bpe")]
        if not all(path.exists() for path in sources):
            lacks.append(f"{data}: is gone: a line of several sentences is translated as one")
        longest = longest_sources(*map(_lines, sources), text.source_lang)
        search, unknown = search_settings(results.get("settings", {}).get("generate") or {})
        lacks += (
            f"generate: {option} is no option of Translator, whose search does without it"
            for option in unknown
        )
    if not results:
        missing = "the recipe's search and scores" if "language" not in corpus else "scores"
        lacks.append(f"{run}: has no results yet: {missing} are missing; finish the run")
    config = ModelConfig(
        trained.arch,
        trained.options,
        text,
        longest,
        search,
        results.get("scores", {}),
        results.get("versions") or _versions(),
        _command(),
        trained.task,
    )
    weights = unshared_weights(trained.model)
    codes = None if config.codes is None else codes
    write_model_folder(folder, config, weights, trained.dictionaries, codes)
    return lacks


def exported_run(run: Path) -> Path:
    """The model folder of a run, <run>/model, made anew where it is older than the run's model.

    What it lacks of the run is said.

    Raises:
        UserError: as `export_run`.
    """
    folder, checkpoint = run / "model", checkpoint_of_run(run)
    config, sources = folder / CONFIG, [checkpoint, run / "results.json"]
    newest = max(path.stat().st_mtime for path in sources if path.exists())
    if not config.exists() or config.stat().st_mtime < newest:
        for lack in export_run(run, folder):
            print(f"warning: {lack}", file=sys.stderr)
    return folder


def checkpoint_of_run(run: Path) -> Path:
    """What a run averaged, or else its best checkpoint."""
    averaged, best = run / "averaged.pt", run / "checkpoints" / "checkpoint_best.pt"
    if averaged.exists() or best.exists():
        return averaged if averaged.exists() else best
    raise UserError(f"{run}: no model in it: {averaged.name}: no such file; train first: ea-recipe")


def _text_of_run(run: Path) -> tuple[dict[str, Any], Path, Path, Path]:
    """A run's text settings, its codes, the folder of its dictionaries, and its data.

    A run of an earlier version kept none of them: they are still with its data.
    """
    kept = run / "text"
    if kept.is_dir():
        corpus = read_json(kept / "corpus.json")
        return corpus, kept / "codes", kept, run / corpus["data"]
    recipe_runs = run.absolute().parent.parent
    found = data_of_run(recipe_runs.parent.parent, recipe_runs.name, run)
    if found is None or found[0] is None:
        raise UserError(f"{run}: neither {kept.name}/ is there nor the data that it was trained on")
    data, prepared = found
    return prepared["settings"], data / "codes", data / "bin", data


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
        tokenize: a corpus.yml's settings of that name; default: text comes tokenised
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
    settings = tokenization({"tokenizer": "none"} if tokenize is None else tokenize)
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
        search=Search() if known else _GOING_ON,
        versions=_versions(),
        command=_command(),
        task=trained.task,
    )
    write_model_folder(folder, config, unshared_weights(trained.model), trained.dictionaries, codes)


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


def search_settings(options: dict[str, Any]) -> tuple[Search, list[str]]:
    """The search that a recipe's ``generate`` options ask for.

    Returns:
        the search, and options that `Search` has no word for
    """
    known = {
        _SEARCH_OPTIONS[name]: value
        for name, value in options.items()
        if name in _SEARCH_OPTIONS and value is not None
    }
    unknown = [
        name
        for name, value in options.items()
        if name not in _SEARCH_OPTIONS
        and name not in _WITHOUT_EFFECT
        and value not in (None, False)
    ]
    return Search(**known), unknown


def longest_sources(raw: Iterable[str], split: Iterable[str], lang: str) -> Longest:
    """The lengths of training sources, but for a few that are longer.

    Args:
        raw: the sources as text
        split: the same in subwords
        lang: their language
    """
    tokens = Counter(len(line.split()) for line in islice(split, _LINES))
    sentences = Counter(len(split_sentences(line, lang)) for line in islice(raw, _LINES))
    return Longest(_all_but(tokens, _LONGER), _all_but(sentences, _USUAL))


def _all_but(counts: Counter[int], share: float) -> int | None:
    """The number that no more than a share of those counted is above; None for no count."""
    above = share * counts.total()
    for number in sorted(counts, reverse=True):
        if counts[number] > above:
            return max(number, 1)
        above -= counts[number]
    return None


def _lines(path: Path) -> Iterable[str]:
    if not path.exists():
        return
    with open(path, encoding="utf-8", newline="\n") as file:
        yield from file


def _versions() -> dict[str, str]:
    """Of what a model is read and run with."""
    packages = ("ea_fairseq", "torch", "ve-fairseq")
    return {
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in packages},
    }


def _command() -> str:
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
