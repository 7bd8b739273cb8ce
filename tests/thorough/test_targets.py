"""The compiled library for each instruction set that this machine runs: the same numbers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from compiled import needs_compiler

from ea_fairseq.kernels.cpp import build

TESTS = Path(__file__).resolve().parents[1]
# Each holds what is compiled to torch, or to loops, with sizes on both sides of any vector's.
FILES = [f"core/test_{name}.py" for name in ("kernels", "decoders", "int8")]
EVERY = pytest.mark.parametrize("target", build.runnable_targets()[1:])


@needs_compiler
@pytest.mark.thorough
@EVERY
def test_the_kernels_tests_pass(target):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *FILES],
        cwd=TESTS,
        env={**os.environ, "EA_FAIRSEQ_MARCH": target, "EA_FAIRSEQ_NATIVE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def compiled_alone(compiler, output, *flags):
    """The kernels and loops beside them as a program of their own; what the compiler said."""
    # All flags but those of a library; less optimised, which takes a fifth of the time.
    flags = [*(x for x in build.FLAGS if x not in ("-shared", "-fPIC", "-O3")), "-O1", *flags]
    command = [compiler, *flags, "-Wall", "-Wextra", str(TESTS / "thorough" / "kernels_alone.cpp")]
    done = subprocess.run([*command, "-o", str(output)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def assert_equal_to_loops(*command, width):
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"vectors of {width} bytes: ") and "bytes exact" in done.stdout


WIDTHS = {"x86-64-v2": 16, "x86-64-v3": 32, "x86-64-v4": 64}


@needs_compiler
@pytest.mark.thorough
@EVERY
def test_equals_loops_and_compiles_without_a_warning(target, tmp_path):
    program = tmp_path / "alone"
    said = compiled_alone(build.compiler()[0], program, f"-march={target}")
    assert "warning" not in said, said
    assert_equal_to_loops(program, width=WIDTHS[target])


@pytest.mark.thorough
def test_equals_loops_on_arm(tmp_path):
    """Compiled for aarch64, in an emulator (Debian: g++-aarch64-linux-gnu, qemu-user-static)."""
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64-static")
    if compiler is None or emulator is None:
        pytest.skip("no compiler for aarch64, or no emulator")
    program = tmp_path / "alone"
    said = compiled_alone(compiler, program, "-static")
    assert "kernels" not in said, said  # what the linker says is of libgomp
    assert_equal_to_loops(emulator, program, width=16)


@pytest.mark.thorough
def test_clang_builds_it_too(tmp_path):
    if shutil.which("clang++") is None:
        pytest.skip("no clang++")
    environment = {**os.environ, "CXX": "clang++", "XDG_CACHE_HOME": str(tmp_path)}
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "from ea_fairseq.kernels.cpp.library import *; print(load_library())",
        ],
        env={**environment, "EA_FAIRSEQ_NATIVE": "1", "EA_FAIRSEQ_MARCH": "native"},
        capture_output=True,
        text=True,
    )
    if "lomp" in found.stderr:
        pytest.skip("clang++ without its OpenMP library (libomp-dev)")
    assert "CDLL" in found.stdout, found.stderr
