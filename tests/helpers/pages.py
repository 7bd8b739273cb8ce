"""The pages of the documentation, and the commands that they show."""

import re
import shlex
import subprocess
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
#: All of them, in the order of their names.
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md"), *ROOT.glob("examples/**/*.md")])


def blocks(page: Path, kind: str) -> list[str]:
    """The fenced blocks of a page that are of a kind, ``bash`` say."""
    return re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def commands(page: Path) -> list[str]:
    """Every line of a page's bash blocks, those that go on in the next one joined."""
    lines = "\n".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip()]


def program(command: str) -> tuple[Callable[[list[str]], int], list[str]]:
    """The main function behind a script or an installed command, and the arguments it is given."""
    name, *words = shlex.split(command)
    if name == "python":
        script, *words = words
        return import_module(Path(script).stem).main, words
    (entry,) = metadata.entry_points(group="console_scripts", name=name)
    return entry.load(), words


def bash(command: str, folder: Path, environment: dict[str, str], text: str = "") -> str:
    """What a command prints in a shell of that environment; it must not fail."""
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{command}"],
        cwd=folder,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
