"""Help is there at once: it imports none of what takes seconds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(path.name for path in (ROOT / "scripts").glob("*.py"))

# Runs a program with --help, and then says which of the large packages it has imported.
LOOK = """
import runpy, sys
kind, name, *large = sys.argv[1:]
sys.argv = [name, "--help"]
try:
    if kind == "script":
        sys.path.insert(0, name.rpartition("/")[0])
        runpy.run_path(name, run_name="__main__")
    else:
        module, _, function = name.partition(":")
        sys.exit(getattr(__import__(module, fromlist=[function]), function)())
except SystemExit as end:
    assert not end.code, end.code
print("imported:", *sorted(set(large) & set(sys.modules)))
"""
LARGE = ("torch", "fairseq", "matplotlib", "pandas", "tensorboard", "hydra")
EXTRAS = ("babel", "num2words", "fastapi", "uvicorn")  # which need not be there


def helped(kind, name):
    """What --help prints, and the large packages that it imports."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK, kind, name, *LARGE, *EXTRAS], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    text, _, imported = done.stdout.rpartition("imported:")
    return text, imported.split()


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_of_a_script_imports_nothing_large(script):
    text, imported = helped("script", str(ROOT / "scripts" / script))
    assert text.startswith("usage: ") and "--help" in text
    assert imported == []


@pytest.mark.parametrize("program", ["ea-translate", "ea-recipe"])
def test_help_of_a_console_script_imports_nothing_large(program):
    name = re.search(rf'"{program} = ([\w.:]+)"', (ROOT / "setup.py").read_text())[1]
    text, imported = helped("function", name)
    assert text.startswith(f"usage: {program}") and imported == []
