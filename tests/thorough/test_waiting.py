"""scripts/benchmarks/waiting.py: how long threads should spin."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "benchmarks" / "waiting.py"


def test_each_value_has_its_column():
    values = ["--values", "1000", "2000", "--rounds", "1", "--threads", "1"]
    command = [sys.executable, str(PROGRAM), *values]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    header, _, *rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert header == "| GOMP_SPINCOUNT | 1000 | 2000 |"
    assert len(rows) == 4 and all(row.count("(") == 2 for row in rows)
