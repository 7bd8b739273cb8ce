"""What programs start with: set before torch is loaded, and never against the user's choice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ea_fairseq import environment
from ea_fairseq.recipes.runs.execution import execute

ROOT = Path(__file__).resolve().parents[2]
NAMES = *environment.WAITING, *environment.MEMORY, "OMP_WAIT_POLICY", "GLIBC_TUNABLES"
# libgomp, which comes with torch, prints what it read.
PROGRAM = """
import os, sys
sys.path.insert(0, {root!r})
import ea_fairseq
assert "torch" not in sys.modules
import torch
torch.zeros(1)
print(os.environ.get("GOMP_SPINCOUNT"), os.environ.get("KMP_BLOCKTIME"))
"""


def clean(**more):
    """This process's variables without those in question."""
    return {name: value for name, value in os.environ.items() if name not in NAMES} | more


def started(path, **variables):
    path.parent.mkdir(exist_ok=True)
    path.write_text(PROGRAM.format(root=str(ROOT)))
    done = subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        check=True,
        env=clean(OMP_DISPLAY_ENV="verbose", **variables),
    )
    return done.stdout.strip(), done.stderr


def test_commands_of_ours_wait_briefly_from_the_start(tmp_path):
    found, shown = started(tmp_path / "ea-recipe")
    assert found == "10000 1"
    if "GOMP_SPINCOUNT" in shown:  # this torch has libgomp
        assert "GOMP_SPINCOUNT = '10000'" in shown


def test_other_programs_are_left_alone(tmp_path):
    assert started(tmp_path / "fairseq-train")[0] == "None None"


def test_who_chose_how_to_wait_has_that(tmp_path):
    chosen = {"GOMP_SPINCOUNT": "7"}
    expected = (chosen.get(name) for name in ("GOMP_SPINCOUNT", "KMP_BLOCKTIME"))
    assert started(tmp_path / "ea-recipe", **chosen)[0] == " ".join(map(str, expected))


@pytest.mark.parametrize(
    "chosen, expected",
    [
        ({}, environment.MEMORY),
        ({"MALLOC_ARENA_MAX": "2"}, {}),
        ({"MALLOC_TRIM_THRESHOLD_": "9"}, {"MALLOC_TRIM_THRESHOLD_": "9"}),
        ({"GLIBC_TUNABLES": "glibc.malloc.check=0"}, {}),
    ],
)
def test_commands_of_recipes_keep_their_memory(chosen, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    names = tuple(environment.MEMORY)
    shown = f"import os; print({{k: v for k, v in os.environ.items() if k in {names}}})"
    log = tmp_path / "log"
    execute([sys.executable, "-c", shown], log, {})
    assert log.read_text().splitlines()[-1] == str(dict(expected))
