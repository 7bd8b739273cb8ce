"""The pages of the documentation, and the commands that they show."""

import re
import subprocess
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
