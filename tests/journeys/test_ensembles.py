"""Several seeds' models that translate together: a run like any other, made of runs."""

import json
import re
import shutil

import compare
import pytest
from forked_steps import in_forks
from tiny_translation import SIZES, arguments, make_corpus

from ea_fairseq import Translator
from ea_fairseq.commands import recipe as runner
from ea_fairseq.recipes.results.listing import list_runs

SHORT = ("--set", "max-epoch=9")


@pytest.fixture
def main(tmp_path, capfd, monkeypatch):
    in_forks(monkeypatch)
    recipe = make_corpus(tmp_path) / "ea_transformer_lite.yml"

    def call(*options):
        capfd.readouterr()
        code = runner.main(arguments(recipe, *SHORT, *options))
        captured = capfd.readouterr()
        return code, captured.out + captured.err

    return call


@pytest.mark.thorough
def test_an_ensemble_is_translated_scored_and_recorded_as_a_run(main, tmp_path):
    code, output = main("--seeds", "1", "2", "--ensemble")
    assert code == 0, output
    work = tmp_path / "work"
    runs = work / "runs" / "tiny.de-en"
    seeds = [runs / "ea_transformer_lite" / f"seed{k}" for k in (1, 2)]
    folder = runs / "ea_transformer_lite.ensemble" / "seed1+2"
    results = json.loads((folder / "results.json").read_text())
    one = json.loads((seeds[0] / "results.json").read_text())
    assert results.keys() == one.keys() and results["settings"] == one["settings"]
    assert results["parameters"] == 2 * one["parameters"]
    assert results["cost"]["flops"] == 2 * one["cost"]["flops"]
    assert {name: s["sentences"] for name, s in results["scores"].items()} == {
        name: SIZES[name] for name in ("first", "second")
    }
    assert f"{folder.parent}, seed 1+2\n\n| test set" in output
    assert f"ea-translate {seeds[0] / 'model'} --ensemble {seeds[1] / 'model'}" in output

    # Our own search, of both models, finds what fairseq's found; neither model alone does.
    raw = (tmp_path / "tiny.de-en" / "raw" / "first.de").read_text().splitlines()
    found = (folder / "generate" / "first.en").read_text().splitlines()
    models = [seed / "model" for seed in seeds]
    assert Translator(models).translate(raw) == found
    assert all(Translator(model).translate(raw) != found for model in models)

    listed = list_runs(work)
    assert re.search(
        r"^\| tiny.de-en/ea_transformer_lite.ensemble/seed1\+2 +\| +done", listed, re.M
    )
    assert "ea_transformer_lite, lr 0.01, max-epoch 9, ensemble of 2" in listed
    assert compare.main([str(folder.parent), str(folder.parents[1] / "ea_transformer_lite")]) == 0

    # Done, it is not done again; with another member, it is, and a deleted average is made for it.
    code, output = main("--seeds", "2", "1", "--ensemble")
    assert code == 0 and "generate  again" not in output
    (seeds[0] / "averaged.pt").unlink()
    shutil.copy(seeds[1] / "checkpoints" / "checkpoint7.pt", seeds[1] / "averaged.pt")
    code, output = main("--seeds", "1", "2", "--ensemble", "--jobs", "2")
    assert "generate  again, settings changed: models.2: " in output
    assert (seeds[0] / "averaged.pt").exists() and "models.1" not in output
    assert (folder / "generate" / "first.en").read_text().splitlines() != found

    # Where a training's log is lost, and its size with it, theirs together is not half of it.
    stamp = seeds[0] / "steps" / "train.json"
    stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "parameters": None}))
    for lost in ("logs/train.log", "results.json"):
        (seeds[0] / lost).unlink()
    (folder / "results.json").unlink()
    code, output = main("--seeds", "1", "2", "--ensemble")
    assert code == 0, output
    assert json.loads((folder / "results.json").read_text())["parameters"] is None


def test_a_dry_run_shows_the_command_of_all_models(main, tmp_path):
    code, output = main("--seeds", "1", "2", "--ensemble", "--dry-run", "--steps", "generate")
    recipe = tmp_path / "work" / "runs" / "tiny.de-en" / "ea_transformer_lite"
    both = ":".join(str(recipe / f"seed{seed}" / "averaged.pt") for seed in (1, 2))
    # Two test sets, of each seed and of both.
    lines = output.strip().splitlines()
    assert code == 0 and len(lines) == 6 and all(f"--path {both} " in x for x in lines[4:])
    assert not (tmp_path / "work").exists()
