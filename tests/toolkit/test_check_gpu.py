"""The GPU's check: each part on its own, the report whole after each."""

import contextlib
import os
import subprocess
import sys
import time

import benchmark
import check_gpu
import compare_losses
import pytest
import torch
from check_gpu import Failed
from time_limit import running, wait_for

from ea_fairseq.files import read_json

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def reported(out):
    return read_json(out / "report.json"), (out / "report.md").read_text(encoding="utf-8")


def check(monkeypatch, tmp_path, parts, *options):
    monkeypatch.setattr(check_gpu, "parts", lambda on_gpu: parts)
    return check_gpu.main(["--out", str(tmp_path / "out"), *options])


def failing(check):
    raise Failed("a finding")


def crashing(check):
    raise RuntimeError("a crash\nof many lines")


def fine(check):
    return {"number": 3}


def test_parts_that_fail_do_not_stop_the_others(monkeypatch, tmp_path):
    parts = {"one": failing, "two": crashing, "three": fine}
    assert check(monkeypatch, tmp_path, parts) == 1
    report, table = reported(tmp_path / "out")
    assert report["one"]["failed"] == "a finding"
    assert report["two"]["failed"] == "RuntimeError: a crash"
    assert report["three"]["number"] == 3 and "failed" not in report["three"]
    assert "| three | 0 | number: 3 |" in table
    assert check(monkeypatch, tmp_path, {"three": fine}) == 0


def stopped(check):
    raise KeyboardInterrupt


def test_what_was_found_before_a_stop_is_kept(monkeypatch, tmp_path, capsys):
    assert check(monkeypatch, tmp_path, {"one": fine, "two": stopped, "three": fine}) == 130
    report, _ = reported(tmp_path / "out")
    assert list(report) == ["one"]
    assert "stopped in: two" in capsys.readouterr().err
    # Stopped in the first part, it leaves no report of an earlier check.
    assert check(monkeypatch, tmp_path, {"two": stopped}) == 130
    assert not (tmp_path / "out" / "report.json").exists()
    assert "| one |" not in (tmp_path / "out" / "report.md").read_text()


def end_the_time_when_it_prints(monkeypatch, log):
    """A command's time is over when it has printed something; the list has what it was given."""
    given, wait = [], subprocess.Popen.wait

    def out_of_time(process, timeout=None):
        if timeout is None:
            return wait(process)
        given.append(timeout)
        while not log.stat().st_size:
            assert process.poll() is None
            time.sleep(0.02)
        raise subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", out_of_time)
    return given


def test_what_a_command_started_ends_with_it(monkeypatch, tmp_path):
    """Or a training that was stopped would share the GPU with what comes next."""
    started = "import subprocess as s; p = s.Popen(['sleep', '60']); print(p.pid, flush=True)"
    log = tmp_path / "logs/starts.txt"
    for late, command in ((False, started), (True, started + "; p.wait()")):
        if late:
            end_the_time_when_it_prints(monkeypatch, log)
        with pytest.raises(Failed) if late else contextlib.nullcontext():
            check_gpu.Check(tmp_path, 60).run("starts", "-c", command)
        pid = log.read_text().strip()
        assert pid
        wait_for(lambda pid=pid: not running(pid), 20)


def test_commands_see_one_gpu_of_those_that_are_left(monkeypatch, tmp_path):
    commands = check_gpu.Check(tmp_path, 60)
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # with which nothing would run on it
    assert commands.run("none", "-c", "import os; print(os.getenv('TRITON_INTERPRET'))") == "None\n"
    for seen, first, two in ((None, "0", "0,1"), ("3,1,2", "3", "3,1")):
        if seen is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
        show = "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
        assert commands.run("one", *show).strip() == first
        assert commands.run("two", *show, **check_gpu._devices(2)).strip() == two


def test_a_failing_command_gives_its_last_line(tmp_path):
    commands = check_gpu.Check(tmp_path, 60)
    with pytest.raises(Failed, match="exit status 1: ValueError: so"):
        commands.run("bad", "-c", "print(1); raise ValueError('so')")
    assert commands.run("good", "-c", "import os; print(os.environ['A'])", A="b") == "b\n"


def test_trainings_of_other_losses_are_a_failure(monkeypatch, tmp_path):
    losses = {"float32": 5.0, "fp16": 5.1, "bf16": 4.9, "amp": 5.0}

    def run(self, name, *command, **environment):
        if name.startswith("train_"):
            loss = losses[name.removeprefix("train_")]
            line = '{"epoch": 1, "loss": "9.9"}\n' + f'{{"epoch": 2, "loss": "{loss}"}}\n'
            (tmp_path / "logs" / f"{name}.txt").write_text(line)

    monkeypatch.setattr(check_gpu.Check, "run", run)
    commands = check_gpu.Check(tmp_path, 60)
    assert check_gpu.trainings(commands)["loss, bf16"] == 4.9
    losses["bf16"] = 6.0
    with pytest.raises(Failed, match="--bf16: loss 6.0, float32 5.0"):
        check_gpu.trainings(commands)
    for loss in ("nan", "inf"):  # behind a loss that is a number
        losses["bf16"] = loss
        with pytest.raises(Failed, match=f"train_bf16.txt: the last loss is {loss}"):
            check_gpu.trainings(commands)


def test_figures_are_not_taken_for_our_kernels_where_torch_runs(monkeypatch, tmp_path):
    printed = ["H200, Triton 3.1.0: no kernel starts (no C compiler)\ntorch\n", "triton\n"]
    monkeypatch.setattr(check_gpu.Check, "run", lambda *_: printed.pop(0))
    with pytest.raises(Failed, match="run on torch: H200, Triton 3.1.0: no kernel starts"):
        check_gpu.kernels(check_gpu.Check(tmp_path, 60))
    assert check_gpu.kernels(check_gpu.Check(tmp_path, 60)) == {"way": "triton"}


@NO_GPU
def test_commands_are_those_of_the_scripts(monkeypatch, tmp_path, capsys):
    """With a GPU they would run: all that they lack here is one."""
    mains = {
        "scripts/benchmark.py": benchmark.main,
        "scripts/compare_losses.py": compare_losses.main,
    }
    met = []

    def run(self, name, script, *arguments, **environment):
        if "cuda" in arguments:
            with pytest.raises(SystemExit):
                mains[script](list(arguments))
            assert "--device cuda: torch sees no GPU" in capsys.readouterr().err
            met.append(name)
            raise Failed("no GPU")

    monkeypatch.setattr(check_gpu.Check, "run", run)
    commands = check_gpu.Check(tmp_path, 60)
    others = check_gpu.trainings, check_gpu.several, check_gpu.tests, check_gpu.kernels
    for part in check_gpu.parts(on_gpu=True).values():
        if part not in others:
            with contextlib.suppress(Failed):
                part(commands)
    assert len(met) == 9  # losses, a profile, inductor, and two sizes in three types


def shell_script(python, *arguments):
    """check_gpu.sh with a Python of one's own."""
    return subprocess.run(
        ["bash", "scripts/check_gpu.sh", *map(str, arguments)],
        cwd=check_gpu.ROOT,
        env={**os.environ, "EA_PYTHON": str(python)},
        capture_output=True,
        text=True,
    )


@NO_GPU
def test_the_command_runs_in_any_python_that_has_what_it_needs(tmp_path):
    done = shell_script(sys.executable, "--out", tmp_path, "--seconds", "0.1")
    assert done.returncode == 1, done.stderr  # the time was short
    assert done.stdout.startswith("torch sees no GPU here: only the kernels' tests run")
    assert reported(tmp_path)[0]["tests, interpreted"]["failed"] == "no time was left"


def test_the_command_wants_a_folder_and_a_python_that_has_torch(tmp_path):
    python = tmp_path / "python"
    without_packages = f'exec "{sys.executable}" -I -S "$@"'
    for does, arguments, said in (
        ("exit 1", [], "--out: name the folder"),
        ("exit 1", ["--out", "x"], "python is no Python 3.11 or 3.12"),
        ("echo 3.10", ["--out", "x"], "python is Python 3.10, no Python 3.11 or 3.12"),
        (without_packages, ["--out", "x"], "has no torch"),
    ):
        python.write_text(f"#!/bin/sh\n{does}\n")
        python.chmod(0o755)
        done = shell_script(python, *arguments)
        assert done.returncode == 2 and said in done.stderr
    assert not (check_gpu.ROOT / "x").exists()


@pytest.mark.thorough
@NO_GPU
def test_a_terminated_check_ends_what_it_began_and_keeps_the_rest(tmp_path):
    command = [sys.executable, "scripts/check_gpu.py", "--out", str(tmp_path), "--seconds", "99"]
    process = subprocess.Popen(command, cwd=check_gpu.ROOT, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "logs/interpreted.txt"
    while not (log.exists() and log.stat().st_size) and process.poll() is None:
        time.sleep(0.05)
    process.terminate()
    _, said = process.communicate(timeout=600)
    assert process.returncode == 130 and "stopped in: tests, interpreted" in said
    assert list(reported(tmp_path)[0]) == ["machine"]


def test_without_a_gpu_the_interpreter_remains():
    assert list(check_gpu.parts(on_gpu=False)) == ["machine", "tests, interpreted"]
    assert check_gpu.machine(None)["torch"] == torch.__version__


@pytest.mark.parametrize(
    "options, message",
    [
        ([], "the following arguments are required: --out"),
        (["--out", "x", "--seconds", "0"], "--seconds 0.0 must be more than 0"),
        (["--out", "/dev/null/x"], "--out /dev/null/x: Not a directory"),
    ],
)
def test_wrong_options_are_named(options, message, capsys):
    with pytest.raises(SystemExit):
        check_gpu.main(options)
    assert message in capsys.readouterr().err
