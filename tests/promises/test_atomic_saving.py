"""A killed, full, diverging or interrupted training never costs a checkpoint or a wrong number."""

import os
import random
import resource
import signal
import socket

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq_commands import (
    at_each_update,
    corpus,
    run,
    signal_after,
    training,
    two_processes,
)

from ea_fairseq.checkpoints.reading import read_checkpoint
from ea_fairseq.checkpoints.writing import atomic_file, save_checkpoint_file
from ea_fairseq.errors import UserError

# 7 epochs of about 12 updates, with a checkpoint after every third.
LONG = ["--max-epoch", "7", "--save-interval-updates", "3", "--keep-interval-updates", "2"]
LONG += ["--keep-last-epochs", "2"]


def weights(folder, name="checkpoint_last.pt"):
    """What a training continues from: weights, optimizer and number of updates."""
    state = read_checkpoint(str(folder / name))
    tensors = dict(state["model"])
    for number, values in state["last_optimizer_state"]["state"].items():
        for key, value in values.items():
            tensors[f"{number}.{key}"] = torch.as_tensor(value)
    return tensors, state["optimizer_history"][-1]["num_updates"]


def assert_same(folder, other, at_least=50):
    (found, updates), (expected, all_updates) = weights(folder), weights(other)
    assert updates == all_updates > at_least and len(found) > 50
    torch.testing.assert_close(found, expected, atol=0, rtol=0)


def assert_whole(folder):
    """Every file that goes by the name of a checkpoint is one."""
    for path in folder.glob("*.pt"):
        read_checkpoint(str(path))


def train(folder, *more, status=0, **options):
    done = run("train", *training(corpus(), folder, *more), **options)
    assert done.status == status, done.errors()
    return done


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    train(folder, *LONG)
    return folder


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_killed_again_and_again_it_ends_with_the_same_weights(tmp_path, uninterrupted):
    generator = random.Random(0)
    kills = 0
    for _ in range(8):
        die = die_within(generator.uniform(0.001, 0.15))
        done = run("train", *training(corpus(), tmp_path, *LONG), before=die)
        assert_whole(tmp_path)
        if done.status == 0:  # it had ended before
            break
        assert done.status == -signal.SIGVTALRM, done.errors()
        kills += 1
    assert kills >= 3
    train(tmp_path, *LONG)
    assert_same(tmp_path, uninterrupted)
    assert not list(tmp_path.glob("*.tmp"))


def die_within(seconds):
    """Kill this process so long after its first update began, in its own time: however busy the
    machine is, it comes as far."""

    def begin(trainer):
        if signal.getitimer(signal.ITIMER_VIRTUAL)[0] == 0:
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)

    return at_each_update(begin)


def die_at(function, call):
    """Kill this process at a call of a function of `os`, counted from 1."""

    def install():
        original = getattr(os, function)
        calls = iter(range(1, 1000))

        def replacement(*args, **kwargs):
            if next(calls) == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        setattr(os, function, replacement)

    return install


def limit_files():
    """Have the system let this process write no more than 50,000 bytes to a file."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))


def die_beyond_the_limit():
    """Have it kill this process there; Python ignores the signal, and writing fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_files()


@pytest.mark.parametrize(
    "death",
    # fsync is called for each file and for its folder, replace for each file.
    [die_beyond_the_limit, die_at("fsync", 7), die_at("replace", 5)],
    ids=["write", "fsync", "replace"],
)
def test_killed_while_saving_it_goes_on(tmp_path, uninterrupted, death):
    train(tmp_path, *LONG, "--max-update", "3")
    before = weights(tmp_path)
    done = run("train", *training(corpus(), tmp_path, *LONG), before=death)
    assert done.status in (-signal.SIGKILL, -signal.SIGXFSZ), done.errors()
    assert_whole(tmp_path)
    assert weights(tmp_path)[1] >= before[1]
    train(tmp_path, *LONG)
    assert_same(tmp_path, uninterrupted)
    assert not list(tmp_path.glob("*.tmp"))


def contents(folder):
    return {path: path.read_bytes() for path in folder.glob("*.pt*")}


def test_full_disk_is_one_line_and_costs_nothing(tmp_path):
    few = "--no-epoch-checkpoints"
    train(tmp_path, few, "--max-epoch", "1")
    before = contents(tmp_path)
    done = train(tmp_path, few, "--max-epoch", "2", before=limit_files, status=1)
    assert done.errors().startswith(f"error: cannot write {tmp_path}/checkpoint_")
    assert "File too large" in done.errors() and done.errors().count("\n") == 1
    assert contents(tmp_path) == before
    train(tmp_path, few, "--max-epoch", "2")


def test_fairseqs_own_saving_and_copying_is_whole_or_nothing(tmp_path):
    """Through fairseq's names; the limit hits only the process that sets it."""
    state = {"model": {"w": torch.zeros(10_000)}}
    first, last = str(tmp_path / "checkpoint1.pt"), str(tmp_path / "checkpoint_last.pt")
    checkpoint_utils.torch_persistent_save({"model": {"w": torch.ones(1)}}, last)
    checkpoint_utils.torch_persistent_save(state, first, async_write=True)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, old[1]))
    try:
        with pytest.raises(UserError, match="cannot write .*checkpoint_last.pt: File too large"):
            PathManager.copy(first, last, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert read_checkpoint(last)["model"]["w"].tolist() == [1.0]
    assert PathManager.copy(first, last, overwrite=True)
    assert read_checkpoint(last)["model"]["w"].shape == (10_000,)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint1.pt", "checkpoint_last.pt"]


def test_a_file_has_its_name_when_it_is_complete(tmp_path):
    path = tmp_path / "a.pt"
    path.write_bytes(b"old")
    with atomic_file(str(path)) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    with pytest.raises(KeyError), atomic_file(str(path)) as file:
        file.write(b"newer")
        raise KeyError
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["a.pt"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_never_saved(tmp_path, bad):
    path = tmp_path / "a.pt"
    model = {"count": torch.tensor([1]), "good": torch.ones(2), "w": torch.tensor([0.0, bad])}
    with pytest.raises(UserError, match="a.pt: w has values that are NaN or infinite"):
        save_checkpoint_file({"model": model}, str(path))
    assert os.listdir(tmp_path) == []


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    with pytest.raises(UserError, match="would contain pathlib.*PosixPath"):
        save_checkpoint_file({"model": {}, "path": tmp_path}, str(tmp_path / "a.pt"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "rate, arch",
    [("1e39", "transformer"), ("1e20", "ea_transformer_lite")],
)
def test_diverging_training_stops_in_one_line_and_saves_nothing(tmp_path, rate, arch):
    more = ["--max-epoch", "2", "--save-interval-updates", "1", "--lr", rate, "--arch", arch]
    done = train(tmp_path, *more, status=1)
    last_line = done.errors().splitlines()[-1]
    assert last_line.startswith("error: ") and "Traceback" not in done.errors()
    assert "nan" in last_line.lower()
    assert not list(tmp_path.glob("*.pt"))


def test_a_validation_without_a_score_stops_the_training_and_is_never_the_best(tmp_path):
    """One update an epoch: the first leaves weights of 1e20, which are finite."""
    one_batch = ["--max-tokens", "5000", "--required-batch-size-multiple", "1", "--max-epoch"]
    train(tmp_path, *one_batch, "1")
    before = contents(tmp_path)
    assert tmp_path / "checkpoint_best.pt" in before
    done = train(tmp_path, *one_batch, "3", "--lr", "1e20", "--reset-lr-scheduler", status=1)
    assert "Traceback" not in done.errors()
    last_line = done.errors().splitlines()[-1]
    assert last_line.startswith("error: training stopped after update 2: validation loss is nan")
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "send, number, status",
    [
        (os.killpg, signal.SIGINT, 130),
        (os.kill, signal.SIGTERM, 143),
        (os.killpg, signal.SIGHUP, 129),
    ],
    ids=["ctrl-c", "sigterm", "closed terminal"],
)
def test_signal_saves_and_stops_and_it_goes_on(tmp_path, uninterrupted, number, status, send):
    """Sent to the command, or as a terminal and job managers do, to all of its processes."""
    # No checkpoint but the one that the signal causes.
    more = ["--max-epoch", "7", "--no-epoch-checkpoints"]

    def before():
        os.setsid()
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_DFL)  # under nohup it is ignored
        signal_after(15, number, send)()  # in the second epoch

    command = train(tmp_path, *more, "--num-workers", "2", before=before, status=status)
    assert f"stopping after update {weights(tmp_path)[1]}" in command.output()
    train(tmp_path, *more)
    assert_same(tmp_path, uninterrupted)


def test_two_processes_stop_together_and_go_on(tmp_path):
    """The signal reaches one process; resuming sends the checkpoint to the other."""

    def train_both(folder, port, before=None):
        arguments = training(corpus(), folder, "--max-epoch", "6", "--no-epoch-checkpoints")
        return two_processes(arguments, port, before)

    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    ports = [free_port() for _ in range(3)]
    commands = train_both(stopped, ports[0], signal_after(9, signal.SIGTERM))
    assert [command.wait().status for command in commands] == [143, 143]
    for folder, port in ((stopped, ports[1]), (whole, ports[2])):
        assert [command.wait().status for command in train_both(folder, port)] == [0, 0]
    assert_same(stopped, whole, at_least=20)
