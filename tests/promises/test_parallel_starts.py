"""Runs started at once: a corpus is prepared once, and data in use is never written over."""

import fcntl
import json
import os
import sys

import prepare
import pytest
from forked_steps import in_forks
from time_limit import in_time, wait_for
from tiny_translation import arguments, make_corpus

from ea_fairseq import files
from ea_fairseq.commands import recipe as runner
from ea_fairseq.corpus.config import load
from ea_fairseq.files import is_locked, locked
from ea_fairseq.recipes.runs import whole_recipe
from ea_fairseq.recipes.runs.data_folders import folder_for


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    in_forks(monkeypatch)
    return make_corpus(tmp_path) / "transformer_lite.yml"


def data_of(recipe):
    return recipe.parents[1] / "work" / "data" / "tiny.de-en"


def start(recipe, output, may_prepare):
    """The runner in a process of its own, which prepares the corpus as soon as it may; what it
    prints is kept."""
    pid = os.fork()
    if pid == 0:
        code, work = 1, whole_recipe.prepare_data

        def prepare_data(*words):
            wait_for(may_prepare)
            work(*words)

        try:
            sys.stdout = sys.stderr = open(output, "w", buffering=1)
            whole_recipe.prepare_data = prepare_data
            code = runner.main(arguments(recipe, "--steps", "prepare"))
        finally:
            sys.stdout.flush()
            os._exit(code)
    return pid


def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_of_two_starts_one_prepares_and_the_other_waits_and_finds_it_prepared(recipe, tmp_path):
    outputs = [tmp_path / "first.txt", tmp_path / "second.txt"]
    data = data_of(recipe)
    waiting = f"{data}: waiting for another run, which prepares this corpus\n"
    first = start(
        recipe, outputs[0], lambda: outputs[1].exists() and waiting in outputs[1].read_text()
    )
    # Nothing tells yet what will be in the folder.
    wait_for(lambda: (data / ".choosing").exists())
    second = start(recipe, outputs[1], lambda: True)
    assert (ended(first), ended(second)) == (0, 0)
    said = [output.read_text() for output in outputs]
    assert f"{data}: prepared: " in said[0] and "waiting" not in said[0]
    assert f"{data}: already prepared: " in said[1]
    assert [path for path in data.parent.glob("tiny*") if path.is_dir()] == [data]


def end_a_wait(file, kind, flock=fcntl.flock):
    """Locks, but where it would wait raises an error at once."""
    if not kind & (fcntl.LOCK_NB | fcntl.LOCK_UN):
        raise TimeoutError("took too long")
    flock(file, kind)


def test_data_in_use_is_used_beside_and_never_prepared_anew(recipe, capfd, monkeypatch):
    corpus, data = recipe.parent / "corpus.yml", data_of(recipe)
    words = [str(corpus), "--raw", str(corpus.parent / "raw"), "--output", str(data)]
    assert prepare.main([*words, "--workers", "1"]) == 0
    with locked(data, shared=True):  # as a training holds it
        assert is_locked(data)
        with in_time(600):
            assert prepare.main(words) == 0
        assert "already prepared" in capfd.readouterr().err
        settings = load(corpus)
        assert folder_for(data.parents[1], "tiny.de-en", settings, None, []) == data
        corpus.write_text(corpus.read_text().replace("subword_size: 40", "subword_size: 35"))
        other = folder_for(data.parents[1], "tiny.de-en", load(corpus), None, [])
        assert other.name == "tiny.de-en-2"
        # prepare.py alone, told to make other data there, waits.
        with monkeypatch.context() as patch:
            patch.setattr(files.fcntl, "flock", end_a_wait)
            assert prepare.main(words) == 1
        said = capfd.readouterr().err
        assert f"{data}: waiting for another run to finish" in said and "took too long" in said
        assert json.loads((data / "prepared.json").read_text())["settings"]["subword_size"] == 40
    assert not is_locked(data)
    assert folder_for(data.parents[1], "tiny.de-en", load(corpus), None, []) == data
