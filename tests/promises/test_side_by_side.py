"""Commands run side by side, no more than asked for; none outlives the one that started them."""

import io
import signal
import subprocess
import sys

import pytest
from time_limit import running, wait_for

from ea_fairseq.commands import recipe as run_recipe
from ea_fairseq.files import write_json
from ea_fairseq.recipes.runs import whole_recipe
from ea_fairseq.recipes.runs.folders import Run
from ea_fairseq.recipes.runs.progress import Display, Status
from ea_fairseq.recipes.runs.side_by_side import Job, progress, run_side_by_side
from ea_fairseq.recipes.runs.wanted import Wanted
from ea_fairseq.recipes.says.recipe import Recipe


def job(folder, name, code):
    """A job of a few lines of Python."""
    return Job(name, [sys.executable, "-u", "-S", "-c", code], folder / f"{name}.log")


def test_lines_are_shown_as_they_come_kept_in_a_log_each_and_a_failure_stops_no_other(tmp_path):
    jobs = [
        job(tmp_path, "a", "print('one'); print('two', end='')"),
        job(tmp_path, "bad", "raise SystemExit(3)"),
        job(tmp_path, "b", "import sys; print('bar 1\\rbar 2'); print('ä', file=sys.stderr)"),
    ]
    shown = []
    codes = run_side_by_side(jobs, 1, lambda job, line: shown.append((job.name, line)))
    assert codes == {"a": 0, "bad": 3, "b": 0}
    assert shown == [("a", "one"), ("a", "two"), ("b", "bar 1"), ("b", "bar 2"), ("b", "ä")]
    assert (tmp_path / "a.log").read_text() == "one\ntwo"
    assert (tmp_path / "b.log").read_bytes() == "bar 1\rbar 2\nä\n".encode()


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_as_many_run_at_once_as_asked_for_and_no_more(tmp_path, at_once):
    """None ends before as many as may have begun; a log is there from a command's start on."""
    go = tmp_path / "go"
    code = (
        f"import os, time; print('begin')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)"
    )
    begun = []

    def show(job, line):
        begun.append(job.name)
        if len(begun) == at_once:
            assert len(list(tmp_path.glob("*.log"))) == at_once
            go.touch()

    jobs = [job(tmp_path, str(number), code) for number in range(4)]
    codes = run_side_by_side(jobs, at_once, show)
    assert sorted(begun) == sorted(codes) == ["0", "1", "2", "3"]


def start(code):
    """A program that runs commands side by side."""
    head = "import signal, sys\nfrom pathlib import Path\n"
    head += "from ea_fairseq.recipes.runs.side_by_side import Job, run_side_by_side\n"
    return subprocess.Popen([sys.executable, "-c", head + code], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("stubborn", [False, True])
def test_an_interrupt_lets_them_end_in_order_and_a_second_one_kills(tmp_path, stubborn):
    """One that saves what it has when it is told to end; one that does not listen."""
    told = "print('no')" if stubborn else "(print('saved'), sys.exit())"
    listens = f"signal.signal(signal.SIGTERM, lambda *_: {told})"
    code = f"import signal, sys, time; {listens}; print('up')\nwhile True: time.sleep(0.05)"
    parent = start(f"""
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
jobs = [Job(n, [sys.executable, "-u", "-c", {code!r}], Path({str(tmp_path)!r}, n)) for n in "ab"]
try:
    run_side_by_side(jobs, 2, lambda job, line: print(line, flush=True))
except KeyboardInterrupt:
    print("interrupted")
""")
    assert [parent.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
    parent.send_signal(signal.SIGINT)
    if stubborn:
        wait_for(lambda: all("no" in (tmp_path / name).read_text() for name in "ab"))
        parent.send_signal(signal.SIGINT)
    assert parent.communicate(timeout=600)[0] == "interrupted\n"
    expected = "up\nno\n" if stubborn else "up\nsaved\n"
    assert [(tmp_path / name).read_text() for name in "ab"] == [expected] * 2


def test_they_die_with_the_one_that_started_them(tmp_path):
    parent = start(f"""
child = "import os, time; print(os.getpid()); time.sleep(60)"
job = Job("a", [sys.executable, "-u", "-c", child], Path({str(tmp_path)!r}, "log"))
run_side_by_side([job], 1, lambda job, line: print(line, flush=True))
""")
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    wait_for(lambda: not running(child), 20)


def test_what_the_runner_says_of_its_steps_is_progress_and_nothing_else():
    steps = ["prepare", "train", "average", "generate", "evaluate"]
    lines = io.StringIO()
    for step in steps:
        Display(step, Status(), lines).finish()
    told = lines.getvalue().splitlines() + ["ea-recipe: error: no such recipe"]
    assert len(told) == 6 and all(progress(line) for line in told)
    for line in ("== work/runs/a/b/seed1", "test set | BLEU", "training of it all", "", "train"):
        assert not progress(line)


def test_scores_are_shown_of_recipes_whose_runs_all_ended_well(tmp_path, monkeypatch, capsys):
    """A run that was refused, or did some steps alone, still has the results of its old settings:
    they are not these."""
    groups = {
        name: [Run(tmp_path, tmp_path / name / f"seed{k}", k, ("de", "en"), []) for k in (1, 2)]
        for name in ("good", "refused", "unfinished", "other")
    }
    for runs in groups.values():
        for run in runs:
            run.folder.mkdir(parents=True)
            # Options that change no weight do not count.
            train = {"lr": 0.002 if run is groups["other"][1] else "1e-3", "log-interval": 5}
            write_json(run.results, {"settings": {"train": train, "average": None}})
    groups["unfinished"][1].results.unlink()
    sections = {"train": {"lr": 0.001}, "average": None, "generate": {}}
    recipes = [Recipe(tmp_path / f"{name}.yml", tmp_path, sections) for name in groups]
    args = Wanted(tmp_path, ("train",), jobs=2, seeds=(1, 2))
    shown = []
    monkeypatch.setattr(whole_recipe, "find_runs", lambda recipe, *_: groups[recipe.name])
    monkeypatch.setattr(whole_recipe, "print_results", lambda runs: shown.append(runs))
    monkeypatch.setattr(whole_recipe, "original_files", lambda *_: None)
    refused = f"{tmp_path.name}/refused/seed2"
    monkeypatch.setattr(
        whole_recipe,
        "run_side_by_side",
        lambda jobs, at_once, show: {job.name: int(job.name == refused) for job in jobs},
    )
    assert whole_recipe.run_all(recipes, [None] * 4, args) == 1
    assert shown == [groups["good"]]
    assert f"error: {refused} failed" in capsys.readouterr().err


def test_a_run_beside_others_is_told_all_that_the_command_was(tmp_path):
    """But for what several runs have together: their recipes, seeds and number at once."""
    given = ["a.yml", "b.yml", "--seeds", "1", "2", "--jobs", "2", "--threads", "3", "--fresh"]
    given += ["--set", "lr=0.5", "--set", "generate.beam=1", "--steps", "train", "average"]
    given += ["--work-dir", str(tmp_path), "--raw", "r", "--name", "{recipe}.x", "--workers", "4"]
    given += ["--user-dir", str(tmp_path / "mine")]
    args = run_recipe.make_parser().parse_args([*given, "--verbose"])
    recipe = Recipe(tmp_path / "b.yml", tmp_path, {}, user_dir=tmp_path / "mine")
    run = Run(tmp_path, tmp_path / "runs" / "c" / "b.x" / "seed2", 2, ("de", "en"), [])
    python, script, *words = whole_recipe.job_of(recipe, run, run_recipe.wanted_of(args)).command
    assert python == sys.executable and script.endswith("run_recipe.py")
    told = run_recipe.make_parser().parse_args(words)
    assert vars(told) == vars(args) | {"recipe": [recipe.path], "seeds": [2], "jobs": 1}
