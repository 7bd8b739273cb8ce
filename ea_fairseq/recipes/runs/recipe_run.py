"""One run of a recipe: its steps, each done once, from binarized data to results.json."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from importlib import metadata
from pathlib import Path
from typing import Any

from ...corpus.config import Corpus
from ...fairseq_options.table import known_of
from ...files import read_json, sha256, write_json
from ..results.differences import differences, listed
from ..says import paths
from ..says.checks import model_options
from ..says.recipe import Recipe
from ..says.tasks import LANGUAGE_MODELING
from .changed_settings import WHEN_TO_STOP, check_when_to_stop
from .data_folders import identity
from .execution import execute
from .folders import Run
from .progress import Display, Status, TrainingStatus, duration
from .report import shown
from .step_commands import planned
from .steps import Step
from .text_copy import keep_text, trained_on
from .wanted import Wanted


class RecipeRun:
    """The steps of one recipe with one seed, from binarized data to results.json.

    Args:
        recipe: what to do
        corpus: the corpus that it names
        run: where
        wanted: the threads of each command, and whether to show all that they print
        lock: of the run's folder, which is held; None for a plan that is not carried out
        keep_model: whether the model is made again where it was deleted after its use
    """

    def __init__(
        self,
        recipe: Recipe,
        corpus: Corpus,
        run: Run,
        wanted: Wanted,
        lock: int | None,
        keep_model: bool = False,
    ) -> None:
        self.recipe = recipe
        self.corpus = corpus
        self.run = run
        self.environment = wanted.environment
        self.verbose = wanted.verbose
        self.lock = lock
        self.prepared = read_json(run.data / "prepared.json")
        self.keep_model = keep_model
        self.steps = self._steps()
        self.plan = planned(recipe, run, corpus, wanted.verbose)

    def _steps(self) -> dict[str, Step]:
        """Every step by its name, with the settings that its output depends on."""
        settings: dict[str, Any] = {
            "seed": self.run.seed,
            "data": identity(self.prepared),
            "train": self.recipe.options("train"),
        }
        steps = {}
        for name in self.recipe.task.sections:
            if name != "train":
                settings = settings | {name: self.recipe.sections[name]}
            steps[name] = Step(name, self.run.folder, settings)
        return steps

    def do(self, names: Collection[str], fresh: bool) -> bool:
        """Do the named steps as far as they are not done, then write results.json.

        Returns:
            whether the run is complete with these settings
        """
        print(f"\n== {shown(self.run.folder)} (logs: {shown(self.run.log('train').parent)})")
        if fresh:
            self._clear()
        if "average" in names and not {"generate", "evaluate"} & set(names):
            # Asked for by itself, it is made again, as long as there is something to make it of.
            self.keep_model |= any(self.run.checkpoints.glob("checkpoint*.pt"))
        before = None
        for name, step in self.steps.items():
            if name in names:
                if before is not None and not before.is_done():
                    raise ValueError(
                        f"{self.run.folder}: step '{name}' needs step '{before.name}', "
                        "which is not done with these settings"
                    )
                self._do_step(step)
            before = step
        finished = self.steps["train"].stamp.exists() and self.steps["evaluate"].is_done()
        finished = finished and not self._lost(self.steps["evaluate"])
        if finished and not self.run.results.exists():
            write_json(self.run.results, self._results())
        return finished

    def check(self, names: Collection[str], fresh: bool) -> None:
        """Refuses what `do` would refuse before it trains; writes nothing.

        Raises:
            ValueError: the training has begun with settings that it cannot end with.
        """
        step = self.steps["train"]
        if "train" in names and not fresh and not step.is_done():
            self._check_training_goes_on(step)

    def _do_step(self, step: Step) -> None:
        if step.is_done() and not self._lost(step):
            if step.name == "train":  # for a run of an earlier version
                keep_text(self.run.folder, self.run.data, self.corpus)
                self._warn_of_other_files(step)
            print(f"{step.name:9} done before ({duration(step.seconds())})", flush=True)
            return
        goes_on = step.name == "train"
        if goes_on:
            self._check_training_goes_on(step)
            keep_text(self.run.folder, self.run.data, self.corpus)
            self._warn_of_other_files(step)
        if step.name == "average":
            self._check_checkpoints()
        if changes := step.changes():
            again = "goes on" if goes_on else "again"
            print(f"{step.name:9} {again}, settings changed: {listed(changes)}", flush=True)
        self.run.results.unlink(missing_ok=True)
        # An attempt that did not end has what the last one that did had made.
        averaged = step.noted("averaged")
        files = (step.noted("files") or self._files()) if goes_on else None
        step.start(goes_on, averaged=averaged, files=files)
        self._work(step.name)
        facts: dict[str, Any] = {"versions": versions()}
        if step.name == "train":  # its log may be thrown away later
            facts["parameters"] = count_parameters(step.log)
            facts["threads"] = self.environment.get("OMP_NUM_THREADS")
            facts["files"] = read_json(step.started).get("files", {})
        if step.name == "average" and self.recipe.sections["average"] is not None:
            facts["averaged"] = sha256(self.run.averaged)
            if averaged not in (None, facts["averaged"]):
                self._forget_scores()
        step.finish(facts)

    def _forget_scores(self) -> None:
        """Have all that follows the average done again, which is of other checkpoints by now."""
        print("average   is not what it was: its translations and scores are void", flush=True)
        names = list(self.steps)
        for name in names[names.index("average") + 1 :]:
            self.steps[name].stamp.unlink(missing_ok=True)

    def _lost(self, step: Step) -> bool:
        """Whether files that a step had made are gone, and something still needs them."""
        run, names = self.run, list(self.steps)
        made = {
            "average": [run.model(self.recipe)],
            "generate": [run.generated(test_set) for test_set in run.test_sets],
            "evaluate": [run.scores(test_set) for test_set in run.test_sets],
        }
        if self.recipe.task is LANGUAGE_MODELING:
            made["evaluate"] += [run.losses(test_set) for test_set in run.test_sets]
        if step.name == "average" and not self.keep_model:
            following = self.steps[names[names.index("average") + 1]]
            if following.is_done() and not self._lost(following):
                return False
        return not all(path.exists() for path in made.get(step.name, []))

    def _files(self) -> dict[str, str]:
        """SHA-256 of what a training reads beside its data: own code, files that options name."""
        found = {}
        if self.recipe.user_dir != paths.USER_DIR:
            code = hashlib.sha256()
            for path in sorted(self.recipe.user_dir.rglob("*.py")):
                code.update(f"{path.relative_to(self.recipe.user_dir)}\0".encode())
                code.update(path.read_bytes())
            found["--user-dir"] = code.hexdigest()
        for option, value in self.recipe.options("train").items():
            if known_of(option).text == "a file" and Path(str(value)).is_file():
                found[option] = sha256(Path(value))
        return found

    def _warn_of_other_files(self, step: Step) -> None:
        """Say what is no more what the training began with; whether that matters is not known."""
        began_with = step.noted("files") or {}
        now = self._files() if began_with else {}
        for name, before in began_with.items():
            if now.get(name) != before:
                value = self.recipe.options("train").get(name, self.recipe.user_dir)
                print(
                    f"warning: {self.run.folder}: {name} {value} has other content than when this "
                    "training began; for a training with it choose --name OTHER",
                    file=sys.stderr,
                )

    def _check_checkpoints(self) -> None:
        """Refuse to average what is not there, before anything of an earlier average is void."""
        best = self.run.checkpoints / "checkpoint_best.pt"
        if self.recipe.sections["average"] is None:
            if not best.exists():
                raise ValueError(f"{best}: is not there any more, or the training wrote none")
        elif not any(path != best for path in self.run.checkpoints.glob("checkpoint*.pt")):
            raise ValueError(
                f"{self.run.checkpoints}: has no checkpoints to average any more: the settings of "
                "the average that is there still hold; for another one train anew, with --name "
                "OTHER or --fresh"
            )

    def _check_training_goes_on(self, step: Step) -> None:
        """Refuse settings with which a training that has begun cannot end."""
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
        others = list(self.run.checkpoints.glob("checkpoint*.pt"))
        last = self.run.checkpoints / "checkpoint_last.pt"
        # Stopped over its first checkpoint, a training has that one, or the best one too.
        if last not in others and (len(others) > 2 or (changes and step.stamp.exists())):
            raise ValueError(
                f"{last}: is not there any more, so that the training cannot go on"
                + (f" with other settings ({listed(changes)})" if changes else "")
                + "; choose --name OTHER to train anew beside it, or --fresh to throw it away"
            )
        if changes:
            old = read_json(step.started)["settings"]["train"]
            check_when_to_stop(self.run.checkpoints, old, step.settings["train"])

    def _clear(self) -> None:
        """Remove everything but the lock that is held.

        What says how the checkpoints were made goes last: it must not be missing beside some.
        """
        for entry in sorted(self.run.folder.iterdir(), key=lambda entry: entry.name == "steps"):
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != ".lock":
                entry.unlink()

    def _work(self, step: str) -> None:
        """Run the commands of a step."""
        if step == "average" and self.recipe.sections["average"] is None:
            self._use_best_checkpoint()
        for test_set, command in self.plan[step].items():
            if step == "evaluate":
                self.run.scores(test_set).parent.mkdir(exist_ok=True)
                if self.recipe.task is LANGUAGE_MODELING:
                    self.run.losses(test_set).parent.mkdir(exist_ok=True)
            status = Status(test_set)
            if step == "train":
                status = TrainingStatus(self.recipe.options("train"))
            display = None if self.verbose else Display(step, status)
            execute(command, self.run.log(step), self.environment, self.lock, display)
            if step == "generate":
                (subset,) = (s for s, name in self.run.subsets.items() if name == test_set)
                generated = self.run.generated(test_set)
                os.replace(generated.with_name(f"generate-{subset}.txt"), generated)

    def _use_best_checkpoint(self) -> None:
        # Of other settings, and what takes a run's model takes its average where there is one.
        self.run.averaged.unlink(missing_ok=True)
        shutil.rmtree(self.run.model_folder, ignore_errors=True)  # newer than the best checkpoint

    def _results(self) -> dict[str, Any]:
        """All about the run, for results.json."""
        from ...models.cost import cost  # takes torch and fairseq

        recipe, run = self.recipe, self.run
        trained = self.steps["train"].facts()
        return {
            "corpus": recipe.corpus_name,
            "recipe": recipe.name,
            "seed": run.seed,
            "settings": {section: recipe.sections[section] for section in self.steps},
            "threads": trained.get("threads", self.environment.get("OMP_NUM_THREADS")),
            "versions": trained["versions"],
            "parameters": trained.get("parameters") or count_parameters(run.log("train")),
            "cost": cost(recipe.options("train")["arch"], model_options(recipe)),
            **self._measured(),
        }

    def _measured(self) -> dict[str, Any]:
        """The time of each step, and the scores."""
        return {
            "seconds": {name: step.seconds() for name, step in self.steps.items()},
            "scores": {name: read_json(self.run.scores(name)) for name in self.run.test_sets},
        }


def versions() -> dict[str, str | None]:
    """Versions of what the scores depend on, and the commit of the repository if it is one."""
    found: dict[str, str | None] = {"python": sys.version.split()[0]}
    for package in ("torch", "ve-fairseq", "fairseq", "sacrebleu", "sacremoses", "ea_fairseq"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if paths.REPOSITORY is None:  # the repository that surrounds an environment is another's
        return found
    git = ["git", "-C", str(paths.REPOSITORY), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        found["commit"] = subprocess.run(
            git, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        found["commit"] = None
    return found


def count_parameters(log: Path) -> int | None:
    """Parameters of the model, embeddings included, as fairseq-train logs them; None without."""
    if not log.exists():
        return None
    text = log.read_text(encoding="utf-8", errors="replace")
    match = re.search(r"num\. (?:shared )?model params: ([\d,]{1,30})\b", text)
    return int(match[1].replace(",", "")) if match else None
