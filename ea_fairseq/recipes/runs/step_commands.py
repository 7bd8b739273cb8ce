"""The command of every step, as a list of arguments that can be printed, copied and run."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from ...corpus.config import Corpus
from ..says.checks import as_arguments
from ..says.paths import SCRIPTS
from ..says.recipe import Recipe
from ..says.tasks import LANGUAGE_MODELING
from .folders import Run


def prepare_command(recipe: Recipe, data: Path, raw: Path | None, workers: int | None) -> list[str]:
    """Raw text to binarized data."""
    command = [sys.executable, str(SCRIPTS / "prepare.py"), str(recipe.corpus)]
    command += ["--output", str(data)]
    command += ["--raw", str(raw)] if raw else []
    return command + (["--workers", str(workers)] if workers else [])


#: Updates between two records that our own line of progress is made of.
RECORDED = 10


def train_command(recipe: Recipe, run: Run, verbose: bool = True) -> list[str]:
    """fairseq-train; goes on from checkpoint_last.pt where there is one.

    Args:
        recipe: its options
        run: where its data and checkpoints are
        verbose: log as the recipe says; else records that progress.py reads
    """
    options = dict(recipe.options("train"))
    if not verbose:
        interval = int(float(options.get("log-interval") or 100))  # null and false: not given
        options |= {"log-format": "json", "log-interval": min(RECORDED, interval)}
    if name := options.get("tensorboard-logdir"):  # which fairseq writes to
        options["tensorboard-logdir"] = run.folder / name
    return [
        *(sys.executable, "-m", "fairseq_cli.train", str(run.data / "bin")),
        *("--user-dir", str(recipe.user_dir), "--save-dir", str(run.checkpoints)),
        *("--seed", str(run.seed)),
        *as_arguments(options),
    ]


def average_command(recipe: Recipe, run: Run) -> list[str]:
    """The mean of the last (or best) checkpoints, of fewer where a training was short."""
    return [
        *(sys.executable, str(SCRIPTS / "average_checkpoints.py")),
        *("--inputs", str(run.checkpoints), "--output", str(run.model(recipe)), "--allow-fewer"),
        *as_arguments(recipe.options("average")),
    ]


def generate_command(recipe: Recipe, run: Run, subset: str) -> list[str]:
    """fairseq-generate on one of the test sets, into generate-SUBSET.txt."""
    folder = run.generated(run.subsets[subset]).parent
    models = os.pathsep.join(str(path) for path in run.models(recipe))
    return [
        *(sys.executable, "-m", "fairseq_cli.generate", str(run.data / "bin")),
        *("--user-dir", str(recipe.user_dir), "--path", models),
        *("--gen-subset", subset, "--results-path", str(folder)),
        *as_arguments(recipe.options("generate")),
    ]


def evaluate_command(recipe: Recipe, run: Run, corpus: Corpus, subset: str) -> list[str]:
    """Every score of one test set."""
    source, target = corpus.languages
    test_set = run.subsets[subset]
    command = [sys.executable, str(SCRIPTS / "evaluate.py")]
    command += ["--generated", str(run.generated(test_set))]
    command += ["--tokenized-references", str(run.data / "tok" / f"{test_set}.{target}")]
    command += ["--references", str(run.data / "raw" / f"{test_set}.{target}")]
    command += ["--sources", str(run.data / "raw" / f"{test_set}.{source}")]
    command += ["--target-lang", target]
    command += ["--text", str(run.text(test_set)), "--json", str(run.scores(test_set))]
    return command + as_arguments(recipe.options("evaluate"))


def perplexity_command(recipe: Recipe, run: Run, corpus: Corpus, subset: str) -> list[str]:
    """A language model's losses on one of the test sets, and what they come to."""
    test_set = run.subsets[subset]
    return [
        *(sys.executable, str(SCRIPTS / "evaluate_lm.py"), str(run.data / "bin")),
        *("--user-dir", str(recipe.user_dir), "--path", str(run.model(recipe))),
        *("--gen-subset", subset, "--unit", corpus.unit, "--subword", corpus.subword),
        *("--json", str(run.scores(test_set)), "--losses", str(run.losses(test_set))),
        *as_arguments(recipe.options("evaluate")),
    ]


def planned(
    recipe: Recipe, run: Run, corpus: Corpus, verbose: bool = True
) -> dict[str, dict[str, list[str]]]:
    """What every step of a run runs: its name -> the test set, or "" -> the command."""
    plan: dict[str, dict[str, list[str]]] = {}
    if not run.members:
        plan["train"] = {"": train_command(recipe, run, verbose)}
        averages = recipe.sections["average"] is not None
        plan["average"] = {"": average_command(recipe, run)} if averages else {}
    test_sets = run.subsets.items()
    if "generate" in recipe.task.sections:
        plan["generate"] = {
            test_set: generate_command(recipe, run, subset) for subset, test_set in test_sets
        }
    scoring = perplexity_command if recipe.task is LANGUAGE_MODELING else evaluate_command
    plan["evaluate"] = {
        test_set: scoring(recipe, run, corpus, subset) for subset, test_set in test_sets
    }
    return plan


def printable(command: list[str], environment: dict[str, str]) -> str:
    """A command as one would type it."""
    assignments = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    return " ".join(assignments + [shlex.join(command)])
