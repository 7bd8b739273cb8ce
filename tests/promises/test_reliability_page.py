"""The tests that docs/reliability.md and the other pages name are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("tests/*/test_*.py")}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: `test_file.py`, `test_file.py::test_name`, or `…::test_name` of the file named before.
NAMED = re.compile(r"`(?:tests/)?(?:\w+/)?(test_\w+\.py|…)(?:::(\w+))?`")


def missing(page: str) -> list[str]:
    """What a page names that is not there."""
    found, before = [], ""
    for file, name in NAMED.findall(page):
        before = before if file == "…" else file
        if before not in TESTS or name and f"def {name}(" not in TESTS[before]:
            found.append(f"{before}::{name}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_is_there(page):
    assert missing(page.read_text(encoding="utf-8")) == []


def test_one_that_is_not_there_is_found():
    page = "`test_errors.py::test_gone`, `…::test_bad_input_is_one_line_in_commands`, `test_no.py`"
    assert missing(page) == ["test_errors.py::test_gone", "test_no.py::"]


def test_every_fault_on_the_page_has_a_test():
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    heads = re.split(r"^\| .*\| test \|$", page, flags=re.M)[1:]
    rows = [row for part in heads for row in re.match(r"(\n\|.*)*", part)[0].splitlines()[2:]]
    assert len(rows) > 60
    assert [row for row in rows if not NAMED.search(row)] == []
