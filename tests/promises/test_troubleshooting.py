"""docs/troubleshooting.md: its messages are what is said, its advice helps."""

import json
import os
import re
import subprocess
import sys

import pytest
from fairseq_commands import corpus, trained
from pages import DOCS, ROOT

ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in (DOCS / "troubleshooting.md").read_text().splitlines()
    if line.startswith("| ") and "what you see" not in line
]


def quoted(cell):
    """The pieces of what is between backticks, without what stands for names."""
    return [
        piece.strip()
        for text in re.findall("`(.+?)`", cell)
        for piece in text.split("...")
        if piece.strip()
    ]


@pytest.fixture(scope="module")
def said():
    """What fairseq says of a checkpoint of this plugin, alone and as the page advises."""
    folder = trained("ea_transformer_lite")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    script = ROOT / "tests" / "helpers" / "without_plugin.py"
    found = subprocess.run(
        [sys.executable, script, corpus(), folder], env=environment, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


@pytest.mark.thorough
def test_without_the_plugin_the_page_shows_what_is_seen(said):
    """fairseq's own commands and fairseq from Python: the page's first two rows."""
    for case in ("generate", "hub"):
        code, output = said[case]
        assert code == 1
        assert all(piece in output for piece in quoted(ROWS[0][0])[:2]), output
    code, output = said["train"]
    assert code == 2 and quoted(ROWS[0][0])[2] in output
    assert "TransformerModel.from_pretrained" in ROWS[1][0]


@pytest.mark.thorough
def test_what_the_page_advises_then_helps(said):
    assert "the folder that `ea-recipe --user-dir` prints" in ROWS[0][2]
    code, output = said["generate with --user-dir"]
    assert code == 0 and "\nH-" in output, output
    assert ROWS[1][2] == "`import ea_fairseq.plugin` before it"
    code, output = said["hub with the import"]
    assert code == 0 and "translation: " in output, output


def test_every_other_message_is_one_that_the_project_has():
    """Written otherwise there, nobody would find it here."""
    code = "".join(path.read_text() for path in (ROOT / "ea_fairseq").rglob("*.py"))
    code = re.sub(r'"\s*f?"', "", code)  # messages of several lines
    code = code.replace("{side}", "source")
    code += "Please install tensorboardX BrokenPipeError no space left on device"
    script = [sys.executable, "-S", ROOT / "scripts" / "compare.py"]  # without packages
    code += subprocess.run(script, capture_output=True, text=True).stderr
    # `evaluate.py`, `tee` and so on tell where it is seen.
    programs = {"evaluate.py", "compare.py"}
    for row in ROWS[2:]:
        for piece in set(quoted(row[0])) - programs:
            assert piece.lower() in code.lower(), piece
