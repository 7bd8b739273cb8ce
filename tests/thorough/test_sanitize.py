"""The compiled library under gcc's sanitizers, on a few shapes; scripts/sanitize.sh has all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ea_fairseq.kernels.cpp.build import compiler

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "sanitize.sh"


def sanitize(*arguments):
    done = subprocess.run(
        ["bash", SCRIPT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHON": sys.executable},
    )
    print(done.stdout)
    return done


def has(library):
    """Whether g++ has a sanitizer's library: it prints the whole path of what it has."""
    if compiler() is None:
        return False
    done = subprocess.run(["g++", f"-print-file-name={library}"], capture_output=True, text=True)
    return Path(done.stdout.strip()).is_absolute()


@pytest.mark.thorough
@pytest.mark.parametrize("kind, library", [("address", "libasan.so"), ("thread", "libtsan.so")])
def test_no_fault_is_found(kind, library):
    if not has(library):
        pytest.skip(f"g++ without {library}")
    done = sanitize(kind, "-k", "any_number_of_threads or any_layout")
    assert done.returncode == 0 and done.stdout.endswith(f"{kind}: no fault found\n")


def test_another_kind_is_refused_by_name():
    done = sanitize("memory")
    assert done.returncode == 2 and "choose from address, thread; not 'memory'" in done.stdout
