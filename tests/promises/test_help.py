"""Help is there at once: it imports none of what takes seconds."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))
CONSOLE = dict(re.findall(r'"(ea-\w+) = ([\w.:]+)"', (ROOT / "setup.py").read_text()))

LARGE = ("torch", "fairseq", "matplotlib", "pandas", "tensorboard", "hydra")
EXTRAS = ("babel", "num2words", "fastapi", "uvicorn")  # which need not be there

# One process for all programs: runs each with --help, and prints what it says and which of the
# packages are imported since.
LOOK = """
import contextlib, io, json, runpy, sys
programs, packages, folder = json.loads(sys.argv[1])
sys.path.insert(0, folder)
for program in programs:
    sys.argv = [program.rpartition("/")[2], "--help"]
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            if program.endswith(".py"):
                runpy.run_path(program, run_name="__main__")
            elif ":" not in program:
                runpy.run_module(program, run_name="__main__")
            module, _, function = program.partition(":")
            getattr(__import__(module, fromlist=[function]), function)()
    except SystemExit as end:
        assert not end.code, (program, end.code)
    imported = [name for name in packages if sys.modules.pop(name, None)]
    print(json.dumps([program, output.getvalue(), imported]))
"""


def test_help_of_every_command_imports_nothing_large():
    modules = [entry.partition(":")[0] for entry in CONSOLE.values()]  # of python -m
    programs = [*map(str, SCRIPTS), *CONSOLE.values(), *modules]
    given = json.dumps([programs, [*LARGE, *EXTRAS], str(ROOT / "scripts")])
    done = subprocess.run([sys.executable, "-c", LOOK, given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [program for program, _, _ in found] == programs and len(CONSOLE) == 8
    for program, output, imported in found:
        assert output.startswith("usage: ") and "--help" in output, program
        assert imported == [], program
