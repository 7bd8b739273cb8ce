"""The compiled library's file: built once, whole or not at all, never run when it is not whole."""

import logging
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from compiled import needs_compiler

from ea_fairseq.errors import UserError
from ea_fairseq.kernels.cpp import build, library

# In the compiler's place: gives out the library that is there already, and notes that it did.
COPYING = """
import shutil, sys
if sys.argv[-1] == "--version":
    sys.stdout.buffer.write(b"copying compiler \\xff\\xfe\\n")
else:
    shutil.copyfile({library!r}, sys.argv[sys.argv.index("-o") + 1])
    open({used!r}, "a").write(" ".join(sys.argv) + "\\n")
"""

# In the compiler's place: fails as g++ and ld do.
FAILING = """
import sys
if sys.argv[-1] != "--version":
    sys.exit({output!r})
"""


@pytest.fixture
def load(tmp_path, monkeypatch, caplog):
    """Loads the library afresh, with an empty folder for it and the given environment; returns
    whether it did and what it said."""
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def load(**environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        caplog.clear()
        loaded = library.load_library.__wrapped__()
        return loaded is not None, caplog.text

    return load


@pytest.fixture(scope="module")
def real():
    """The library of this machine."""
    return build.built(build.compiler())


@pytest.fixture
def copying(real, tmp_path, monkeypatch):
    """A compiler that takes no time, as $CXX of two words; returns the commands of its uses."""
    used = tmp_path / "used"
    used.touch()
    script = tmp_path / "copying.py"
    script.write_text(COPYING.format(library=str(real), used=str(used)))
    monkeypatch.setenv("CXX", f"{sys.executable} {script}")
    return lambda: used.read_text().splitlines()


def in_children(count, function):
    """What a function returns in processes of their own, all at once, which may die of it."""
    children = []
    for _ in range(count):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(600)
            try:
                os.write(writing, function().encode())
            finally:
                os._exit(0)
        os.close(writing)
        children.append((child, reading))
    found = []
    for child, reading in children:
        with open(reading, encoding="utf-8") as pipe:
            found.append(pipe.read())
        _, status = os.waitpid(child, 0)
        assert status == 0, f"ended with status {status}"
    return found


def in_child(function):
    return in_children(1, function)[0]


def files(folder: Path) -> set[str]:
    return {path.suffix for path in (folder / "ea_fairseq").iterdir()}


@needs_compiler
def test_is_compiled_once(load, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-O0"))  # faster to compile
    loaded, said = load()
    assert loaded and "compiling" in said
    assert files(tmp_path) == {".so", ".sha256"}
    loaded, said = load()
    assert loaded and "compiling" not in said
    assert files(tmp_path) == {".so", ".sha256"}


@needs_compiler
def test_a_compiler_of_several_words_that_prints_no_text_is_used(load, copying):
    assert load()[0] and load()[0] and len(copying()) == 1


DAMAGES = {
    "cut": lambda file: os.truncate(file, file.stat().st_size // 2),
    "a byte short": lambda file: os.truncate(file, file.stat().st_size - 1),
    "zeroed": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "empty": lambda file: file.write_bytes(b""),
    "another": lambda file: file.write_bytes(Path(sys.executable).read_bytes()[:100_000]),
    "without checksum": lambda file: file.with_suffix(".sha256").unlink(),
    "with an empty checksum": lambda file: file.with_suffix(".sha256").write_bytes(b""),
}


@needs_compiler
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_library_is_compiled_again_and_never_run(load, copying, tmp_path, damage):
    in_child(lambda: str(load()))  # what is loaded here must stay whole until this process ends
    (file,) = (tmp_path / "ea_fairseq").glob("*.so")
    whole = file.read_bytes()
    DAMAGES[damage](file)
    said = in_child(lambda: str(load()))
    assert said.startswith("(True") and str(file) in said and "compiling it again" in said
    assert file.read_bytes() == whole and len(copying()) == 2
    assert "compiling" not in in_child(lambda: str(load()))


@needs_compiler
@pytest.mark.parametrize("suffix", [".so", ".sha256"])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_in_the_way_of_the_library_is_named(load, copying, tmp_path, suffix, make):
    load()
    (file,) = (tmp_path / "ea_fairseq").glob(f"*{suffix}")
    file.unlink()
    make(file)
    said = in_child(lambda: str(load()))
    assert said.startswith("(False") and f"{file} is in the way" in said


@needs_compiler
def test_what_a_killed_compilation_left_goes_when_it_is_old(load, copying, tmp_path):
    folder = tmp_path / "ea_fairseq"
    folder.mkdir(mode=0o700)
    for name in ("old", "new"):
        (folder / f"{name}.tmp").mkdir()
        (folder / f"{name}.tmp" / "x.so").touch()
        (folder / f"{name}2.tmp").touch()
    long_ago = time.time() - 3600
    for name in ("old", "old2"):
        os.utime(folder / f"{name}.tmp", (long_ago, long_ago))
    assert load()[0]
    assert {path.name for path in folder.glob("*.tmp")} == {"new.tmp", "new2.tmp"}


@needs_compiler
def test_what_another_compilation_has_just_removed_is_no_error(load, copying, monkeypatch):
    glob, gone = Path.glob, Path("/nowhere/another.tmp")

    def found(folder, pattern):
        return [*glob(folder, pattern), *([gone] if pattern == "*.tmp" else [])]

    monkeypatch.setattr(Path, "glob", found)
    assert load()[0]


@needs_compiler
def test_several_processes_may_build_at_once(load, copying, tmp_path):
    assert all(said.startswith("(True") for said in in_children(4, lambda: str(load())))
    assert "compiling" not in load()[1]
    assert files(tmp_path) == {".so", ".sha256"}


@pytest.mark.parametrize(
    "environment, message",
    [
        ({"EA_FAIRSEQ_NATIVE": "0"}, ""),
        ({"CXX": "no-such-compiler -O2"}, "no C++ compiler (CXX is 'no-such-compiler -O2')"),
        ({"PATH": "/nowhere", "CXX": ""}, "no C++ compiler (install g++, or name another in CXX)"),
        ({"CXX": "g++ '"}, 'no C++ compiler (CXX is "g++ \'")'),
        ({"CXX": "false"}, "did not build"),
    ],
)
def test_is_never_required(load, environment, message, tmp_path):
    loaded, said = load(**environment)
    assert not loaded and message in said
    assert not list(tmp_path.glob("ea_fairseq/*"))


@needs_compiler
def test_without_a_folder_of_ones_own_nothing_is_run(load, tmp_path, monkeypatch):
    folder = tmp_path / "ea_fairseq"
    folder.mkdir()
    folder.chmod(0o777)
    loaded, said = load()
    assert not loaded and "can be written by others" in said

    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", home)
    loaded, said = load()
    assert not loaded and "no home folder: set XDG_CACHE_HOME or HOME" in said


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("EA_FAIRSEQ_NATIVE", "yes", "EA_FAIRSEQ_NATIVE=yes.*0.*1"),
        pytest.param(
            *("EA_FAIRSEQ_MARCH", "pentium", "EA_FAIRSEQ_MARCH=pentium: no such choice"),
            marks=needs_compiler,
        ),
    ],
)
def test_a_wrong_choice_stops_before_anything_is_compiled(load, name, value, message, tmp_path):
    with pytest.raises(UserError, match=message):
        load(**{name: value})
    assert not list(tmp_path.glob("ea_fairseq/*"))


@needs_compiler
def test_each_target_has_a_library_of_its_own(load, copying, tmp_path, monkeypatch):
    for target in (*build.runnable_targets(), build.runnable_targets()[-1]):
        assert load(EA_FAIRSEQ_MARCH=target)[0]
    for target, line in zip(build.runnable_targets(), copying(), strict=True):
        assert f" -march={target} " in line and line.count("-march=") == 1
    monkeypatch.delenv("EA_FAIRSEQ_MARCH")
    assert "compiling" not in load()[1], "native is the default"
    assert "compiling" not in load(EA_FAIRSEQ_MARCH="")[1], "set to nothing is not set"


def flags(*levels):
    names = " ".join(build.LEVELS[level] for level in levels)
    return f"flags\t\t: fpu sse2 {names}\n"


V2, V3, V4 = build.LEVELS


@pytest.mark.parametrize(
    "cpuinfo, found",
    [
        (flags(V2, V3, V4), ["native", V2, V3, V4]),
        (flags(V2, V3).replace(" movbe", ""), ["native", V2]),
        (flags(V2, V4), ["native", V2]),  # a level has all below
        (flags(V2, V3, V4) + flags(V2, V3), ["native", V2, V3]),  # two kinds of processors
        (flags(), ["native"]),
        ("Features\t: fp asimd\n", ["native"]),
    ],
)
def test_targets_are_those_that_every_processor_has(cpuinfo, found, tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text(cpuinfo)
    assert build.runnable_targets(file) == found
    assert build.runnable_targets(tmp_path / "nothing") == ["native"]


def test_a_target_that_the_processor_does_not_have_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "cpuinfo"
    file.write_text(flags(V2, V3))
    for chosen, message in (
        (V4, f"{V4}: this processor does not have it; choices here are native, {V2}, {V3}"),
        ("avx2", f"avx2: no such choice; choices here are native, {V2}, {V3}"),
    ):
        monkeypatch.setenv("EA_FAIRSEQ_MARCH", chosen)
        with pytest.raises(UserError) as raised:
            build.target(file)
        assert str(raised.value) == f"EA_FAIRSEQ_MARCH={message}"
    monkeypatch.setenv("EA_FAIRSEQ_MARCH", V3)
    assert build.target(file) == V3


@pytest.mark.parametrize(
    "output, line",
    [
        (
            "In file included from a.cpp:3:\nb.h:7:1: error: expected ';'\nb.h:9:1: error: more",
            "b.h:7:1: error: expected ';'",
        ),
        (
            "c++: error: bad value ('x86-64-v3') for '-march=' switch\nc++: note: ...",
            "c++: error: bad value ('x86-64-v3') for '-march=' switch",
        ),
        (
            "/usr/bin/ld: cannot find -lgomp\ncollect2: error: ld returned 1 exit status",
            "/usr/bin/ld: cannot find -lgomp",
        ),
        ("segmentation fault", "segmentation fault"),
    ],
)
def test_a_failed_build_is_reported_by_its_error(load, tmp_path, output, line):
    script = tmp_path / "failing.py"
    script.write_text(FAILING.format(output=output))
    loaded, said = load(CXX=f"{sys.executable} {script}")
    assert not loaded and f"did not build ({line}): torch alone" in said


def test_processors_are_told_apart_on_arm_too(tmp_path):
    core = "processor\t: {n}\nBogoMIPS\t: {n}0\nFeatures\t: fp asimd\nCPU part\t: 0x{part}\n\n"

    def described(*parts):
        text = "".join(core.format(n=n, part=part) for n, part in enumerate(parts))
        (tmp_path / "cpuinfo").write_text(text)
        return build.processor(tmp_path / "cpuinfo")

    assert described("d0c") == described("d0c", "d0c") != described("d40")
    assert described("d0c", "d40") == described("d40", "d0c") != described("d40")
    assert "asimd" in described("d0c")
    assert build.processor(tmp_path / "nothing")  # where there is no such file, something else
