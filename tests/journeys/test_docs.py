"""The pages in docs/: links lead somewhere, every command runs, the picture shows what is so."""

import re
import shlex
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from fairseq_commands import run
from installed import installed, shell
from pages import DOCS, PAGES, README, ROOT, blocks, commands
from tiny_translation import sentences

from ea_fairseq.attention.convolution import MAP_CONVOLUTIONS
from ea_fairseq.commands import recipe as ea_recipe
from ea_fairseq.commands import translate as translate_command
from ea_fairseq.page import server

MODEL = "work/runs/my.de-en/ea_transformer_lite/seed1/model"

# Where everything of ours comes from, the compiled library's source too.
LOADED = """
import sys
from ea_fairseq.kernels.cpp import build
from ea_fairseq.kernels.cpp.library import load_library
assert load_library() is not None or build.compiler() is None
files = [str(getattr(module, "__file__", "")) for module in sys.modules.values()]
print("loaded:", *(file for file in files if "ea_fairseq" in file), sep="\\n")
"""


def anchors(page):
    """What links may name behind #: GitHub's names of the headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-").lower() for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_are_there(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT) and target.exists(), link
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), link


def test_the_readme_is_short_and_leads_to_every_page():
    text = README.read_text(encoding="utf-8")
    assert text.count("\n") < 280
    for page in DOCS.glob("*.md"):
        assert f"](docs/{page.name}" in text, page.name


def test_the_librarys_page_runs_from_top_to_bottom():
    """Its first block is ten lines long, as it says."""
    code = blocks(DOCS / "library.md", "python")
    model = code[0].split("class Classifier")[1]
    assert len([line for line in model.splitlines() if line.strip()]) <= 10
    names = {}
    for block in code:
        exec(compile(block, "library.md", "exec"), names)
    assert names["done"].carry.shape == (2, 4, 7, 7)
    assert names["output"].shape == (5, 1, 64)


def write_corpus(folder):
    """Two files of text."""
    for lang, lines in zip(("de", "en"), zip(*sentences(60, 1), strict=True), strict=True):
        (folder / f"corpus.{lang}").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory):
    """A folder with two files of text, in which the tutorial's training is done, shortened."""
    folder = tmp_path_factory.mktemp("tutorial")
    write_corpus(folder)
    (folder / "new.de").write_text("Ein Hund sieht das Haus.\n\nEin Auto mag das Buch.\n")
    new, train = commands(DOCS / "tutorial.md")[:2]
    assert {new, train} == {c for c in commands(README) if c.startswith("ea-recipe")}
    shell(new, folder)
    small = "--set max-epoch=1 --set encoder-layers=1 --set decoder-layers=1 --set max-tokens=999"
    short = "--set generate.max-len-a=0 --set generate.max-len-b=5 --threads 1 --workers 1"
    (folder / "printed.txt").write_text(shell(f"{train} {small} {short}", folder))
    return folder


@pytest.mark.thorough
def test_tutorial_trains_a_model_of_two_files_and_uses_it(tutorial, monkeypatch):
    printed = (tutorial / "printed.txt").read_text()
    assert re.search(r"^sacreBLEU: nrefs:1\|.*version:", printed, re.M)
    for way in ("< new.de > new.en", f"Translator('{MODEL}')", f"{MODEL} --serve"):
        assert way in printed
    new, train, translate, serve, plot, install = commands(DOCS / "tutorial.md")
    shell(translate, tutorial)
    lines = (tutorial / "new.en").read_text().split("\n")
    assert len(lines) == 4 and lines[0] and not lines[1] and lines[2]
    (code,) = blocks(DOCS / "tutorial.md", "python")
    (tutorial / "use.py").write_text(f"{code}\n{LOADED}")
    output, loaded = shell("python use.py", tutorial).split("loaded:\n")
    assert output.split("\n")[1:] == lines
    assert str(installed() / "ea_fairseq" / "plugin.py") in loaded and str(ROOT) not in loaded
    # In this process, which has imported all that these take.
    monkeypatch.chdir(tutorial)
    served = []
    monkeypatch.setattr(server, "serve", lambda *given, **_: served.append(given))
    for command in (plot, serve):
        assert translate_command.main(shlex.split(command)[1:]) == 0
    assert (tutorial / "maps.png").read_bytes().startswith(b"\x89PNG")
    assert served == [([Path(MODEL)], None, 8000)]
    assert re.match(r"pip install ea_fairseq-", install)  # tests/installed.py does


@pytest.mark.thorough  # the fixture is
def test_commands_within_the_tutorials_sentences_are_understood(tutorial, monkeypatch, capsys):
    monkeypatch.chdir(tutorial)
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    inline = re.findall(r"`(ea-recipe [^`]+)`", page)
    _, train, *_ = commands(DOCS / "tutorial.md")
    inline.append(f"{train} {re.search(r'`(--name try [^`]+)`', page)[1]}")
    for command in inline:
        more = ["--dry-run"] if "--variant" in command else []
        assert ea_recipe.main([*shlex.split(command)[1:], *more]) == 0
    assert len(inline) == 4
    printed = capsys.readouterr().out
    assert "my.de-en/transformer_lite/seed1" in printed and "my.de-en/try/seed1" in printed


def test_other_pages_show_commands_that_run(tmp_path):
    wheel, user_dir = commands(DOCS / "questions.md")
    printed = shell(user_dir, tmp_path).strip()
    assert printed == str(installed() / "ea_fairseq")
    (fairseq,) = [c for c in commands(DOCS / "fairseq.md") if "ea-recipe --user-dir" in c]
    _, *words = shlex.split(fairseq.replace("$(ea-recipe --user-dir)", str(ROOT / "ea_fairseq")))
    done = run("train", *words)
    assert done.status == 0 and "--ea-alpha" in done.output()
    # tests/installed.py builds as pip does, by the same backend.
    assert re.fullmatch(r"pip wheel --no-deps --wheel-dir \S+ \.", wheel)
    assert commands(DOCS / "architectures.md") == commands(DOCS / "how_it_works.md") == []


def test_pages_name_commands_and_not_the_scripts_behind_them():
    scripts = {file.name: file.read_text() for file in (ROOT / "scripts").glob("*.py")}
    behind = [name for name, text in scripts.items() if re.search('"""ea-.*, for a clone', text)]
    assert len(behind) == 6
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = [name for name in behind if re.search(rf"(?<!\w){name}", text)]
        assert not named, (page, named)


def test_recipes_of_the_examples_pages_are_ones_that_fairseq_takes(tmp_path, monkeypatch, capsys):
    """From Multi30K and others, which would be trained for hours: their commands are made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    write_corpus(tmp_path)
    recipes = re.compile("ea-recipe ")
    shown = [c for page in ROOT.glob("examples/*/*.md") for c in commands(page) if recipes.match(c)]
    assert len(shown) == 9
    for command in sorted(shown, reverse=True, key=lambda command: "--new" in command):
        words = recipes.sub(r"printf '%s\\n' ", command, count=1)  # braces and ~ are the shell's
        words = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=True)
        more = [] if "--new" in command else ["--dry-run"]
        assert ea_recipe.main([*words.stdout.splitlines(), *more]) == 0
    models = re.findall(r"work/runs/(\S+)/seed1/checkpoints", capsys.readouterr().out)
    assert {"my.de-en/transformer_lite", "multi30k.en/mta_transformer_lm_lite"} <= set(models)
    assert "multi30k.en-de/ea_transformer_lite.dropout_0.3" in models
    assert not (tmp_path / "work").exists()


SVG = "{http://www.w3.org/2000/svg}"


def cells(grid):
    """The squares of one of the picture's grids: (row, column) -> their classes."""
    squares = [
        (float(r.get("y")), float(r.get("x")), r.get("class")) for r in grid.iter(f"{SVG}rect")
    ]
    top, left, size = squares[0][0], squares[0][1], squares[1][1] - squares[0][1]
    found = {}
    for y, x, kind in squares:
        found.setdefault((round((y - top) / size), round((x - left) / size)), set()).add(kind)
    return found


@pytest.mark.parametrize("attention", MAP_CONVOLUTIONS)
def test_the_picture_shows_what_the_convolutions_read(attention):
    picture = ElementTree.parse(DOCS / "how_it_works.svg")
    (grid,) = [group for group in picture.iter(f"{SVG}g") if group.get("id") == attention]
    shown = cells(grid)
    size = 1 + max(row for row, _ in shown)
    (here,) = [place for place, kinds in shown.items() if "here" in kinds]
    convolution = MAP_CONVOLUTIONS[attention](num_heads=1, kernel_size=3).double()
    torch.nn.init.ones_(convolution.weight)
    image = torch.ones(1, 1, size, size, dtype=torch.double, requires_grad=True)
    convolution(image, None)[0, 0][here].backward()
    read = {(t, s) for t, s in image.grad[0, 0].nonzero().tolist()}
    assert read == {place for place, kinds in shown.items() if "read" in kinds}
    hidden = {place for place, kinds in shown.items() if "hidden" in kinds}
    later = {(t, s) for t in range(size) for s in range(t + 1, size)}
    assert hidden == (later if attention == "decoder" else set())


def test_the_picture_has_words_for_who_does_not_see_it_and_loads_nothing():
    text = (DOCS / "how_it_works.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.find(f"{SVG}title").text and root.find(f"{SVG}desc").text
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"<script|href|url\((?!#)|@import", text)
