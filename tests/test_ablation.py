"""The table of ablations: every row of the papers', with what is there and what is missing."""

import json
import statistics

import ablation
from tiny_translation import REPOSITORY

CORPUS = REPOSITORY / "examples" / "translation" / "multi30k.de-en"


def write_results(work, recipe, seed, bleu):
    """What run_recipe.py leaves of a finished run, as far as the table reads it."""
    folder = work / "runs" / CORPUS.name / recipe / f"seed{seed}"
    folder.mkdir(parents=True)
    labels = ("tokenized BLEU, lower-cased", "sacreBLEU, lower-cased")
    scores = [{"label": label, "score": bleu + i} for i, label in enumerate(labels)]
    content = {"seed": seed, "parameters": 1234567, "scores": {"flickr": {"scores": scores}}}
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


def test_unknown_scores_and_folders_without_recipes_are_refused(tmp_path, capsys):
    write_results(tmp_path, "kernel_5", 1, 30.0)
    options = ["--print", "--work-dir", str(tmp_path)]
    assert ablation.main([str(CORPUS), *options, "--score", "METEOR"]) == 1
    assert "choose from tokenized BLEU, lower-cased, sacreBLEU" in capsys.readouterr().err
    assert ablation.main([str(tmp_path), *options]) == 1
    assert f"{tmp_path / 'transformer_lite.yml'}: no such recipe" in capsys.readouterr().err
