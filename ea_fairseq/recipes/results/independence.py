"""Copies among runs: of a training under another seed's name, or of another run's scores."""

from __future__ import annotations

import filecmp
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from ...files import read_json_or_none
from .perplexity import LossMeasure
from .scoring import read_record, read_results

#: What a run's model is kept in, whichever of them is there.
_MODELS = ("averaged.pt", "checkpoints/checkpoint_best.pt", "model/model.safetensors")


def check_independent(folders: Sequence[Path]) -> None:
    """Refuse runs of one system of which one is another's copy: seeds would seem not to matter.

    Args:
        folders: of the runs

    Raises:
        ValueError: naming both, and what they have in common.
    """
    for folder in folders:
        seed = _seed(folder)
        if folder.name.startswith("seed") and seed is not None and folder.name != f"seed{seed}":
            raise ValueError(
                f"{folder}: the run in it was made with seed {seed}: is it a copy? Each seed is "
                "trained by itself (ea-recipe --seeds)"
            )
    for first, second in combinations(folders, 2):
        if first.resolve() == second.resolve():
            raise ValueError(f"{second}: is {first.name} under another name")
        for name in _MODELS:
            models = first / name, second / name
            # Those that differ do so early.
            if all(path.is_file() for path in models) and filecmp.cmp(*models, shallow=False):
                raise ValueError(
                    f"{second / name}: is the model of {first.name}, byte by byte: each seed is "
                    "trained by itself (ea-recipe --seeds)"
                )


def check_own_scores(folder: Path) -> None:
    """Refuse scores in a run's folder that are not those the run ended with.

    Translations that were scored anew in another way are the run's own.

    Raises:
        ValueError: naming the file, also where it is none of scores.
    """
    path = folder / "results.json"
    if not path.exists():
        return
    results = read_results(path)
    for step, seconds in _object(results, "seconds").items():
        stamp = folder / "steps" / f"{step}.json"
        stamped = read_json_or_none(stamp) or {}
        if stamped.get("seconds", seconds) != seconds:
            raise ValueError(
                f"{path}: is of another run than {stamp}: give this run's command again"
            )
    for test_set, ended_with in results.get("scores", {}).items():
        scored = folder / "scores" / f"{test_set}.json"
        if not scored.exists():
            continue
        before = _by_method(ended_with)
        for label, score in _by_method(read_record(scored)).items():
            if abs(before.get(label, score) - score) > 1e-6:
                raise ValueError(
                    f"{scored}: {label[0]} is {score:.2f}, and was {before[label]:.2f} when the "
                    f"run ended ({path}): scores of another run; give this run's command again"
                )


def warning_of_copies(path: Path, runs: Mapping[str, Mapping[str, Any]]) -> str | None:
    """What to tell of runs of a system that translated every sentence alike.

    Args:
        path: of the system
        runs: name of the run -> test set -> its measures; of a language model, those of its losses

    Returns:
        a line; None where all runs differ
    """
    outputs = {
        name: {
            test_set: first.nats if isinstance(first, LossMeasure) else first.hypotheses
            for test_set, (first, *_) in test_sets.items()
        }
        for name, test_sets in runs.items()
    }
    alike = [
        f"{first} and {second}"
        for first, second in combinations(outputs, 2)
        if outputs[first] == outputs[second]
    ]
    if not alike:
        return None
    return (
        f"{path}: {', '.join(alike)} have the same output, to the last sentence: if one is a copy, "
        "p and the deviation over seeds mean nothing"
    )


def _seed(folder: Path) -> int | str | None:
    """The seed that a run was made with, or those of an ensemble ("1+2"), where it is known."""
    results = read_json_or_none(folder / "results.json") or {}
    if "seed" in results:
        return results["seed"]
    started = read_json_or_none(folder / "steps" / "train.started.json") or {}
    return _object(started, "settings").get("seed")


def _object(content: dict[str, Any], name: str) -> dict[str, Any]:
    """An object in an object; an empty one where there is none."""
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def _by_method(scored: dict[str, Any]) -> dict[tuple[str, str], float]:
    """The numbers among scores, by their labels and signatures."""
    return {
        (score["label"], str(score.get("signature", ""))): score["score"]
        for score in scored["scores"]
    }
