"""fairseq's commands on a tiny corpus, in processes that can be killed.

Importing fairseq takes longer than everything these tests do with it, so a command runs in a fork
of this process, with its own arguments, environment, output and exit code.
"""

import atexit
import faulthandler
import fcntl
import functools
import io
import logging
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# So that the forks need not import them.
import fairseq.tasks  # noqa: F401
import sacrebleu  # noqa: F401
import torch
import torch._dynamo
import warm_hydra
from fairseq.trainer import Trainer
from pages import program

import ea_fairseq.plugin
from ea_fairseq.files import new_folder

warm_hydra.warm()

USER_DIR = ea_fairseq.__path__[0]
WORDS = [f"w{i}" for i in range(20)]
SIZES = [
    f"--{side}-{option}={value}"
    for side in ("encoder", "decoder")
    for option, value in (
        ("embed-dim", 16),
        ("ffn-embed-dim", 16),
        ("attention-heads", 2),
        ("layers", 2),
    )
]


class Command:
    """A running command: its process id, and after `wait` its exit code and output.

    The name is that of one of fairseq's, or a `main` of ours.
    """

    def __init__(self, name, arguments, env=None, before=None):
        self.name = name if isinstance(name, str) else name.__module__
        self._main = None if isinstance(name, str) else name
        self._output = tempfile.TemporaryFile()
        self._errors = tempfile.TemporaryFile()
        self.pid = os.fork()
        if self.pid == 0:
            self._run([str(argument) for argument in arguments], env or {}, before)

    def _run(self, arguments, env, before):
        status = 1
        faulthandler.register(signal.SIGUSR1, self._errors, all_threads=True)
        # A suite that runs in the background of a script is started with Ctrl-C ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        torch.set_num_threads(1)  # or it would wait for threads that stayed in its parent
        try:
            for number, file in ((1, self._output), (2, self._errors)):
                os.dup2(file.fileno(), number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.stdout = io.TextIOWrapper(open(1, "wb", 0), encoding="utf-8", write_through=True)
            sys.stderr = io.TextIOWrapper(open(2, "wb", 0), encoding="utf-8", write_through=True)
            logging.root.handlers.clear()
            os.environ.update(env)
            sys.argv = [f"fairseq-{self.name}", *arguments]
            if before is not None:
                before()
            if self._main is not None:
                sys.exit(self._main(arguments))
            module = __import__(f"fairseq_cli.{self.name.replace('-', '_')}", fromlist=["main"])
            # As at its import, which may have been before this fork.
            logging.basicConfig(level=logging.INFO, stream=sys.stdout)
            module.cli_main()
            status = 0
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            if isinstance(stop.code, str):
                print(stop.code, file=sys.stderr)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)

    def wait(self, seconds=600):
        """Wait until it ends, or after that many seconds kill it and fail, saying where it was."""
        deadline = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGUSR1)
                time.sleep(1)
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"fairseq-{self.name} did not end: {self.errors()}")
            time.sleep(0.005)
        self.status = os.waitstatus_to_exitcode(status)
        return self

    def wait_for(self, text, seconds=600):
        """Wait until it has printed a text, and fail where it has ended without."""
        deadline = time.monotonic() + seconds
        ended = os.WEXITED | os.WNOHANG | os.WNOWAIT  # and leave it to `wait`
        while text not in self.output():
            has_ended = os.waitid(os.P_PID, self.pid, ended) is not None
            if text in self.output():
                return
            if has_ended or time.monotonic() > deadline or "Traceback" in self.errors():
                if not has_ended:
                    os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"fairseq-{self.name} printed no {text!r}: {self.errors()}")
            time.sleep(0.002)

    def output(self):
        return _read(self._output)

    def errors(self):
        return _read(self._errors)


def _read(file):
    return os.pread(file.fileno(), 1 << 24, 0).decode()


def run(name, *arguments, **options):
    """Run a command to its end."""
    return Command(name, arguments, **options).wait()


def last_line(done):
    """What a refused command says in its last line, without a traceback."""
    assert done.status == 1 and "Traceback" not in done.errors(), done.errors()
    last = done.errors().strip().splitlines()[-1]
    assert last.startswith("error: "), last
    return last


def succeeds(name, *arguments, **options):
    """Run a command that must not fail."""
    done = run(name, *arguments, **options)
    assert done.status == 0, done.errors()
    return done


def refusal(name, *arguments, **options):
    """Run a command that must end in one line without a result, argparse's (status 2) or ours;
    returns that line."""
    done = run(name, *arguments, **options)
    assert done.status in (1, 2) and "Traceback" not in done.errors(), done.errors()
    assert not re.search("^H-|BLEU4 |^Perplexity", done.output(), re.M)
    return done.errors().strip().splitlines()[-1].removeprefix("error: ")


def here(command, folder):
    """What a page's command prints, in a fork of this process, with the repository's --user-dir.

    It may write its output to a file, by > or by | tee, before what is added to it.
    """
    words, file = shlex.split(command), None
    for sign, length in ((">", 2), ("|", 4 if "-ai" in words else 3)):
        if sign in words:
            at = words.index(sign)
            *_, file = words[at : at + length]
            del words[at : at + length]
    name, *arguments = [USER_DIR if word == "ea_fairseq" else word for word in words]
    main = name.removeprefix("fairseq-")
    if name.startswith("ea-"):
        command_main, _ = program(name)

        def main(_):
            return command_main()

    done = succeeds(main, *arguments, before=lambda: os.chdir(folder))
    if file is not None:
        (folder / file).write_text(done.output() + done.errors())
    return done.output()


def training(data, save_dir, *more):
    """The arguments of a training of seconds, with dropout."""
    return [
        data,
        *("--user-dir", USER_DIR, "--source-lang", "de", "--target-lang", "en"),
        *("--arch", "transformer", *SIZES, "--dropout", "0.3"),
        *("--optimizer", "adam", "--lr", "0.002", "--max-tokens", "60", "--num-workers", "0"),
        *("--save-dir", save_dir, "--no-progress-bar", "--log-interval", "1", *more),
    ]


def generation(data, checkpoint, *more):
    """The arguments of a translation with small beam."""
    options = ("--user-dir", USER_DIR, "--beam", "3", "--max-len-b", "15", "--max-tokens", "200")
    return [data, "--path", checkpoint, *options, "--no-progress-bar", *more]


def binarize(folder, corpora, dictionaries=None):
    """Write and binarize ``{split: [(source, target), ...]}``.

    The dictionaries are those in the folder given, or made of the split "train".
    """
    for split, pairs in corpora.items():
        for side, language in enumerate(("de", "en")):
            lines = "".join(pair[side] + "\n" for pair in pairs)
            (folder / f"{split}.{language}").write_text(lines)
    arguments = ["--source-lang", "de", "--target-lang", "en", "--workers", "1"]
    for split in corpora:
        arguments += [f"--{split}pref", folder / split]
    if dictionaries is not None:
        arguments += ["--srcdict", dictionaries / "dict.de.txt"]
        arguments += ["--tgtdict", dictionaries / "dict.en.txt"]
    succeeds("preprocess", *arguments, "--destdir", folder / "bin")
    return folder / "bin"


def temporary_folder():
    """A folder that goes when the tests end."""
    folder = Path(tempfile.mkdtemp(prefix="ea_fairseq_tests_"))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder, owner):
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def shared(make):
    """Decorator: the folder that a function fills, made once for all processes of the tests."""

    @functools.cache
    def folder(*arguments):
        name = "-".join([make.__module__, make.__name__, *arguments])
        top = Path(os.environ.get("EA_FAIRSEQ_TESTS") or temporary_folder())
        with open(top / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (top / name).exists():
                with new_folder(top / name) as unfinished:
                    make(unfinished, *arguments)
        return top / name

    return folder


@shared
def _pairs(folder):
    generator = random.Random(1)

    def pairs(count):
        sources = [generator.choices(WORDS, k=generator.randint(2, 7)) for _ in range(count)]
        return [(" ".join(source), " ".join(source[::-1])) for source in sources]

    binarize(folder, {"train": pairs(60), "valid": pairs(8), "test": pairs(11)})


def corpus():
    """Binarized data in which the target is the source backwards."""
    return _pairs() / "bin"


@shared
def _translation(folder, arch):
    succeeds("train", *training(corpus(), folder, "--max-epoch", "2", "--arch", arch))


def trained(arch="transformer"):
    """A folder with the checkpoints of two epochs on `corpus`."""
    return _translation(arch)


def console_script(name, *arguments, **options):
    """Run the command as it is installed, in a fresh Python."""
    program = Path(sys.executable).with_name(f"fairseq-{name}")
    root = str(Path(USER_DIR).parent)
    env = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", **options.pop("env", {})}
    return subprocess.run(
        [program, *map(str, arguments)], env=env, capture_output=True, text=True, **options
    )


def at_each_update(act):
    """What a training does `before` it begins, so that each update begins by calling a function of
    the trainer."""

    def install():
        train_step = Trainer.train_step

        def step(self, *arguments, **options):
            act(self)
            return train_step(self, *arguments, **options)

        Trainer.train_step = step

    return install


def signal_after(update, number, send=os.kill):
    """For `before`: when it has done that update, a training sends itself, or with os.killpg its
    group, a signal. One from outside may come when it has ended."""

    def act(trainer):
        if trainer.get_num_updates() == update:
            send(os.getpid(), number)

    return at_each_update(act)


def two_processes(arguments, port, before=None):
    """Start one training as two processes on the CPU; `before` is for the second of them."""
    distributed = ["--cpu", "--distributed-world-size", "2", "--distributed-backend", "gloo"]
    distributed += ["--distributed-init-method", f"tcp://127.0.0.1:{port}"]
    distributed += ["--distributed-no-spawn", "--ddp-backend", "legacy_ddp"]
    return [
        Command("train", [*arguments, *distributed, "--distributed-rank", rank], before=install)
        for rank, install in enumerate((None, before))
    ]
