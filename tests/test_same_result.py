"""The result does not depend on how it is run, and two runs do not spoil each other's."""

import errno
import fcntl
import os
import shutil
import signal

from fairseq_commands import Command, corpus, generation, run, trained, training, two_processes
from test_atomic_saving import free_port, wait_for

from ea_fairseq.compat import save_lock
from scripts.average_checkpoints import main as average_checkpoints

# Two runs in one save folder.

ENDLESS = ["--max-epoch", "100000", "--no-epoch-checkpoints"]


def assert_refused(command, save_dir, holder):
    """It ended in one line that names the folder and the process that uses it."""
    line = f"error: save folder {save_dir} is in use by another training (process {holder.pid} on "
    errors = command.errors().removeprefix("[rank0]: ")  # torch puts it before distributed output
    assert command.status == 1 and errors.startswith(line) and errors.count("\n") == 1, errors


def test_one_training_at_a_time_in_a_folder_until_it_is_killed(tmp_path):
    """The processes that load data outlive the killed training and must not keep its lock."""
    folder = tmp_path / "saved"
    shutil.copytree(trained(), folder)
    arguments = training(corpus(), folder, *ENDLESS, "--num-workers", "2")
    first = Command("train", arguments)
    try:
        wait_for(first, "num_updates=30")
        (folder / "other.pt.tmp").write_text("being written by the first")
        before = sorted(os.listdir(folder))
        same = tmp_path / "link"
        same.symlink_to(folder)
        assert_refused(run("train", *training(corpus(), same, "--max-epoch", "9")), same, first)
        ranks = two_processes(training(corpus(), folder, "--max-epoch", "9"), free_port())
        assert_refused(ranks[0].wait(), folder, first)
        assert ranks[1].wait().status == 1, "the other process does not wait for ever"
        # Translating and averaging only read.
        done = run("generate", *generation(corpus(), folder / "checkpoint_last.pt"))
        assert done.status == 0 and "BLEU4" in done.output(), done.errors()
        average = ["--inputs", folder, "--output", tmp_path / "average.pt"]
        average_checkpoints([str(a) for a in [*average, "--num-epoch-checkpoints", "2"]])
        assert [name for name in sorted(os.listdir(folder)) if name in before] == before
        assert os.waitpid(first.pid, os.WNOHANG)[0] == 0, "the first one goes on"
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    done = run("train", *training(corpus(), folder, "--max-epoch", "1"))
    assert done.status == 0 and "Loaded checkpoint" in done.output(), done.errors()
    assert not (folder / "other.pt.tmp").exists()


def test_a_program_may_train_twice_in_a_folder_and_a_fork_leaves_it_the_lock(tmp_path):
    folder = tmp_path / "saved"
    save_lock.hold(str(folder))
    save_lock.hold(str(folder))
    try:
        for _ in range(2):  # a fork that ends does not take the lock with it
            done = run("train", *training(corpus(), folder, "--max-update", "1"))
            assert done.status == 1 and f"(process {os.getpid()} on " in done.errors()
        assert os.listdir(folder) == [".lock"]
    finally:
        save_lock._forget_in_child()  # frees it: there is no other copy of the descriptor
    assert run("train", *training(corpus(), folder, "--max-update", "1")).status == 0


def test_a_file_system_without_locks_is_a_warning(tmp_path, monkeypatch, caplog):
    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    save_lock.hold(str(tmp_path))
    assert f"cannot lock save folder {tmp_path} (No locks available)" in caplog.text
