"""docs/attention.md: its commands are those of the scripts, its pictures are there and small."""

import re
import shlex
from importlib import import_module
from pathlib import Path

from ea_fairseq.page import api

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = (DOCS / "attention.md").read_text(encoding="utf-8")


def test_commands_are_understood():
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").strip().split("\n")]
    programs = [shlex.split(line) for line in lines if line.startswith("python scripts/")]
    assert len(programs) == 2
    for _, script, *arguments in programs:
        import_module(Path(script).stem).make_parser().parse_args(arguments)


def test_pictures_are_there_and_small():
    pictures = [DOCS / name for name in re.findall(r"!\[.*?\]\((.*?)\)", PAGE)]
    assert len(pictures) == 3
    assert sum(picture.stat().st_size for picture in pictures) < 300_000


def test_limits_are_those_of_the_page():
    defaults = api.make_app.__kwdefaults__
    assert f"{api.LONGEST_TEXT:,} characters" in PAGE
    assert f"{defaults['seconds']:g} seconds, {defaults['most_waiting']}\nat a time" in PAGE
