"""What a finished run keeps without need is told, and removed on demand; nothing else is."""

import pytest
from tiny_translation import arguments, make_corpus

from ea_fairseq.commands import recipe as run_recipe
from ea_fairseq.corpus.config import load
from ea_fairseq.recipes.runs.folders import find_run
from ea_fairseq.recipes.runs.leftovers import told_of
from ea_fairseq.recipes.says.recipe import load_recipe

CHECKPOINTS = ("checkpoint1.pt", "checkpoint2.pt", "checkpoint_best.pt", "checkpoint_last.pt")
KEPT = ("averaged.pt", "results.json", "steps/train.json", "model/config.json")


@pytest.fixture
def recipe(tmp_path):
    """A recipe, below whose run lie the files of a finished one."""
    path = make_corpus(tmp_path) / "transformer_lite.yml"
    folder = run_of(path).folder
    for name in (*KEPT, *(f"checkpoints/{name}" for name in CHECKPOINTS)):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(500_000))
    return path


def run_of(path):
    loaded = load_recipe(path)
    return find_run(loaded, load(loaded.corpus), path.parents[1] / "work", None, 1)


def present(recipe):
    folder = run_of(recipe).folder
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in found if path.name != ".lock"}


def clean(recipe, *options):
    return run_recipe.main(arguments(recipe, "--clean", *options))


def test_checkpoints_of_a_finished_run_are_removed_on_demand(recipe, capsys):
    said = told_of(load_recipe(recipe), run_of(recipe))
    assert "2 MB in 4 checkpoints" in said and "--clean" in said
    before = present(recipe)
    assert clean(recipe) == 0 and "removed 4 checkpoints, 2 MB" in capsys.readouterr().out
    assert before - present(recipe) == {f"checkpoints/{name}" for name in CHECKPOINTS}
    assert clean(recipe) == 0 and "nothing to remove" in capsys.readouterr().out
    assert told_of(load_recipe(recipe), run_of(recipe)) is None


def test_the_model_of_a_run_that_averages_nothing_stays(recipe):
    before = present(recipe)
    assert clean(recipe, "--set", "average=null") == 0
    gone = {f"checkpoints/{name}" for name in CHECKPOINTS if name != "checkpoint_best.pt"}
    assert before - present(recipe) == gone


@pytest.mark.parametrize("missing", ["results.json", "steps/train.json", "averaged.pt"])
def test_a_run_that_is_not_finished_keeps_all(recipe, missing, capsys):
    (run_of(recipe).folder / missing).unlink()
    before = present(recipe)
    assert clean(recipe) == 0 and "nothing to remove" in capsys.readouterr().out
    assert present(recipe) == before
    assert clean(recipe, "--fresh") == 1 and "give it alone" in capsys.readouterr().err
    assert present(recipe) == before
