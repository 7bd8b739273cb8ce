"""The table of ablations: every row of the paper's, with what is there and what is missing."""

import json
import statistics

import ablation
from tiny_translation import REPOSITORY

from ea_fairseq.recipes.recipe import load_recipe

CORPUS = REPOSITORY / "examples" / "translation" / "multi30k.de-en"


def write_results(work, recipe, seed, bleu, *overrides):
    """What run_recipe.py leaves of a finished run, as far as the table reads it."""
    sections = load_recipe(CORPUS / f"{recipe}.yml", list(overrides)).sections
    folder = work / "runs" / CORPUS.name / recipe / f"seed{seed}"
    folder.mkdir(parents=True)
    labels = ("tokenized BLEU, lower-cased", "sacreBLEU, lower-cased")
    scores = [{"label": label, "score": bleu + i} for i, label in enumerate(labels)]
    content = {
        "seed": seed,
        "settings": sections,
        "parameters": 1234567,
        "scores": {"flickr": {"scores": scores}},
    }
    (folder / "results.json").write_text(json.dumps(content))


def cells(text, name):
    """The cells of the row of that name."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_rows_are_the_papers_and_missing_ones_say_so(tmp_path):
    write_results(tmp_path, "transformer_lite", 1, 41.0)
    markdown, data = tmp_path / "table.md", tmp_path / "table.json"
    options = ["--print", "--work-dir", tmp_path, "--markdown", markdown, "--json", data]
    assert ablation.main([str(CORPUS), *map(str, options)]) == 0
    text = markdown.read_text()
    assert cells(text, "Transformer-Lite") == ["Transformer-Lite", "1,234,567", "1", "41.00"]
    for name in list(ablation.ROWS.values())[1:]:
        assert cells(text, name) == [name, "", "0", "not run yet"]
    rows = json.loads(data.read_text())
    assert [row["recipe"] for row in rows] == list(ablation.ROWS)
    assert rows[0]["scores"] == {"flickr": [41.0]} and rows[1]["scores"] == {}


def test_seeds_give_mean_and_deviation_of_the_score_asked_for(tmp_path, capsys):
    for seed, bleu in ((1, 30.0), (2, 31.0), (3, 35.0)):
        write_results(tmp_path, "kernel_5", seed, bleu)
    options = ["--print", "--work-dir", str(tmp_path), "--score", "sacreBLEU", "--seeds"]
    assert ablation.main([str(CORPUS), *options, "1", "2", "3"]) == 0
    deviation = statistics.stdev([31.0, 32.0, 36.0])
    row = cells(capsys.readouterr().out, "- with 5x5 convolution")
    assert row[2:] == ["3", f"33.00 ± {deviation:.2f}"]


def test_rows_run_with_other_settings_are_marked(tmp_path, capsys):
    write_results(tmp_path, "kernel_5", 1, 30.0)
    write_results(tmp_path, "kernel_1", 1, 30.0, "max-epoch=2", "generate.beam=1")
    options = [str(CORPUS), "--print", "--work-dir", str(tmp_path)]
    assert ablation.main(options) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "settings" in line]
    assert len(notes) == 1 and notes[0].startswith("kernel_1, seed 1: run with other settings: ")
    assert "generate.beam: 5 -> 1" in notes[0] and "train.max-epoch: " in notes[0]
    assert ablation.main([*options, "--set", "max-epoch=2", "--set", "generate.beam=1"]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "settings" in line]
    assert len(notes) == 1 and notes[0].startswith("kernel_5, seed 1: ")


def test_unknown_scores_and_folders_without_recipes_are_refused(tmp_path, capsys):
    write_results(tmp_path, "kernel_5", 1, 30.0)
    options = ["--print", "--work-dir", str(tmp_path)]
    assert ablation.main([str(CORPUS), *options, "--score", "METEOR"]) == 1
    assert "choose from tokenized BLEU, lower-cased, sacreBLEU" in capsys.readouterr().err
    assert ablation.main([str(tmp_path), *options]) == 1
    assert f"{tmp_path / 'transformer_lite.yml'}: no such recipe" in capsys.readouterr().err
