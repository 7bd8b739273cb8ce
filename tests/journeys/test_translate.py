"""Raw text through a trained recipe's model: the command that users give their own text to."""

import json
import os
import re
import sys

import pytest
import translate as script
from forked_steps import recipe_in_forks
from tiny_translation import SCRIPTS, SIZES, arguments, make_corpus

from ea_fairseq.inference.model_folder import read_model_folder


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """A recipe that was run, test sets translated."""
    path = make_corpus(tmp_path_factory.mktemp("trained")) / "ea_transformer_lite.yml"
    assert recipe_in_forks(arguments(path)) == 0
    return path


def translator(recipe, *options):
    work = recipe.parents[1] / "work"
    program = [sys.executable, SCRIPTS / "translate.py", recipe, "--work-dir", work, *options]
    return [str(part) for part in program]


def exit_code(recipe, folder, text="Ein Hund.\n", *options):
    """Of the command in this process, for text in a file."""
    (folder / "input").write_text(text)
    files = ("--input", folder / "input", "--output", folder / "output")
    try:
        return script.main(translator(recipe, *files, *options)[2:])
    except SystemExit as stop:
        return stop.code


def test_raw_test_set_gets_the_translations_of_the_recipe(recipe, tmp_path, capsys):
    raw = (recipe.parent / "raw" / "first.de").read_text()
    run_folder = recipe.parents[1] / "work" / "runs" / "tiny.de-en" / "ea_transformer_lite"
    expected = (run_folder / "seed1" / "generate" / "first.en").read_text()
    capsys.readouterr()
    assert exit_code(recipe, tmp_path, raw, "--buffer-size", "5") == 0
    output, errors = (tmp_path / "output").read_text(), capsys.readouterr().err
    assert output == expected
    assert [line for line in errors.splitlines() if "no C++ compiler" not in line] == []
    assert output.count("\n") == SIZES["first"]


def test_the_run_has_a_model_folder_that_knows_its_scores(recipe, tmp_path):
    """Made at the end of the recipe; made anew where the run's model is newer."""
    folder = recipe.parents[1] / "work/runs/tiny.de-en/ea_transformer_lite/seed1"
    config = folder / "model" / "config.json"
    before = config.stat().st_mtime_ns
    model = read_model_folder(folder / "model")
    results = json.loads((folder / "results.json").read_text())
    assert model.config.scores == results["scores"] and model.config.search.beam == 2
    assert model.config.longest.sentences == 1 and 4 < model.config.longest.tokens < 40
    assert exit_code(recipe, tmp_path) == 0 and config.stat().st_mtime_ns == before
    os.utime(folder / "averaged.pt")
    assert exit_code(recipe, tmp_path) == 0 and config.stat().st_mtime_ns > before


def test_two_sentences_in_a_line_are_both_translated(recipe, tmp_path, capsys):
    first, second = "Ein Hund mag das Buch.", "Ein Auto sieht das Haus."
    assert exit_code(recipe, tmp_path, f"{first}\n{second}\n{first} {second}\n") == 0
    answers = (tmp_path / "output").read_text().splitlines()
    assert answers[2] == f"{answers[0]} {answers[1]}"
    # Two short sentences: of no more subwords than one that was trained on.
    refused = f"{first}\nEin Hund. Ein Hund.\n{first} {second} {first} {second}\n"
    assert exit_code(recipe, tmp_path, refused, "--long", "refuse") == 1
    assert (tmp_path / "output").read_text().splitlines() == [answers[0], "", ""]
    errors = capsys.readouterr().err
    assert "translate.py: line 2: 2 sentences; the model was trained on 1" in errors
    assert re.search(r"line 3: \d+ subwords in one piece; the model was trained on \d+\n", errors)


def test_what_is_missing_is_named_in_one_line(recipe, tmp_path, capsys):
    for options, words in {
        ("--seed", "7"): "seed7: no such run; train first: ea-recipe",
        ("--work-dir", "/nowhere"): "/nowhere",
        ("--variant", "transformer"): "--variant",
    }.items():
        assert exit_code(recipe, tmp_path, "Ein Hund.\n", *options)
        errors = capsys.readouterr().err
        assert words in errors and len(errors.splitlines()) == 1
        assert not (tmp_path / "output").exists()


def test_a_damaged_model_is_named(recipe, tmp_path, capsys):
    run_folder = recipe.parents[1] / "work/runs/tiny.de-en/ea_transformer_lite/seed1"
    assert exit_code(recipe, tmp_path) == 0
    weights = run_folder / "model" / "model.safetensors"
    whole = weights.read_bytes()
    (tmp_path / "output").unlink()
    try:
        weights.write_bytes(whole[:1000])
        assert exit_code(recipe, tmp_path) == 1
    finally:
        weights.write_bytes(whole)
    assert "model.safetensors: damaged" in capsys.readouterr().err
    assert not (tmp_path / "output").exists()
