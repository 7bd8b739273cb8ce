#!/usr/bin/env python3
"""From raw text to scores: prepare, train, average, generate and evaluate what a recipe says.

    python scripts/run_recipe.py examples/translation/multi30k.de-en --variant ea_transformer_lite

Every command is printed before it runs. Steps that are done are skipped, a stopped training goes
on from its last checkpoint: after any interruption, give the same command again.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from model_cost import cost

from ea_fairseq.corpus import config as corpus_config
from ea_fairseq.corpus.pipeline import local_inputs
from ea_fairseq.files import locked, read_json, read_lines, scratch_folder, write_json
from ea_fairseq.recipes import commands, places
from ea_fairseq.recipes.arguments import add_arguments
from ea_fairseq.recipes.averaging import fewer_than_asked_for
from ea_fairseq.recipes.data_folders import check_data, folder_for, identity
from ea_fairseq.recipes.differences import differences, listed
from ea_fairseq.recipes.kept_text import keep_text, trained_on
from ea_fairseq.recipes.options import check_options, check_subwords, load_plugin, model_options
from ea_fairseq.recipes.recipe import SECTIONS, Recipe, load_recipe, recipe_path
from ea_fairseq.recipes.resuming import WHEN_TO_STOP, check_when_to_stop, repair_last_checkpoint
from ea_fairseq.recipes.runs import Run, find_run
from ea_fairseq.recipes.steps import Step, execute
from ea_fairseq.recipes.tables import mean_and_deviation, table

STEPS = ("prepare", *SECTIONS)


def main(argv: list[str] | None = None) -> int:
    """Run the recipes; the exit code is 0 when all is done."""
    args = make_parser().parse_args(argv)
    try:
        paths = [
            recipe_path(path, variant) for path in args.recipe for variant in args.variant or [None]
        ]
        recipes = [load_recipe(path, args.set) for path in paths]
        if args.name and "{recipe}" not in args.name and len(recipes) > 1:
            raise ValueError(f"--name {args.name}: choose one recipe, or a name with {{recipe}}")
        if args.fresh and "train" not in args.steps:
            raise ValueError("--fresh throws the training away: give it with the step train")
        load_plugin(places.USER_DIR)
        for recipe in recipes:
            check_options(recipe, places.USER_DIR)
        corpora = [corpus_config.load(recipe.corpus) for recipe in recipes]
        for recipe, corpus in zip(recipes, corpora, strict=True):
            check_subwords(recipe, corpus)
        for recipe, corpus in zip(recipes, corpora, strict=True):
            run_recipe(recipe, corpus, args)
    except ValueError as error:
        print(f"run_recipe.py: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "recipe",
        nargs="+",
        type=Path,
        help="a corpus' folder, with --variant; or a recipe file (.yml)",
    )
    parser.add_argument(
        "--variant",
        nargs="+",
        metavar="NAME",
        help="models to run on the corpus: architectures (transformer_lite, ea_transformer_lite, "
        "...), variants, or files in the folder or in examples/translation/variants/",
    )
    add_arguments(parser)
    parser.add_argument("--raw", type=Path, help="local folder with the corpus as downloaded")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="one run for each")
    parser.add_argument(
        "--name", help="name of the runs' folder (default: {recipe}, the recipe's own name)"
    )
    parser.add_argument(
        "--steps", nargs="+", choices=STEPS, default=STEPS, help="do these steps only"
    )
    parser.add_argument("--threads", type=int, help="threads of each command (OMP_NUM_THREADS)")
    parser.add_argument("--workers", type=int, help="processes that prepare the corpus")
    parser.add_argument(
        "--fresh", action="store_true", help="throw away what the runs hold, and begin anew"
    )
    parser.add_argument(
        "--examples", type=int, default=0, metavar="N", help="show N translations at the end"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the commands of every step, run none"
    )
    return parser


def run_recipe(recipe: Recipe, corpus: corpus_config.Corpus, args: argparse.Namespace) -> None:
    """All steps of a recipe for all seeds, then a table of the scores."""
    threads = {"OMP_NUM_THREADS": str(args.threads)} if args.threads else {}
    all_runs = find_runs(recipe, corpus, args)
    data = all_runs[0].data
    prepare = commands.prepare_command(recipe, data, args.raw, args.workers)
    if args.dry_run:
        print_commands(recipe, prepare, all_runs, args.steps, threads)
        return
    if "prepare" in args.steps:
        # prepare.py locks the folder itself, and knows what of it is done.
        execute(prepare, data.with_name(f"{data.name}.log"), threads)
    finished = True
    for run in all_runs:
        with locked(run.folder) as lock:
            finished &= RecipeRun(recipe, corpus, run, threads, lock).do(args.steps, args.fresh)
    if finished:
        print_results(all_runs)
    if args.examples:
        print_examples(all_runs[0], args.examples)


def find_runs(recipe: Recipe, corpus: corpus_config.Corpus, args: argparse.Namespace) -> list[Run]:
    """The runs of all seeds, with the folder of the data that they are trained on, or will be.

    Raises:
        ValueError: a run was trained on other data than the corpus is now.
    """
    runs = [find_run(recipe, corpus, args.work_dir, args.name, seed) for seed in args.seeds]
    inputs = None
    if "prepare" in args.steps and not args.dry_run:
        inputs = local_inputs(corpus, recipe.corpus.resolve().parent, args.raw)
    work_dir = args.work_dir.absolute()
    anew = [run.folder for run in runs] if args.fresh else []
    for run in runs:
        if run.folder not in anew:
            check_data(work_dir, recipe.corpus_name, run.folder, corpus, inputs)
    data = folder_for(work_dir, recipe.corpus_name, corpus, inputs, anew)
    return [run if trained_on(run.folder) else replace(run, data=data) for run in runs]


def print_commands(
    recipe: Recipe, prepare: list[str], runs: list[Run], steps: list[str], env: dict[str, str]
) -> None:
    """What would be run."""
    if "prepare" in steps:
        print(commands.printable(prepare, env))
    for run in runs:
        if "train" in steps:
            print(commands.printable(commands.train_command(recipe, run), env))
        if "average" in steps and recipe.sections["average"] is not None:
            print(commands.printable(commands.average_command(recipe, run), env))
            for reason in fewer_than_asked_for(recipe):
                print(f"# {reason}: the average is of what is there")
        for subset, test_set in run.subsets.items():
            if "generate" in steps:
                folder = run.generated(test_set).parent
                command = commands.generate_command(recipe, run, subset, folder)
                print(commands.printable(command, env))
        for test_set in run.test_sets:
            if "evaluate" in steps:
                print(commands.printable(commands.evaluate_command(recipe, run, test_set), env))


class RecipeRun:
    """The steps of one recipe with one seed, from binarized data to results.json."""

    def __init__(
        self,
        recipe: Recipe,
        corpus: corpus_config.Corpus,
        run: Run,
        threads: dict[str, str],
        lock: int,
    ) -> None:
        self.recipe = recipe
        self.corpus = corpus
        self.run = run
        self.threads = threads
        self.lock = lock
        self.prepared = read_json(run.data / "prepared.json")
        settings: dict[str, Any] = {
            "seed": run.seed,
            "data": identity(self.prepared),
            "train": recipe.options("train"),
        }
        self.steps = {}
        for name in SECTIONS:
            if name != "train":
                settings = settings | {name: recipe.sections[name]}
            self.steps[name] = Step(name, run.folder, settings)

    def do(self, names: list[str], fresh: bool) -> bool:
        """Do the named steps as far as they are not done, then write results.json.

        Returns:
            whether the run is complete with these settings
        """
        print(f"\n== {self.run.folder}", flush=True)
        if fresh:
            self._clear()
        work = {
            "train": self._train,
            "average": self._average,
            "generate": self._generate,
            "evaluate": self._evaluate,
        }
        before = None
        for name, step in self.steps.items():
            if name in names:
                if before is not None and not before.is_done():
                    raise ValueError(
                        f"{self.run.folder}: step '{name}' needs step '{before.name}', "
                        "which is not done with these settings"
                    )
                self._do_step(step, work[name])
            before = step
        finished = self.steps["evaluate"].is_done()
        if finished and not self.run.results.exists():
            write_json(self.run.results, self._results())
            print(f"results: {self.run.results}", flush=True)
        return finished

    def _do_step(self, step: Step, work: Any) -> None:
        if step.is_done():
            if step.name == "train":
                self._keep_text()
            print(f"{step.name}: done before ({step.seconds():.0f} s)", flush=True)
            return
        goes_on = step.name == "train"
        if goes_on:
            self._check_training_goes_on(step)
            self._keep_text()
        if changes := step.changes():
            again = "goes on" if goes_on else "again"
            print(f"{step.name}: {again}, settings changed: {listed(changes)}", flush=True)
        self.run.results.unlink(missing_ok=True)
        step.start(goes_on)
        work()
        step.finish({"versions": versions()})

    def _check_training_goes_on(self, step: Step) -> None:
        """Refuse settings with which a training that has begun cannot end, and mend its files."""
        changes = step.changes()
        if changes.keys() - {f"train.{option}" for option in WHEN_TO_STOP}:
            kept = trained_on(self.run.folder)
            if "data" in changes and kept is not None:
                del changes["data"]
                changes |= differences({"data": kept}, {"data": self.prepared})
            # Hours of work: not ours to throw away.
            raise ValueError(
                f"{self.run.folder}: was trained with other settings ({listed(changes)}); "
                "choose --name OTHER to keep it or --fresh to throw it away"
            )
        repair_last_checkpoint(self.run.checkpoints)
        if changes:
            old = read_json(step.started)["settings"]["train"]
            check_when_to_stop(self.run.checkpoints, old, step.settings["train"])

    def _keep_text(self) -> None:
        """Keep what belongs to the model, for a run of an earlier version too."""
        if not self.run.kept_text.exists():
            keep_text(self.run, self.corpus)

    def _clear(self) -> None:
        """Remove everything but the lock that is held."""
        for entry in self.run.folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != ".lock":
                entry.unlink()

    def _execute(self, command: list[str], step: str) -> None:
        execute(command, self.run.log(step), self.threads, self.lock)

    def _train(self) -> None:
        self._execute(commands.train_command(self.recipe, self.run), "train")

    def _average(self) -> None:
        if self.recipe.sections["average"] is not None:
            self._execute(commands.average_command(self.recipe, self.run), "average")
        elif not self.run.model(self.recipe).exists():
            raise ValueError(f"{self.run.model(self.recipe)}: training wrote no best checkpoint")

    def _generate(self) -> None:
        with scratch_folder(self.run.folder / "generate" / "partial") as partial:
            for subset, test_set in self.run.subsets.items():
                command = commands.generate_command(self.recipe, self.run, subset, partial)
                self._execute(command, "generate")
                os.replace(partial / f"generate-{subset}.txt", self.run.generated(test_set))

    def _evaluate(self) -> None:
        for test_set in self.run.subsets.values():
            command = commands.evaluate_command(self.recipe, self.run, test_set)
            self._execute(command, "evaluate")

    def _results(self) -> dict[str, Any]:
        recipe, run = self.recipe, self.run
        return {
            "corpus": recipe.corpus_name,
            "recipe": recipe.name,
            "seed": run.seed,
            "settings": {section: recipe.sections[section] for section in SECTIONS},
            "threads": self.threads.get("OMP_NUM_THREADS"),
            "versions": read_json(self.steps["train"].stamp)["versions"],
            "parameters": count_parameters(run.log("train")),
            "cost": cost(recipe.options("train")["arch"], model_options(recipe)),
            "seconds": {name: step.seconds() for name, step in self.steps.items()},
            "scores": {name: read_json(run.scores(name)) for name in run.test_sets},
        }


def versions() -> dict[str, str | None]:
    """Versions of what the scores depend on, and the commit of the repository if it is one."""
    found: dict[str, str | None] = {"python": sys.version.split()[0]}
    for package in ("torch", "ve-fairseq", "fairseq", "sacrebleu", "sacremoses", "ea_fairseq"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    git = ["git", "-C", str(places.REPOSITORY), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        found["commit"] = subprocess.run(
            git, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        found["commit"] = None
    return found


def count_parameters(log: Path) -> int | None:
    """Parameters of the model, embeddings included, as fairseq-train logs them."""
    text = log.read_text(encoding="utf-8", errors="replace")
    match = re.search(r"num\. (?:shared )?model params: ([\d,]+)", text)
    return int(match[1].replace(",", "")) if match else None


def print_results(runs: list[Run]) -> None:
    """A table of all scores; mean and standard deviation over the seeds."""
    scores = [read_json(run.results)["scores"] for run in runs]
    labels = [score["label"] for score in next(iter(scores[0].values()))["scores"]]
    rows = []
    for test_set in scores[0]:
        row = [test_set]
        for i in range(len(labels)):
            values = [score[test_set]["scores"][i]["score"] for score in scores]
            row.append(mean_and_deviation(values))
        rows.append(row)
    seeds = ", ".join(str(run.seed) for run in runs)
    print(f"\n{runs[0].folder.parent}, seed {seeds}\n\n{table(['test set', *labels], rows)}")
    for score in next(iter(scores[0].values()))["scores"]:
        print(f"{score['label']}: {score['signature']}")


def print_examples(run: Run, count: int) -> None:
    """Translations from all over the first test set, and where data and run lie."""
    test_set = run.test_sets[0]
    source, target = run.languages
    columns = [
        ("source", read_lines(run.data / "raw" / f"{test_set}.{source}")),
        ("reference", read_lines(run.data / "raw" / f"{test_set}.{target}")),
        ("translation", read_lines(run.text(test_set))),
    ]
    sentences = len(columns[0][1])
    count = min(count, sentences)
    for i in range(count):
        number = i * sentences // count
        print(f"\n{test_set}, sentence {number + 1}")
        for name, lines in columns:
            print(f"  {name:12} {lines[number]}")
    print(f"\ndata          {run.data}")
    print(f"checkpoints   {run.checkpoints}")
    print(f"translations  {run.text(test_set)}")
    print(f"scores        {run.results}")
    print(f"logs          {run.log('train').parent}")


if __name__ == "__main__":
    # SIGTERM as Ctrl-C: leave through the code that ends the running command.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
