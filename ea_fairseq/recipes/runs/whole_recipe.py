"""All runs of a recipe, from the corpus to the table of their scores; or what they would do."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ...corpus.config import Corpus
from ...corpus.inputs import local_files
from ...files import locked, read_json
from ..results.curves import read_curves
from ..results.differences import differences, listed
from ..says import paths
from ..says.averaging import fewer_than_asked_for
from ..says.recipe import Recipe
from .changed_settings import comparable
from .data_folders import check_data, choosing_data, folder_for, folders_with
from .ensembles import EnsembleRun, ensemble_of
from .execution import execute
from .folders import Run, find_run, run_folder
from .leftovers import told_of
from .progress import Display, Status
from .recipe_run import RecipeRun
from .report import print_examples, print_next, print_places, print_results, shown
from .side_by_side import Job, progress, run_side_by_side
from .step_commands import planned, prepare_command, printable
from .text_copy import Inputs, trained_on
from .wanted import Wanted


def run_recipe(recipe: Recipe, corpus: Corpus, inputs: Inputs | None, wanted: Wanted) -> None:
    """All steps of a recipe for all seeds, then a table of the scores.

    ``inputs`` are the corpus' files, see `original_files`.
    """
    if wanted.dry_run:
        all_runs = find_runs(recipe, corpus, wanted, inputs)
        for run in all_runs:
            if run.folder.exists() and (run.data / "prepared.json").exists():
                work = RecipeRun(recipe, corpus, run, wanted, lock=None)
                work.check(wanted.steps, wanted.fresh)
        print_plan(recipe, corpus, all_runs, wanted)
        return
    for seed in wanted.seeds:  # or the lock below would leave a folder of a name that cannot be
        run_folder(recipe, wanted.work_dir, wanted.name, seed)
    finished = True
    with ExitStack() as data_in_use:
        # Runs started at once choose one after the other, so that each sees what the others did.
        with choosing_data(wanted.work_dir.absolute(), recipe.corpus_name):
            all_runs = find_runs(recipe, corpus, wanted, inputs)
            if "prepare" in wanted.steps:
                prepare_data(recipe, all_runs[0].data, wanted)
            for data in {run.data for run in all_runs}:
                if not (data / "prepared.json").exists():
                    raise ValueError(
                        f"{shown(data)}: the corpus is not prepared; --steps prepare first"
                    )
                data_in_use.enter_context(locked(data, shared=True))
        for run in all_runs:
            with locked(run.folder) as lock:
                work = RecipeRun(recipe, corpus, run, wanted, lock)
                finished &= work.do(wanted.steps, wanted.fresh)
    if not finished:
        return
    for run in all_runs:
        draw_curves(run)
        export_model(run)
    ensemble = finish(recipe, corpus, all_runs, wanted)
    print_places(recipe, all_runs[0])
    for line in filter(None, (told_of(recipe, run) for run in all_runs)):
        print(f"{'left over':13} {line}")
    print_next(recipe, all_runs[0], ensemble)


def prepare_data(recipe: Recipe, data: Path, wanted: Wanted) -> None:
    """Prepare the corpus, unless that is done."""
    log = data.with_name(f"{data.name}.log")
    if not wanted.verbose:
        print(f"\n== {shown(data)} (log: {shown(log)})", flush=True)
    display = None if wanted.verbose else Display("prepare", Status())
    command = prepare_command(recipe, data, wanted.raw, wanted.workers)
    execute(command, log, wanted.environment, display=display)


def finish(recipe: Recipe, corpus: Corpus, runs: list[Run], wanted: Wanted) -> Run | None:
    """Show the scores of finished runs, and of their ensemble if there is to be one.

    Returns:
        the ensemble
    """
    for run in runs[1:]:
        prepared = [{"data": trained_on(one.folder)} for one in (runs[0], run)]
        if changes := differences(*prepared):
            raise ValueError(
                f"{run.folder}: was trained on other data than {runs[0].folder.name} "
                f"({listed(changes)}): they have no mean; give the --seeds to show"
            )
    ensemble = ensemble_of(runs) if wanted.ensemble else None
    if ensemble is not None:
        for run in ensemble.members:
            if not run.model(recipe).exists():  # deleted after its use
                with locked(run.folder) as lock:
                    work = RecipeRun(recipe, corpus, run, wanted, lock, keep_model=True)
                    work.do(["average"], fresh=False)
        with locked(ensemble.folder) as lock:
            work = EnsembleRun(recipe, corpus, ensemble, wanted, lock)
            work.do(list(work.steps), wanted.fresh)
    print_results(runs)
    if ensemble is not None:
        print_results([ensemble])
    if wanted.examples:
        print_examples(ensemble or runs[0], wanted.examples)
    return ensemble


def export_model(run: Run) -> None:
    """Make the run's model folder, unless that is done."""
    from .export_run import exported_run  # takes fairseq

    try:
        exported_run(run.folder)
    except (ValueError, OSError) as error:
        print(f"no model folder: {error}", file=sys.stderr)


def draw_curves(run: Run) -> None:
    """Draw loss and BLEU of a training into its folder, unless that is done."""
    log = run.log("train")
    if not log.exists():  # thrown away: what was drawn before stays
        return
    if run.curves.exists() and run.curves.stat().st_mtime >= log.stat().st_mtime:
        return
    # fairseq's modules turn on all that others log.
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    try:
        from ..results.curve_pictures import draw  # takes a second

        draw({run.folder: [read_curves(run.folder)]}, run.curves)
    except (ImportError, ValueError, OSError) as error:
        print(f"no picture of the training: {error}", file=sys.stderr)


def run_all(recipes: list[Recipe], corpora: list[Corpus], wanted: Wanted) -> int:
    """Every recipe and seed by a process of its own, some side by side; then the scores.

    Returns:
        1 where a run failed, which stops no other, else 0
    """
    groups = [
        find_runs(*pair, wanted, original_files(*pair, wanted))
        for pair in zip(recipes, corpora, strict=True)
    ]
    jobs = [
        job_of(recipe, run, wanted)
        for recipe, runs in zip(recipes, groups, strict=True)
        for run in runs
    ]
    for job in jobs:
        print(f"== {job.name} (log: {shown(job.log)})", flush=True)

    def show(job: Job, line: str) -> None:
        if wanted.verbose or progress(line):
            print(f"{job.name}  {line}", flush=True)

    codes = run_side_by_side(jobs, wanted.jobs, show)
    failed = [job for job in jobs if codes[job.name]]
    ended = {job.log for job in jobs if job not in failed}
    for recipe, corpus, runs in zip(recipes, corpora, groups, strict=True):
        # A run that was refused, or had some steps done, may have results of other settings still.
        if all(log_beside(run) in ended and has_results(recipe, run) for run in runs):
            # Which data each was trained on is known by now; --fresh is done.
            begun = replace(wanted, fresh=False)
            finish(recipe, corpus, find_runs(recipe, corpus, begun), wanted)
    for job in failed:
        print(f"ea-recipe: error: {job.name} failed: see {shown(job.log)}", file=sys.stderr)
    return 1 if failed else 0


def has_results(recipe: Recipe, run: Run) -> bool:
    """Whether a run has results, and with the recipe's settings as they are."""
    if not run.results.exists():
        return False
    settings = read_json(run.results)["settings"]
    now = {section: recipe.sections[section] for section in settings}
    return not differences(comparable(settings), comparable(now))


def job_of(recipe: Recipe, run: Run, wanted: Wanted) -> Job:
    """The command that does one run, by a process of its own."""
    threads = wanted.threads or max(1, (os.cpu_count() or 1) // wanted.jobs)
    command = [sys.executable, str(paths.SCRIPTS / "run_recipe.py"), str(recipe.path)]
    command += ["--seeds", str(run.seed), "--work-dir", str(wanted.work_dir)]
    command += ["--threads", str(threads), "--steps", *wanted.steps]
    command += [f"--set={override}" for override in wanted.set]
    if recipe.user_dir != paths.USER_DIR:
        command += ["--user-dir", str(recipe.user_dir)]
    command += ["--raw", str(wanted.raw)] if wanted.raw else []
    command += ["--name", wanted.name] if wanted.name else []
    command += ["--workers", str(wanted.workers)] if wanted.workers else []
    command += ["--fresh"] if wanted.fresh else []
    command += ["--verbose"] if wanted.verbose else []
    name = "/".join(run.folder.parts[-3:])
    return Job(name, command, log_beside(run))


def log_beside(run: Run) -> Path:
    """Where a run that runs beside others keeps its output; --fresh empties its folder."""
    return run.folder.with_name(f"run.{run.folder.name}.log")


def find_runs(
    recipe: Recipe, corpus: Corpus, wanted: Wanted, inputs: Inputs | None = None
) -> list[Run]:
    """The runs of all seeds, with the folder of the data that they are trained on, or will be.

    ``inputs`` are the corpus' files, to tell other text by; None where nobody looks at them.

    Raises:
        ValueError: a run was trained on other data than the corpus is now.
    """
    runs = [find_run(recipe, corpus, wanted.work_dir, wanted.name, seed) for seed in wanted.seeds]
    work_dir = wanted.work_dir.absolute()
    anew = [run.folder for run in runs] if wanted.fresh else []
    for run in runs:
        if run.folder not in anew:
            check_data(work_dir, recipe.corpus_name, run.folder, corpus, inputs)
    data = folder_for(work_dir, recipe.corpus_name, corpus, inputs, anew)
    begins = [run for run in runs if run.folder in anew or not trained_on(run.folder)]
    alike = []
    if begins and inputs is None:
        alike = folders_with(work_dir, recipe.corpus_name, corpus, inputs)
    if len(alike) > 1:
        raise ValueError(
            f"{begins[0].folder}: {' and '.join(map(str, alike))} hold this corpus, of other "
            "files: add the step prepare, which looks at the files, or --raw"
        )
    return [replace(run, data=data) if run in begins else run for run in runs]


def original_files(recipe: Recipe, corpus: Corpus, wanted: Wanted) -> Inputs | None:
    """The corpus' files if it is to be prepared, or they are named; None where nobody looks.

    Raises:
        ValueError: a file or the folder ``--raw`` is missing, or a file has the wrong checksum.
    """
    if "prepare" not in wanted.steps and wanted.raw is None:
        return None
    return local_files(corpus, recipe.corpus.resolve().parent, wanted.raw)


def print_plan(recipe: Recipe, corpus: Corpus, runs: list[Run], wanted: Wanted) -> None:
    """What would be run."""
    commands = []
    if "prepare" in wanted.steps:
        commands.append(prepare_command(recipe, runs[0].data, wanted.raw, wanted.workers))
    for run in [*runs, ensemble_of(runs)] if wanted.ensemble else runs:
        for step, found in planned(recipe, run, corpus, wanted.verbose).items():
            commands += found.values() if step in wanted.steps else []
    for command in commands:
        print(printable(command, wanted.environment))
    if "average" in wanted.steps:
        for reason in fewer_than_asked_for(recipe):
            print(f"# {reason}: the average is of what is there")
