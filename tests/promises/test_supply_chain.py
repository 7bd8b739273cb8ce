"""Nothing is fetched and run: not by the code, and not by what it uses while it works."""

import ast
import builtins
import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from fairseq_commands import corpus, generation, run, training

from ea_fairseq.kernels.cpp.build import compiler

ROOT = Path(__file__).resolve().parents[2]
FILES = [path for name in ("ea_fairseq", "scripts") for path in sorted((ROOT / name).rglob("*.py"))]

# What reaches the network, runs text, or makes objects of any kind from a file; and the one file,
# or folder, that does it, if any.
RESTRICTED = {
    **dict.fromkeys(("pip", "ensurepip", "requests", "torch.hub", "runpy", "marshal"), None),
    **dict.fromkeys(("socket.create_connection", "ftplib"), None),
    **dict.fromkeys(("eval", "exec", "compile", "__import__", "os.system", "os.popen"), None),
    **dict.fromkeys(("pickle.load", "pickle.loads", "yaml.load", "numpy.load", "np.load"), None),
    **dict.fromkeys(("urllib.request", "http.client"), "ea_fairseq/corpus/download.py"),
    **dict.fromkeys(("asyncio", "socket.socket"), "ea_fairseq/page/"),  # the local page
    "torch.load": "ea_fairseq/checkpoints/reading.py",  # with the safe unpickler, always
}


def used(source):
    """Modules imported, and names called or taken from modules, as ``a.b.c``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def restricted(source):
    """Those entries of RESTRICTED that the source uses."""
    names = set(used(source))
    return {entry for entry in RESTRICTED if any(f"{n}.".startswith(f"{entry}.") for n in names)}


def test_no_file_fetches_or_runs_what_it_should_not():
    for path in FILES:
        name = str(path.relative_to(ROOT))
        found = restricted(path.read_text(encoding="utf-8"))
        own = [entry for entry in found if name.startswith(RESTRICTED[entry] or " ")]
        assert found == set(own), name


def test_the_search_finds_what_it_looks_for():
    for entry in RESTRICTED:
        assert restricted(f"{entry}(x)" if "." not in entry else f"y = {entry}") == {entry}
        if not hasattr(builtins, entry):
            assert entry in restricted(f"import {entry}")
    assert restricted("from urllib import request") == {"urllib.request"}
    assert restricted("re.compile(model.eval())") == set()
    for entry, path in RESTRICTED.items():
        if path is not None:
            files = [ROOT / path, *sorted((ROOT / path).glob("*.py"))]
            texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
            assert any(entry in restricted(text) for text in texts)


def no_network_and_no_programs():
    """End this process, with exit code 99, if it asks for either; it cannot be undone."""
    # The compiler of the compiled library, from the sources that are in the package.
    allowed, *_ = compiler() or [None]

    def watch(event, arguments):
        match event:
            case "socket.connect" | "socket.bind":
                stop = arguments[0].family != socket.AF_UNIX  # processes that load data use those
            case "socket.getaddrinfo" | "urllib.Request":
                stop = True
            case "subprocess.Popen":
                stop = arguments[0] != allowed
            case "os.exec" | "os.posix_spawn" | "os.system":
                stop = True
            case _:
                stop = False
        if stop:
            os.write(2, f"{event} {arguments}\n".encode())
            os._exit(99)

    sys.addaudithook(watch)


def test_training_and_translating_use_no_network_and_no_programs(tmp_path):
    arguments = training(corpus(), tmp_path, "--arch", "ea_transformer_lite", "--max-epoch", "1")
    done = run("train", *arguments, before=no_network_and_no_programs)
    assert done.status == 0, done.errors()
    arguments = generation(corpus(), tmp_path / "checkpoint_last.pt")
    done = run("generate", *arguments, before=no_network_and_no_programs)
    assert done.status == 0 and "BLEU4" in done.output(), done.errors()


@pytest.mark.parametrize(
    "action",
    [
        lambda: socket.create_connection(("127.0.0.1", 9)),
        lambda: urllib.request.urlopen("http://127.0.0.1:9/"),
        lambda: subprocess.run(["true"]),
        lambda: os.system("true"),
        lambda: os.execv("/bin/true", ["true"]),
    ],
)
def test_the_watch_ends_a_command_that_does_either(action):
    def before():
        no_network_and_no_programs()
        action()

    assert run("train", "--help", before=before).status == 99
    assert run("train", "--help", before=no_network_and_no_programs).status == 0
