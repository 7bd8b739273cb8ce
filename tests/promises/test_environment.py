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


@pytest.mark.parametrize(
    ("program", "chosen", "expected"),
    [
        ("ea-recipe", {}, "10000 1"),
        ("ea-recipe", {"GOMP_SPINCOUNT": "7"}, "7 None"),
        ("fairseq-train", {}, "None None"),
    ],
)
def test_commands_of_ours_wait_briefly_where_nobody_chose(program, chosen, expected, tmp_path):
    (tmp_path / program).write_text(PROGRAM.format(root=str(ROOT)))
    variables = {name: value for name, value in os.environ.items() if name not in NAMES}
    done = subprocess.run(
        [sys.executable, tmp_path / program],
        capture_output=True,
        text=True,
        check=True,
        env={**variables, "OMP_DISPLAY_ENV": "verbose", **chosen},
    )
    assert done.stdout.strip() == expected
    if "GOMP_SPINCOUNT" in done.stderr and program == "ea-recipe":  # this torch has libgomp
        assert f"GOMP_SPINCOUNT = '{expected.split()[0]}'" in done.stderr


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
