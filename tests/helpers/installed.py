"""The package as a wheel installs it, away from the clone."""

import atexit
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from pages import ROOT, bash

BUILD = """
import sys
from setuptools import build_meta
print(getattr(build_meta, sys.argv[1])(sys.argv[2]), file=sys.stderr)
"""


def build(kind: str, source: Path, output: Path) -> Path:
    """What ``python -m build --no-isolation`` makes: ``kind`` is build_sdist or build_wheel."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(output)],
        cwd=source,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return output / done.stderr.strip().splitlines()[-1]


@cache
def distributions() -> tuple[Path, Path]:
    """The source distribution and the wheel that is built of it."""
    folder = Path(mkdtemp(prefix="ea_fairseq_build"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    clone = folder / "clone"
    shutil.copytree(
        ROOT,
        clone,
        ignore=shutil.ignore_patterns(
            *(".*", "work", "build", "dist", "__pycache__", "*.egg-info")
        ),
    )
    sdist = build("build_sdist", clone, folder)
    shutil.rmtree(clone)
    shutil.unpack_archive(sdist, folder)
    return sdist, build("build_wheel", folder / sdist.name.removesuffix(".tar.gz"), folder)


@cache
def installed() -> Path:
    """A folder with the wheel's packages, and its console scripts in bin/."""
    _, wheel = distributions()
    target = wheel.parent / "installed"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    done = subprocess.run(
        [*pip, "--disable-pip-version-check", "--target", str(target), str(wheel)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return target


def environment() -> dict[str, str]:
    """That of a shell in which the wheel is installed: its programs, and nothing of the clone."""
    target = installed()
    programs = [str(target / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    return {
        **os.environ,
        "PATH": os.pathsep.join(programs),
        "PYTHONPATH": str(target),
        "OMP_NUM_THREADS": "1",
    }


def shell(command: str, folder: Path, text: str = "") -> str:
    """What a command of that shell prints; it must not fail."""
    return bash(command, folder, environment(), text)
