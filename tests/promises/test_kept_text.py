"""A trained model keeps its text settings: no later preparation of its corpus touches them."""

import json
import shutil
from pathlib import Path

import pytest
from forked_steps import in_forks, recipe_in_forks
from tiny_translation import arguments, make_corpus, write_yaml

from ea_fairseq import yaml_file
from ea_fairseq.commands import recipe as run_recipe
from ea_fairseq.corpus.config import load
from ea_fairseq.recipes.runs import whole_recipe
from ea_fairseq.recipes.runs.data_folders import data_of_run, folder_for
from ea_fairseq.recipes.runs.folders import find_run
from ea_fairseq.recipes.runs.text_copy import changes
from ea_fairseq.recipes.says.recipe import load_recipe

QUICK = ("--set", "max-epoch=1", "--set", "average=null")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A recipe trained for one epoch."""
    recipe = make_corpus(tmp_path_factory.mktemp("kept")) / "transformer_lite.yml"
    assert recipe_in_forks(arguments(recipe, *QUICK, "--steps", "prepare", "train")) == 0
    return recipe


@pytest.fixture
def recipe(trained, tmp_path):
    """A copy of it that a test may spoil."""
    shutil.copytree(trained.parents[1], tmp_path, dirs_exist_ok=True)
    return tmp_path / trained.relative_to(trained.parents[1])


@pytest.fixture
def main(capfd, monkeypatch):
    in_forks(monkeypatch)

    def call(recipe: Path, *options: str) -> tuple[int, str]:
        capfd.readouterr()
        code = run_recipe.main(arguments(recipe, *QUICK, *options))
        captured = capfd.readouterr()
        return code, captured.out + captured.err

    return call


def run_folder(recipe, name="transformer_lite"):
    return recipe.parents[1] / "work" / "runs" / "tiny.de-en" / name / "seed1"


def data_folder(recipe, name="tiny.de-en"):
    return recipe.parents[1] / "work" / "data" / name


def contents(*folders):
    paths = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path: path.read_bytes() for path in paths}


def place_for(recipe, name="tiny.de-en", anew=()):
    """The name of the folder in which the corpus, as it is now, is or would be prepared."""
    corpus = load(recipe.parent / "corpus.yml")
    return folder_for(recipe.parents[1] / "work", name, corpus, None, list(anew)).name


def runs_of(recipe, *options):
    """The runs that the command would do."""
    args = run_recipe.make_parser().parse_args(arguments(recipe, *options))
    loaded = load_recipe(recipe)
    return whole_recipe.find_runs(loaded, load(loaded.corpus), args)


def change_setting(recipe):
    corpus = recipe.parent / "corpus.yml"
    corpus.write_text(corpus.read_text().replace("subword_size: 40", "subword_size: 35"))


def change_raw_text(recipe):
    for lang, line in (("de", "Ein Hund mag das Auto.\n"), ("en", "A dog likes the car.\n")):
        with open(recipe.parent / "raw" / f"train.{lang}", "a") as file:
            file.write(line)


def test_a_run_holds_codes_dictionaries_and_settings_of_its_own(recipe):
    text, data = run_folder(recipe) / "text", data_folder(recipe)
    dictionaries = ["dict.de.txt", "dict.en.txt"]
    assert sorted(p.name for p in text.iterdir()) == ["codes", "corpus.json", *dictionaries]
    assert (text / "codes").read_bytes() == (data / "codes").read_bytes()
    for name in dictionaries:
        assert (text / name).read_bytes() == (data / "bin" / name).read_bytes()
    kept = json.loads((text / "corpus.json").read_text())
    assert (kept["source_lang"], kept["target_lang"], kept["subword"]) == ("de", "en", "bpe")
    assert kept["tokenize"]["lowercase"] is True
    assert kept["prepared"] == json.loads((data / "prepared.json").read_text())


@pytest.mark.parametrize(
    "change, words",
    [
        (change_setting, ["corpus.yml: subword_size: 40 -> 35"]),
        (change_raw_text, ["train.de: ", " bytes -> ", "train.en: "]),
    ],
)
def test_other_data_is_refused_before_anything_is_written(recipe, main, change, words):
    change(recipe)
    before = contents(recipe.parents[1] / "work")
    code, output = main(recipe)
    assert code == 1 and len(output.strip().splitlines()) == 1
    for word in [*words, str(run_folder(recipe)), "--name OTHER", "--fresh"]:
        assert word in output
    assert contents(recipe.parents[1] / "work") == before


def test_moved_and_renamed_text_is_the_same_data(recipe, main):
    """The content decides, not the path; which file is which side is a part of it."""
    before = contents(data_folder(recipe), run_folder(recipe))
    corpus, raw = recipe.parent / "corpus.yml", recipe.parent / "raw"
    (raw / "texts").mkdir()
    for file in [file for file in raw.iterdir() if file.is_file()]:
        file.rename(raw / "texts" / f"my_{file.name}")
    settings = yaml_file.read(corpus)
    settings["files"] = {split: f"texts/my_{name}" for split, name in settings["files"].items()}
    write_yaml(corpus, settings)
    code, output = main(recipe, "--steps", "prepare", "train")
    assert code == 0 and "already prepared" in output, output
    assert before.items() <= contents(data_folder(recipe), run_folder(recipe)).items()
    # Other text under these paths is told of as before, and so is the text of another split.
    files = settings["files"]
    write_yaml(corpus, settings | {"files": files | {"valid": files["first"]}})
    code, output = main(recipe, "--steps", "train")
    assert code == 1 and "was trained on other data" in output and "files: valid" in output, output
    write_yaml(corpus, settings)
    change = raw / "texts" / "my_train.de"
    change.write_text(change.read_text().replace("e", "a"))
    code, output = main(recipe, "--steps", "train")
    assert code == 1 and "was trained on other data" in output, output


def test_another_name_keeps_both(recipe, main):
    before = contents(data_folder(recipe), run_folder(recipe))
    change_setting(recipe)
    change_raw_text(recipe)
    code, output = main(recipe, "--name", "other", "--steps", "prepare")
    assert code == 0, output
    assert contents(data_folder(recipe), run_folder(recipe)) == before
    prepared = json.loads((data_folder(recipe, "tiny.de-en-2") / "prepared.json").read_text())
    assert prepared["settings"]["subword_size"] == 35 and prepared["pairs"]["train"] == 241


def test_each_run_goes_on_with_its_own_data(recipe, main):
    """Two trained runs beside each other, the second on data that lies in the second folder."""
    second = shutil.copytree(data_folder(recipe), data_folder(recipe, "tiny.de-en-2"))
    other = shutil.copytree(run_folder(recipe), run_folder(recipe, "other"))
    for path in (second / "prepared.json", other / "text" / "corpus.json"):
        path.write_text(path.read_text().replace('"subword_size": 40', '"subword_size": 35'))

    def data_of(name):
        loaded = load_recipe(recipe)
        return find_run(loaded, load(loaded.corpus), recipe.parents[1] / "work", name, 1).data.name

    assert (data_of("transformer_lite"), data_of("other")) == ("tiny.de-en", "tiny.de-en-2")
    change_setting(recipe)
    assert (data_of("transformer_lite"), data_of("new")) == ("tiny.de-en", "tiny.de-en-2")
    code, output = main(recipe, "--dry-run")
    assert code == 1 and "subword_size: 40 -> 35" in output


def test_a_run_that_begins_anew_leaves_the_data_of_others_alone(recipe):
    """Its old data was prepared anew for it, and others had lost what they were trained on."""
    other = shutil.copytree(run_folder(recipe), run_folder(recipe, "other"))
    assert [run.data.name for run in runs_of(recipe, "--fresh")] == ["tiny.de-en"]
    change_setting(recipe)
    assert [run.data.name for run in runs_of(recipe, "--fresh")] == ["tiny.de-en-2"]
    shutil.rmtree(other)
    assert [run.data.name for run in runs_of(recipe, "--fresh")] == ["tiny.de-en"]


def test_files_are_looked_at_where_folders_differ_in_them_alone(recipe):
    """Prepared on one machine and trained on another: it was trained on the older text."""
    old = data_folder(recipe)
    new = shutil.copytree(old, data_folder(recipe, "tiny.de-en-2"))
    prepared = json.loads((old / "prepared.json").read_text())
    prepared["inputs"] = dict.fromkeys(prepared["inputs"], "0" * 64)
    (new / "prepared.json").write_text(json.dumps(prepared))
    with pytest.raises(ValueError, match="tiny.de-en-2 hold this corpus, of other files"):
        runs_of(recipe, "--name", "new", "--steps", "train")
    (run,) = runs_of(recipe, "--steps", "train")
    assert run.data == old  # what has begun goes on


def test_a_corpus_whose_name_ends_in_a_number_keeps_its_data(recipe):
    """It looked like the second data of another corpus, and was written over."""
    work = recipe.parents[1] / "work"
    change_setting(recipe)
    for kind in ("data", "runs"):
        (work / kind / "tiny.de-en").rename(work / kind / "tiny-7")
        shutil.copytree(work / kind / "tiny-7", work / kind / "tiny")
    for number in range(2, 7):
        (work / "runs" / f"tiny-{number}").mkdir()
    assert place_for(recipe, "tiny") == "tiny-8"
    # And the other way round: the second data of the one is not the first of the other.
    (work / "data" / "tiny").rename(work / "data" / "tiny-9")
    assert place_for(recipe, "tiny-9") != "tiny-9"


def test_data_of_runs_that_are_thrown_away_or_gone_leaves_its_place(recipe):
    run = run_folder(recipe)
    change_setting(recipe)
    assert place_for(recipe) == "tiny.de-en-2"
    assert place_for(recipe, anew=[run]) == "tiny.de-en"
    shutil.rmtree(data_folder(recipe))
    assert data_of_run(recipe.parents[1] / "work", "tiny.de-en", run)[0] is None
    assert place_for(recipe) == "tiny.de-en"


def test_a_run_of_an_earlier_version_is_refused_too_and_keeps_its_text(recipe, main):
    shutil.rmtree(run_folder(recipe) / "text")
    text = (recipe.parent / "corpus.yml").read_text()
    change_setting(recipe)
    code, output = main(recipe)
    assert code == 1 and "corpus.yml: subword_size: 40 -> 35" in output
    (recipe.parent / "corpus.yml").write_text(text)
    assert main(recipe, "--steps", "train")[0] == 0
    assert (run_folder(recipe) / "text" / "corpus.json").exists()


def test_what_versions_of_libraries_change_is_named(recipe, main):
    """Data prepared again by another library is other data, and said to be."""
    path = data_folder(recipe) / "prepared.json"
    version = json.loads(path.read_text())["versions"]["sacremoses"]
    path.write_text(path.read_text().replace(f'"sacremoses": "{version}"', '"sacremoses": "9"'))
    code, output = main(recipe, "--steps", "train")
    assert code == 1 and f"data.versions.sacremoses: {version} -> 9" in output


def test_files_of_the_same_size_and_files_that_came_or_went_are_named(tmp_path):
    (tmp_path / "a").write_text("one")
    (tmp_path / "c").write_text("new")
    prepared = {
        "settings": {"clean": {"max": 250}},
        "test_sets": {"test": "x", "test1": "y"},
        "inputs": {"a": "0" * 64, "b": "0" * 64, "d": "0" * 64},
        "input_bytes": {"a": 3, "b": 4},
    }
    inputs = {"a": tmp_path / "a", "c": tmp_path / "c", "d": None}  # d is a download
    found = changes(prepared, prepared["settings"], prepared["test_sets"], inputs)
    assert found == {
        "a": "3 bytes -> 3 bytes of other content",
        "b": "there -> not there",
        "c": "not there -> there",
    }
    order = {"test": "y", "test1": "x"}
    assert changes(prepared, prepared["settings"], order, None) == {
        "corpus.yml: order of the test sets": "x, y -> y, x"
    }
    assert changes(prepared, {"clean": {"max": 99}}, prepared["test_sets"], None) == {
        "corpus.yml: clean: max": "250 -> 99"
    }
    listed = {"a": "0" * 64, "d": "1" * 64, "never read": "2" * 64}
    assert changes(prepared, prepared["settings"], prepared["test_sets"], None, listed) == {
        "corpus.yml: checksum of d": f"{'0' * 64} -> {'1' * 64}"
    }
