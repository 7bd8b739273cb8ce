"""A recipe's commands in forks of this process, which has imported fairseq already."""

import os
from functools import partial
from pathlib import Path

import average_checkpoints
import evaluate
import evaluate_lm
import prepare
import pytest
from fairseq_commands import run

from ea_fairseq.commands import recipe as runner
from ea_fairseq.corpus import binarize
from ea_fairseq.recipes.runs import recipe_run, whole_recipe

SCRIPTS = {
    module.__name__: module for module in (prepare, average_checkpoints, evaluate, evaluate_lm)
}


def recipe_in_forks(arguments):
    """The runner's exit code, in a fixture that outlives its test."""
    with pytest.MonkeyPatch.context() as patch:
        in_forks(patch)
        return runner.main(arguments)


def in_forks(monkeypatch):
    """Have the runner run its commands so."""
    for module in (recipe_run, whole_recipe):
        monkeypatch.setattr(module, "execute", _execute)
    monkeypatch.setattr(binarize, "_run", preprocess)


def _execute(command, log, environment, lock=None, display=None):
    program, *words = command[1:]
    log.parent.mkdir(parents=True, exist_ok=True)
    if program == "-m":
        name, *words = words
        main = name.removeprefix("fairseq_cli.")
    else:
        main = SCRIPTS[Path(program).stem].main
    # A worker that loads data may outlive the command; it would keep the run's lock.
    done = run(main, *words, before=None if lock is None else partial(os.close, lock))
    if program != "-m":
        print(done.output() + done.errors())
    log.write_text(done.output() + done.errors())
    assert done.status == 0, done.errors()


def preprocess(arguments):
    """Exit status and errors of fairseq-preprocess: what `binarize` runs, in a fork."""
    done = run("preprocess", *arguments[3:])
    return done.status, done.errors()
