"""The result does not depend on how it is run, and two runs do not spoil each other's."""

import contextlib
import errno
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import weakref
from pathlib import Path

import pytest
import torch
from fairseq.dataclass.configs import CommonConfig, DistributedTrainingConfig, FairseqConfig
from fairseq.distributed import utils as distributed_utils
from fairseq.sequence_generator import SequenceGenerator
from fairseq.trainer import Trainer
from fairseq_cli import eval_lm
from fairseq_commands import (
    SIZES,
    USER_DIR,
    Command,
    corpus,
    generation,
    run,
    succeeds,
    trained,
    training,
    two_processes,
)
from small_models import EOS, PAD, build, build_strong, dictionary, padded, sentences
from test_atomic_saving import free_port, weights
from test_ea_transformer import ALL
from test_readme import environment, shown

from ea_fairseq.checkpoints.reading import read_checkpoint
from ea_fairseq.errors import UserError
from ea_fairseq.guard import saving
from scripts.average_checkpoints import main as average_checkpoints

ISOLATED = ["unshare", "--user", "--map-root-user", "--net"]
NAMESPACES = Path(__file__).with_name("two_namespaces.sh")

# Processes and nodes.

# Dropout is off: the processes draw the same for their two batches, a single process draws two.
PLAIN = ["--dropout", "0", "--max-tokens", "60", "--max-epoch", "3", "--no-epoch-checkpoints"]
PLAIN += [*SIZES, "--num-workers", "0", "--log-format", "json", "--log-interval", "1"]
ON_CPU = ["--cpu", "--ddp-backend", "legacy_ddp"]
PORT = "29500"  # in docs/fairseq.md


def folder_as_in_the_readme(folder):
    (folder / "ea_fairseq").symlink_to(USER_DIR)
    (folder / "bin").symlink_to(corpus())
    return folder


def the_pages_training():
    """Arguments of fairseq-train."""
    _, arguments = shown("torchrun --standalone")[0].split('"$(command -v fairseq-train)"')
    return [*shlex.split(arguments), *PLAIN, "--user-dir", USER_DIR]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """The training of docs/fairseq.md in one process that puts two batches into an update."""
    folder = folder_as_in_the_readme(tmp_path_factory.mktemp("one"))
    arguments = [*the_pages_training(), "--update-freq", "2"]
    succeeds("train", *arguments, before=lambda: os.chdir(folder))
    return folder / "checkpoints"


def updates(output):
    """What is printed of each update."""
    lines = re.findall(r"train_inner \| (\{.*\})", output)
    return [{key: json.loads(line)[key] for key in ("loss", "gnorm", "bsz")} for line in lines]


def losses(folder):
    """Sums of the losses over the last epoch, and over the validation after it."""
    metrics = read_checkpoint(str(folder / "checkpoint_last.pt"))["extra_state"]["metrics"]
    return [
        float(state["sum"])
        for part in ("train", "valid")
        for _, name, _, state in metrics[part]
        if name == "loss"
    ]


def assert_same_training(folder, expected):
    (found, count), (wanted, wanted_count) = weights(folder), weights(expected)
    assert count == wanted_count == 12 and len(found) > 50
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)
    assert len(losses(folder)) == 2
    assert losses(folder) == pytest.approx(losses(expected), rel=1e-6)


def launch(command, folder, *before, **env):
    return subprocess.Popen(
        [*before, "bash", "-c", f"{command} {shlex.join([*ON_CPU, *PLAIN])}"],
        cwd=folder,
        env={**environment(), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_two_processes_equal_one_with_two_batches(tmp_path, one_process, monkeypatch):
    monkeypatch.chdir(folder_as_in_the_readme(tmp_path))
    commands = two_processes(the_pages_training(), free_port())
    assert [command.wait().status for command in commands] == [0, 0], commands[0].errors()
    assert_same_training(tmp_path / "checkpoints", one_process)


@pytest.mark.thorough
def test_two_processes_started_by_torchrun_equal_one_with_two_batches(tmp_path, one_process):
    folder = folder_as_in_the_readme(tmp_path)
    (command,) = shown("torchrun --standalone")
    launcher = launch(command.replace("--nproc-per-node 8", "--nproc-per-node 2"), folder)
    output, _ = launcher.communicate(timeout=900)
    assert launcher.returncode == 0 and "training on 2 devices" in output, output
    assert_same_training(folder / "checkpoints", one_process)


def namespaces_are_permitted():
    cable = ["ip", "link", "add", "one", "type", "veth", "peer", "name", "other"]
    try:
        return subprocess.run([*ISOLATED, *cable], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.thorough
def test_two_nodes_equal_one_process_with_two_batches(tmp_path, one_process):
    """In two network namespaces; where these are not permitted, two launchers on one machine."""
    folder = folder_as_in_the_readme(tmp_path)
    (command,) = shown("torchrun --nnodes 2")
    command = command.replace("--nproc-per-node 8", "--nproc-per-node 1")
    if namespaces_are_permitted():
        nodes = [launch(command, folder, *ISOLATED, "bash", NAMESPACES)]
    else:
        command = command.replace(PORT, str(free_port()))
        env = {"MASTER_ADDR": "127.0.0.1"}
        nodes = [launch(command, folder, NODE_RANK=rank, **env) for rank in ("0", "1")]
    output = "".join(node.communicate(timeout=900)[0] for node in nodes)
    assert [node.returncode for node in nodes] == [0] * len(nodes), output
    assert "training on 2 devices" in output
    assert_same_training(folder / "checkpoints", one_process)


def threads():
    """The names of this process's threads, in one text."""
    names = []
    for comm in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it has ended
            names.append(comm.read_text().strip())
    return " ".join(sorted(names))


@pytest.mark.parametrize("signalled", [False, True])
def test_a_job_ends_without_threads_of_its_connections(tmp_path, signalled):
    """One that still held a tensor when Python was gone took the finished training down; and one
    whose group the trainer's model was the last to hold may hang."""

    def tell_at_exit(leave=os._exit):
        def exit(status):
            try:
                deadline = time.monotonic() + 600  # the system takes its time to remove them
                while "gloo" in (names := threads()) and time.monotonic() < deadline:
                    time.sleep(0.01)
                print("threads:", names)
            finally:
                leave(status)

        os._exit = exit
        trainers = weakref.WeakSet()
        begin, end = Trainer.__init__, torch.distributed.destroy_process_group

        def init(self, *args, **kwargs):
            trainers.add(self)
            self.circle = self
            begin(self, *args, **kwargs)

        def destroy():
            print("trainers left:", len(trainers))
            end()

        Trainer.__init__ = init
        torch.distributed.destroy_process_group = destroy

    job = ["--distributed-world-size", "1", "--distributed-no-spawn", "--distributed-init-method"]
    job += [f"file://{tmp_path}/store", "--distributed-backend", "gloo", *ON_CPU]
    job += ["--max-epoch", "100000" if signalled else "2"]
    arguments = training(corpus(), tmp_path / "checkpoints", *job)
    done = Command("train", arguments, before=tell_at_exit)
    if signalled:
        done.wait_for("num_updates")
        os.kill(done.pid, signal.SIGTERM)
    assert done.wait().status == (128 + signal.SIGTERM if signalled else 0), done.errors()
    assert "distributed init (rank 0)" in done.output()
    assert "trainers left: 0" in done.output()
    assert re.search(r"threads: \w", done.output())
    assert "gloo" not in done.output().split("threads:")[1]


@pytest.fixture
def under_torchrun(monkeypatch):
    """A function that sets what torchrun sets for one of two processes."""

    def enter():
        for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", PORT)

    return enter


def settings():
    """fairseq's defaults on the CPU, in sections of its own: by default all share the classes."""
    return FairseqConfig(CommonConfig(cpu=True), distributed_training=DistributedTrainingConfig())


def test_fairseqs_default_backend_on_the_cpu_is_refused(under_torchrun):
    cfg = settings()
    under_torchrun()
    with pytest.raises(UserError, match="^--ddp-backend pytorch_ddp needs GPUs.* legacy_ddp$"):
        distributed_utils.call_main(cfg, Trainer)


def test_a_perplexity_is_of_the_whole_text_in_one_process(monkeypatch, under_torchrun):
    """Each process printed that of its part: under torchrun, and by default with several GPUs."""
    cfg = settings()
    cfg.distributed_training.distributed_world_size = 2
    seen = []

    def main(cfg):
        seen.append(cfg.distributed_training.distributed_world_size)

    code = main.__code__.replace(co_filename=eval_lm.__file__)
    monkeypatch.setattr(main, "__code__", code)
    distributed_utils.call_main(cfg, main)
    assert seen == [1]
    under_torchrun()
    with pytest.raises(UserError, match="fairseq-eval-lm reads the text in one process"):
        distributed_utils.call_main(cfg, main)
    assert seen == [1]


@pytest.mark.parametrize("options", [{}, {"ea_skip": "none"}, {"ea_variant": "residual"}])
def test_torchs_ddp_finds_no_unused_parameter_and_the_same_gradients(process_group, options):
    """fairseq's default on GPUs: without --find-unused-parameters it fails at the second update."""
    model = build("ea_transformer_lite", **options, dropout=0.0)
    batch = (padded(sentences([4, 2], 1), left=True), None, padded(sentences([3, 5], 2)))
    expected = torch.autograd.grad(model(*batch)[0].square().sum(), list(model.parameters()))
    with process_group():
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        for _ in range(3):
            model.zero_grad()
            parallel(*batch)[0].square().sum().backward()
        parallel = None  # the last to hold the group, it may hang
    for parameter, wanted in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, wanted)


# The same again.


def test_the_same_seed_gives_the_same_losses_and_weights(tmp_path):
    """With dropout; the second time other processes load the data. That a resumed training draws
    the same dropout is in test_atomic_saving.py and test_commands.py."""
    runs = {}
    for name, more in {
        "first": [],
        "second": ["--num-workers", "2"],
        "other": ["--seed", "2"],
    }.items():
        more = ["--arch", "ea_transformer_lite", "--max-epoch", "2", *more]
        done = succeeds(
            "train", *training(corpus(), tmp_path / name, *more, "--log-format", "json")
        )
        runs[name] = updates(done.output())
    assert len(runs["first"]) > 12 and runs["first"] == runs["second"] != runs["other"]
    assert losses(tmp_path / "first") == losses(tmp_path / "second")
    (first, _), (second, _), (other, _) = (weights(tmp_path / name) for name in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


# Half precision.


def test_losses_of_half_precision_follow_those_of_float32(tmp_path):
    """fairseq-train on the CPU, each update's loss; float32 goes from 5.1 to 3.8."""
    found = {}
    for dtype in ([], ["--fp16"], ["--bf16"]):
        folder = tmp_path / "".join(dtype)
        more = ["--arch", "ea_transformer_lite", "--dropout", "0", "--lr", "0.005", "--cpu", *dtype]
        more += ["--max-epoch", "3", "--no-epoch-checkpoints", "--fp16-no-flatten-grads"]
        done = succeeds("train", *training(corpus(), folder, *more, "--log-format", "json"))
        assert "gradient overflow" not in done.output()
        found["".join(dtype)] = [float(update["loss"]) for update in updates(done.output())]
    assert found[""][0] - min(found[""]) > 0.5
    for half in ("--fp16", "--bf16"):
        assert len(found[half]) == len(found[""]) > 20
        assert found[half] == pytest.approx(found[""], abs=0.03) and found[half] != found[""]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_maps_of_logits_beyond_1e4_stay_finite_with_finite_gradients(dtype):
    """In all three attentions of every layer. What a convolution makes of them is beyond float16,
    which ends at 65504."""
    model = build("ea_transformer_lite", ea_skip=ALL).to(dtype)
    largest = {}

    def note(name):
        def hook(module, inputs, outputs):
            largest[name] = inputs[0].abs().max().item()
            assert outputs[0].isfinite().all(), name

        return hook

    with torch.no_grad():
        for name, module in model.named_modules():
            if name.endswith("_attn"):
                module.q_proj.weight.mul_(100)
                module.k_proj.weight.mul_(100)
                module.transform.convolution.weight.fill_(1.0)  # sums of 36 logits
                module.transform.register_forward_hook(note(name))
    targets = padded(sentences([4, 7], 2))
    scores, _ = model(padded(sentences([6, 3], 1), left=True), None, targets)
    assert len(largest) == 9 and min(largest.values()) > 1e4, largest
    assert scores.isfinite().all()
    scores[targets != PAD].float().log_softmax(-1)[:, 4].sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name


# Beam search.


def generate(model, sources):
    tokens = padded(sources, left=True)
    search = SequenceGenerator([model], dictionary(), beam_size=4, max_len_b=12)
    net_input = {"src_tokens": tokens, "src_lengths": tokens.ne(PAD).sum(1)}
    return search.generate([model], {"net_input": net_input})


def test_translations_do_not_depend_on_batch_size_and_order(seed=1):
    """fairseq's beam search in float32, with convolutions that show."""
    model = build_strong(seed=seed, ea_skip=ALL).float()
    lengths = torch.randint(1, 12, (64,), generator=torch.Generator().manual_seed(5)).tolist()
    sources = sentences(lengths, 6, last=EOS)
    alone = [generate(model, [source])[0] for source in sources]
    assert len({tuple(best[0]["tokens"].tolist()) for best in alone}) > 10
    for size, shuffle in ((8, 0), (8, 1), (64, 0), (64, 1)):
        order = torch.randperm(64, generator=torch.Generator().manual_seed(shuffle)).tolist()
        for start in range(0, 64, size):
            rows = order[start : start + size]
            batch = generate(model, [sources[row] for row in rows])
            for row, hypotheses in zip(rows, batch, strict=True):
                for found, wanted in zip(hypotheses, alone[row], strict=True):
                    assert torch.equal(found["tokens"], wanted["tokens"])
                    assert abs(found["score"] - wanted["score"]) < 1e-5


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
        first.wait_for("num_updates=30")
        (folder / "other.pt.tmp").write_text("being written by the first")
        saving = {"checkpoint_last.pt.tmp", "checkpoint_best.pt.tmp"}  # by the first, at times
        before = sorted(set(os.listdir(folder)) - saving)
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
    saving.lock(str(folder))
    saving.lock(str(folder))
    try:
        for _ in range(2):  # a fork that ends does not take the lock with it
            done = run("train", *training(corpus(), folder, "--max-update", "1"))
            assert done.status == 1 and f"(process {os.getpid()} on " in done.errors()
        assert os.listdir(folder) == [".lock"]
    finally:
        saving._forget_locks()  # frees it: there is no other copy of the descriptor
    assert run("train", *training(corpus(), folder, "--max-update", "1")).status == 0


def test_a_file_system_without_locks_is_a_warning(tmp_path, monkeypatch, caplog):
    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    saving.lock(str(tmp_path))
    assert f"cannot lock save folder {tmp_path} (No locks available)" in caplog.text
