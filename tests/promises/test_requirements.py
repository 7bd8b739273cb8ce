"""What is installed is what was tested, down to the last package."""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def pins(file):
    """The version of each package that a file of requirements pins."""
    found = {}
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "-c ")):
            name, version = line.split("==")
            assert re.fullmatch(r"[0-9][0-9.]*", version), line
            assert canonicalize_name(name) not in found, line
            found[canonicalize_name(name)] = version
    return found


PINS = pins("constraints.txt")
DIRECT = {**pins("requirements.txt"), **pins("requirements-test.txt")}


def requirements(name, python):
    """What an installed package needs on that version of Python."""
    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        environment = {"extra": "", "python_version": python, "python_full_version": f"{python}.9"}
        if requirement.marker is None or requirement.marker.evaluate(environment):
            yield requirement


def installed(name):
    try:
        return metadata.version(name).split("+")[0]
    except metadata.PackageNotFoundError:
        return None


@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_every_package_that_is_needed_is_pinned_to_the_tested_version(python):
    """On Python 3.12 too, as far as the packages of this environment tell."""
    waiting = [Requirement(f"{name}=={version}") for name, version in DIRECT.items()]
    waiting.append(Requirement("ea_fairseq"))
    seen = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name.startswith(("nvidia-", "cuda-")):  # of a GPU build of torch, which chooses them
            continue
        if name != "ea-fairseq":
            assert name in PINS, f"{requirement} is not in constraints.txt"
            assert PINS[name] in requirement.specifier, f"{requirement}, but {PINS[name]} is pinned"
        if name not in seen and installed(name) is not None:
            assert name == "ea-fairseq" or installed(name) == PINS[name], name
            waiting += requirements(name, python)
        elif name not in seen:  # tools of the tests need not be here
            assert name not in pins("requirements.txt"), f"{name} is not installed"
        seen.add(name)
    assert len(seen) > 50


def pip(command):
    """What pip says to a command of a shell that has read scripts/setup_env.sh.

    Without a network, and without installing anything.
    """
    done = subprocess.run(
        ["bash", "-c", f'source scripts/setup_env.sh; python="$0"; {command}', sys.executable],
        cwd=ROOT,
        env=os.environ | {"PIP_DRY_RUN": "1", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_pip_finds_that_the_requirements_agree():
    status, output = pip("pinned_pip_install -r requirements.txt")
    assert status == 0, output


@pytest.mark.parametrize(
    "install",
    [
        "pinned_pip_install -v",  # of setup_env.sh
        '"$python" -m pip install -r requirements.txt',  # of the README
        '"$python" -m pip install -r requirements-test.txt',
    ],
)
def test_pip_refuses_any_version_but_the_pinned_one(install):
    status, output = pip(f"{install} 'docopt!={PINS['docopt']}'")
    assert status == 1 and f"(constraint) docopt=={PINS['docopt']}" in output, output
