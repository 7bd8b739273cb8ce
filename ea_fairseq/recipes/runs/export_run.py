"""Model folders made of a recipe's run."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

from ...corpus.config import tokenization
from ...errors import UserError
from ...files import locked, read_json, read_json_or_none
from ...inference.build_model import unshared_weights
from ...inference.export_checkpoint import GOING_ON, command, versions
from ...inference.fairseq_checkpoint import TrainedModel
from ...inference.model_folder import CONFIG, Longest, ModelConfig, Search, write_model_folder
from ...text.processing import TextSettings
from ...text.sentences import split_sentences
from .text_copy import FOLDER, NAME

# Lines of the training data in which its lengths are counted.
_LINES = 200_000
# The share of lines that may be longer than what is called the longest.
_LONGER = 0.001
# So many sentences in a line, as one line in a hundred has, were learned.
_USUAL = 0.01

# What a model folder knows of fairseq-generate's options, and the others that change nothing but
# speed and looks; the rest make another search.
_SEARCH_OPTIONS = {field.name.replace("_", "-") for field in fields(Search)}
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
    kept = run / FOLDER
    if not kept.is_dir():
        raise UserError(f"{kept}: no such folder: train first: ea-recipe")
    corpus = read_json(kept / NAME)
    data = run / corpus["data"]
    lacks = []
    results = read_json(run / "results.json") if (run / "results.json").exists() else {}
    tokenize, subword = tokenization(corpus["tokenize"]), corpus["subword"]
    if "language" in corpus:
        files = corpus["prepared"]["settings"]["files"].values()
        if any(part["format"] == "bytes" for parts in files for part in parts):
            subword = "bytes"
        text = TextSettings(corpus["language"], corpus["language"], tokenize, subword)
        trained = TrainedModel(checkpoint, kept)
        longest, search = Longest(), GOING_ON
    else:
        text = TextSettings(corpus["source_lang"], corpus["target_lang"], tokenize, subword)
        trained = TrainedModel(checkpoint, kept, (text.source_lang, text.target_lang))
        sources = [data / kind / f"train.{text.source_lang}" for kind in ("raw", "bpe")]
        if not all(path.exists() for path in sources):
            lacks.append(
                f"{os.path.normpath(data)}: no such folder: how long its sentences were is not "
                "known, and a line of several sentences will be translated as one"
            )
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
        results.get("versions") or versions(),
        command(),
        trained.task,
    )
    weights = unshared_weights(trained.model)
    codes = None if config.codes is None else kept / "codes"
    write_model_folder(folder, config, weights, trained.dictionaries, codes)
    return lacks


def exported_run(run: Path) -> Path:
    """The model folder of a run, <run>/model, made anew where it is older than the run's model.

    What it lacks of the run is said. Of several commands that ask for it at once one makes it.

    Raises:
        UserError: as `export_run`.
    """
    folder = run / "model"
    if not _is_new(folder, run):
        checkpoint_of_run(run)  # before anything is written
        with locked(run, ".exporting", waits_for="another command, which exports the model"):
            if not _is_new(folder, run):
                for lack in export_run(run, folder):
                    print(f"warning: {lack}", file=sys.stderr)
    return folder


def _is_new(folder: Path, run: Path) -> bool:
    """Whether a run's model folder is there and no older than what it is made of."""
    config = folder / CONFIG
    averaged, best = _checkpoints(run)
    sources = [averaged if averaged.exists() else best, run / "results.json"]
    present = [path.stat().st_mtime for path in sources if path.exists()]
    return config.exists() and config.stat().st_mtime >= max(present, default=0.0)


def _checkpoints(run: Path) -> tuple[Path, Path]:
    """Where a run's average is, and its best checkpoint."""
    return run / "averaged.pt", run / "checkpoints" / "checkpoint_best.pt"


def checkpoint_of_run(run: Path) -> Path:
    """What a run averaged, or else its best checkpoint.

    Raises:
        UserError: neither is there, or the average, which was scored, is gone.
    """
    averaged, best = _checkpoints(run)
    done = read_json_or_none(run / "steps" / "average.json")
    if done is not None and done["settings"].get("average") is not None and not averaged.exists():
        remedy = ": make it again by the run's command with --steps average"
        raise UserError(
            f"{averaged}: is gone, and the run's scores are of it"
            f"{remedy if any(best.parent.glob('checkpoint*.pt')) else ', as its checkpoints are'}"
        )
    if averaged.exists() or best.exists():
        return averaged if averaged.exists() else best
    raise UserError(f"{run}: no model in it: {averaged.name}: no such file; train first: ea-recipe")


def search_settings(options: dict[str, Any]) -> tuple[Search, list[str]]:
    """The search that a recipe's ``generate`` options ask for.

    Returns:
        the search, and options that `Search` has no word for
    """
    given = {name: value for name, value in options.items() if value is not None}
    known = {name.replace("-", "_"): given[name] for name in given if name in _SEARCH_OPTIONS}
    others = given.keys() - _SEARCH_OPTIONS - _WITHOUT_EFFECT
    # 0 is false, too: what is not used.
    return Search(**known), [name for name in given if name in others and given[name] != 0]


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
