"""From raw text to results.json through the command, uninterrupted and killed at every step."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pages
import pytest
import translate as translate_script
from forked_steps import in_forks, recipe_in_forks
from forks import Fork
from sacrebleu.metrics import BLEU
from time_limit import wait_for
from tiny_translation import REPOSITORY, SIZES, arguments, command, make_corpus, run, write_yaml

from ea_fairseq.checkpoints.reading import read_checkpoint
from ea_fairseq.checkpoints.writing import save_checkpoint_file
from ea_fairseq.commands import recipe as run_recipe
from ea_fairseq.commands.recipe import wanted_of
from ea_fairseq.corpus import config
from ea_fairseq.files import sha256, write_json
from ea_fairseq.inference.model_folder import read_model_folder
from ea_fairseq.recipes.results.curves import read_curves
from ea_fairseq.recipes.runs import recipe_run
from ea_fairseq.recipes.runs.changed_settings import (
    check_when_to_stop,
    comparable,
    progress,
    schedule_needs_max_update,
)
from ea_fairseq.recipes.runs.export_run import checkpoint_of_run
from ea_fairseq.recipes.runs.folders import Run, find_run
from ea_fairseq.recipes.runs.report import print_results, program
from ea_fairseq.recipes.runs.steps import Step
from ea_fairseq.recipes.says.recipe import load_recipe

STEPS = ("train", "average", "generate", "evaluate")


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    """Both models, trained, translated and scored: one in forks, one by the command as it is."""
    folder = make_corpus(tmp_path_factory.mktemp("whole"))
    assert recipe_in_forks(arguments(folder / "transformer_lite.yml")) == 0
    done = run(command(*arguments(folder / "ea_transformer_lite.yml")))
    assert done.returncode == 0, done.stdout
    (folder / "printed.txt").write_text(done.stdout)
    return folder


@pytest.fixture
def main(capfd):
    """The runner in this process, its commands in their own: exit code and all output."""

    def call(recipe: Path, *options: str) -> tuple[int, str]:
        capfd.readouterr()
        code = run_recipe.main(arguments(recipe, *options))
        captured = capfd.readouterr()
        return code, captured.out + captured.err

    return call


def copy_run(recipes: Path, name: str, copy: str) -> Path:
    """A run of its own with everything that another holds."""
    return Path(shutil.copytree(seed_folder(recipes, name), seed_folder(recipes, copy)))


def seed_folder(recipes: Path, name: str) -> Path:
    return recipes.parent / "work" / "runs" / "tiny.de-en" / name / "seed1"


def results(recipes: Path, name: str) -> dict:
    return json.loads((seed_folder(recipes, name) / "results.json").read_text())


def test_results_hold_settings_versions_sizes_times_and_signed_scores(recipes):
    plain, evolving = (results(recipes, n) for n in ("transformer_lite", "ea_transformer_lite"))
    assert evolving["settings"]["train"]["arch"] == "ea_transformer_lite"
    assert evolving["seed"] == 1
    assert {"python", "torch", "ve-fairseq", "sacrebleu", "commit"} <= evolving["versions"].keys()
    assert set(evolving["seconds"]) == set(STEPS)
    # Two layers of three attentions, each with 3x3 convolutions from 2 heads to 2 and biases.
    assert evolving["parameters"] - plain["parameters"] == 2 * 3 * (2 * 2 * 3 * 3 + 2)
    assert evolving["cost"]["parameters"] - plain["cost"]["parameters"] == 228
    assert evolving["cost"]["flops"] > plain["cost"]["flops"] > 0
    assert list(evolving["scores"]) == ["first", "second"]
    for test_set, scored in evolving["scores"].items():
        assert scored["sentences"] == SIZES[test_set]
        labels = [score["label"] for score in scored["scores"]]
        assert labels[0] == "tokenized BLEU, lower-cased"
        assert all("version:" in score["signature"] for score in scored["scores"])


def test_scores_are_those_of_fairseq_generate_and_sacrebleu(recipes):
    """Tokenized BLEU is what fairseq prints, sacreBLEU that of the text beside the corpus' own
    references."""
    compared = 0
    for name in ("transformer_lite", "ea_transformer_lite"):
        generate = seed_folder(recipes, name) / "generate"
        for test_set, scored in results(recipes, name)["scores"].items():
            scores = {score["label"]: score["score"] for score in scored["scores"]}
            theirs = re.search(r"BLEU4 = ([\d.]+)", (generate / f"{test_set}.txt").read_text())
            if theirs and float(theirs[1]) > 0:  # fairseq does not smooth: no 4-gram, no score
                ours = scores["tokenized BLEU, lower-cased"]
                assert ours == pytest.approx(float(theirs[1]), abs=0.01)
                compared += 1
            files = (generate / f"{test_set}.en", recipes / "raw" / f"{test_set}.en")
            found, references = (path.read_text().splitlines() for path in files)
            expected = BLEU(lowercase=True).corpus_score(found, [references]).score
            assert scores["sacreBLEU, lower-cased"] == pytest.approx(expected, abs=1e-6)
            assert expected > 10  # the sources in their place would give about 1
    assert compared


def test_translations_are_complete_and_in_order(recipes):
    folder = seed_folder(recipes, "transformer_lite") / "generate"
    for test_set in ("first", "second"):
        lines = (folder / f"{test_set}.en").read_text().splitlines()
        generated = (folder / f"{test_set}.txt").read_text()
        by_number = dict(re.findall(r"^D-(\d+)\t.*\t(.*)$", generated, re.M))
        assert len(lines) == len(by_number) == SIZES[test_set]
        # Detokenizing these sentences only joins the full stop to its word.
        for number, line in enumerate(lines):
            assert line.replace(" ", "") == by_number[str(number)].replace(" ", "")


def test_a_line_a_step_is_shown_and_all_that_its_command_printed_is_kept(recipes):
    """A line for each step and test set, the table, and where things are: no log."""
    printed = (recipes / "printed.txt").read_text()
    steps = {"prepare": 1, "train": 1, "average": 1, "generate": 2, "evaluate": 2}
    for step, times in steps.items():
        # On a slow machine, lines of progress stand between them.
        ended = re.findall(rf"^{step} .*\(\d+ (?:s|min)\)$", printed, re.M)
        assert len(ended) == times
    assert "prepared: train 240, valid 20, first 21, second 13 pairs" in printed
    assert "INFO" not in printed and max(map(len, printed.splitlines())) < 400
    folder = seed_folder(recipes, "ea_transformer_lite")
    log = (folder / "logs" / "train.log").read_text()
    updates = max(read_curves(folder).updates)
    assert re.search(rf"^train +12 epochs, {updates} updates, validation loss \d", printed, re.M)
    assert "INFO" in log and str(folder / "logs") in printed


def test_a_run_ends_with_scores_model_curves_and_the_next_command(recipes):
    printed = (recipes / "printed.txt").read_text()
    folder = seed_folder(recipes, "ea_transformer_lite")
    last = printed[printed.rindex("| test set") :]
    for path in ("model", "averaged.pt", "curves.png", "results.json", "logs"):
        assert f" {folder / path}\n" in last and (folder / path).exists()
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(rf"left over +{folder / 'checkpoints'}: .* in \d checkpoints, .*--clean", last)
    following = last[last.index("next:") :]
    assert f"ea-translate {folder / 'model'} < new.de > new.en\n" in following
    assert f"Translator({str(folder / 'model')!r}).translate(" in following
    assert f"in a browser: {program('ea-translate')} {folder / 'model'} --serve\n" in following
    other = folder.parents[1] / "transformer_lite"
    assert f"ea-compare {other} {folder.parent}" in following


def test_the_pages_commands_run_on_these_runs(recipes, tmp_path, monkeypatch, capsys):
    """Those of examples/translation/ that look at runs of Multi30K, which take hours; those of
    many runs are in test_compare_many.py."""
    monkeypatch.chdir(tmp_path)
    Path("work/runs").mkdir(parents=True)
    Path("work/runs/multi30k.de-en").symlink_to(seed_folder(recipes, "x").parents[1])
    Path("new.de").write_text("Ein Hund.\n\n")
    looks = re.compile("ea-(compare|plot)|python scripts/(?!compare_many|keep_runs)")
    found = (REPOSITORY / "examples" / "translation").glob("*.md")
    shown = [c for page in found for c in pages.commands(page) if looks.match(c)]
    assert len(shown) == 5 + 2
    for line in dict.fromkeys(shown):
        line = line.replace("< new.de > new.en", "--input new.de --output new.en")
        main, words = pages.program(line)
        assert main(words) == 0, line
    assert Path("new.en").read_text().count("\n") == 2
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    # Of ea-compare, ablation.py and time_to_match.py.
    for words in ("| first ", "not run", "epochs"):
        assert words in printed


def test_every_command_can_be_copied_from_its_log(recipes):
    folder = seed_folder(recipes, "ea_transformer_lite") / "logs"
    logs = "".join((folder / f"{step}.log").read_text() for step in STEPS)
    commands = re.findall(r"^\$ (.*)$", logs, re.M)
    for part in ("fairseq_cli.train", "average_checkpoints.py", "fairseq_cli.gen"):
        assert any(part in command for command in commands), part
    copied = next(command for command in commands if "evaluate.py" in command)
    assert run(["bash", "-c", copied]).returncode == 0


def test_a_second_run_does_nothing_again(recipes, main):
    """Nor with settings that change no weight, and the same numbers written otherwise."""
    folder = seed_folder(recipes, "transformer_lite")

    def times():
        files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
        return {path: path.stat().st_mtime_ns for path in files}

    before = times()
    changes = ("keep-last-epochs=5", "lr=1e-2", "log-interval=7", "label-smoothing=1e-1")
    settings = [f"--set={change}" for change in changes]
    code, output = main(recipes / "transformer_lite.yml", "--examples", "2", *settings)
    assert code == 0
    assert "fairseq_cli" not in output and output.count("done before") == len(STEPS)
    assert output.count("reference    A ") == 2 and str(folder / "results.json") in output
    assert times() == before


def test_other_training_settings_are_refused(recipes, main):
    code, output = main(recipes / "ea_transformer_lite.yml", "--set", "dropout=0.25")
    assert code == 1
    error = output.strip().splitlines()[-1]
    assert "train.dropout: not set -> 0.25" in error and "--fresh" in error
    # Before the commands are printed, too, which could not be run.
    code, output = main(recipes / "ea_transformer_lite.yml", "--set", "dropout=0.25", "--dry-run")
    assert code == 1 and output.strip().splitlines()[-1] == error and "fairseq_cli" not in output
    assert main(recipes / "ea_transformer_lite.yml", "--dry-run")[0] == 0


@pytest.mark.thorough
def test_a_training_goes_on_for_longer(recipes, main):
    copy_run(recipes, "transformer_lite", "longer")
    before = max(read_curves(seed_folder(recipes, "longer")).updates)
    epochs = results(recipes, "longer")["settings"]["train"]["max-epoch"]
    options = ("--name", "longer", "--set", f"max-epoch={epochs + 2}")
    code, output = main(recipes / "transformer_lite.yml", *options)
    assert code == 0
    changed = f"settings changed: train.max-epoch: {epochs} -> {epochs + 2}"
    assert f"train     goes on, {changed}" in output and f"average   again, {changed}" in output
    assert max(read_curves(seed_folder(recipes, "longer")).updates) > before
    assert results(recipes, "longer")["settings"]["train"]["max-epoch"] == epochs + 2

    before = {path: path.read_bytes() for path in seed_folder(recipes, "longer").rglob("*.*")}
    for option, words in {
        f"max-epoch={epochs}": f"epoch {epochs + 2} already, beyond max-epoch {epochs}",
        "patience=3": "was trained with patience unlimited",
    }.items():
        code, output = main(recipes / "transformer_lite.yml", *options, "--set", option)
        assert code == 1 and words in output.strip().splitlines()[-1]
    after = {path: path.read_bytes() for path in seed_folder(recipes, "longer").rglob("*.*")}
    assert after == before


def test_a_training_stopped_in_the_middle_of_an_epoch_may_end_with_that_epoch(recipes, tmp_path):
    folder = seed_folder(recipes, "transformer_lite") / "checkpoints"
    epochs = results(recipes, "transformer_lite")["settings"]["train"]["max-epoch"]
    updates = max(read_curves(folder.parent).updates)
    assert progress(folder) == (epochs, updates)
    state = read_checkpoint(str(folder / "checkpoint_last.pt"))
    state["extra_state"]["train_iterator"]["iterations_in_epoch"] = 1
    save_checkpoint_file(state, str(tmp_path / "checkpoint_last.pt"))
    assert progress(tmp_path) == (epochs + 1, updates)
    assert progress(tmp_path / "nothing") == (0, 0)
    check_when_to_stop(tmp_path, {}, {"max-epoch": epochs + 1})
    check_when_to_stop(tmp_path, {"patience": 5}, {"max-epoch": 0, "patience": 6})
    check_when_to_stop(tmp_path, {"patience": 5}, {"patience": -1})
    check_when_to_stop(tmp_path, {"max-update": updates}, {"max-update": f"{updates + 1}"})
    check_when_to_stop(tmp_path, {"max-update": updates}, {})
    with pytest.raises(
        ValueError, match=f"update {updates} already, beyond max-update {updates - 1}"
    ):
        check_when_to_stop(tmp_path, {}, {"max-update": updates - 1})
    cosine = {"lr-scheduler": "cosine"}
    with pytest.raises(ValueError, match="cosine ends with max-update"):
        check_when_to_stop(tmp_path, cosine, cosine | {"max-update": updates + 9})
    check_when_to_stop(tmp_path, cosine, cosine | {"max-update": 0})


@pytest.mark.parametrize("none", [None, False])
def test_an_option_that_is_taken_back_leaves_a_schedule_to_max_update(none):
    """Of a base: null and false leave it out of the command."""
    falling = {"lr-scheduler": "polynomial_decay", "total-num-update": none}
    assert schedule_needs_max_update(falling)
    assert not schedule_needs_max_update(falling | {"total-num-update": 90})
    assert schedule_needs_max_update({"lr-scheduler": "cosine", "lr-period-updates": none})
    assert not schedule_needs_max_update({"lr-scheduler": "tri_stage", "phase-ratio": none})


@pytest.mark.thorough
def test_other_search_settings_are_used_with_the_training_that_is_there(recipes, main):
    copy_run(recipes, "ea_transformer_lite", "greedy")
    options = ("--name", "greedy", "--set", "generate.beam=1")
    code, output = main(recipes / "ea_transformer_lite.yml", *options)
    assert code == 0
    assert "generate  again, settings changed: generate.beam: 2 -> 1" in output
    assert "fairseq_cli.train" not in output and "average_checkpoints.py" not in output
    old, new = results(recipes, "ea_transformer_lite"), results(recipes, "greedy")
    assert new["settings"]["generate"]["beam"] == 1
    assert new["versions"] == old["versions"]


def test_a_table_of_other_settings_is_not_shown(recipes, main):
    options = ("--set", "generate.beam=1", "--steps", "average")
    code, output = main(recipes / "transformer_lite.yml", *options)
    assert code == 0 and "average   done before" in output and "| test set" not in output


def test_a_run_that_averages_no_longer_is_used_without_its_average(recipes, main):
    """What takes a run's model takes averaged.pt first, with scores of another checkpoint."""
    run = copy_run(recipes, "transformer_lite", "best")
    options = ("--name", "best", "--set", "average=null", "--steps", "average")
    assert main(recipes / "transformer_lite.yml", *options)[0] == 0
    assert checkpoint_of_run(run) == run / "checkpoints" / "checkpoint_best.pt"
    assert not (run / "model").exists()


def test_an_average_of_other_checkpoints_has_no_scores(recipes, main, monkeypatch):
    """Made again of what a cleaned folder still had, it stood under the scores of the old one."""
    in_forks(monkeypatch)
    run = copy_run(recipes, "transformer_lite", "cleaned")
    before = sha256(run / "averaged.pt")
    options = ("--name", "cleaned", "--steps", "average")
    (run / "averaged.pt").unlink()
    assert main(recipes / "transformer_lite.yml", *options)[0] == 0
    assert sha256(run / "averaged.pt") == before and (run / "results.json").exists()
    for path in (run / "checkpoints").glob("checkpoint[0-9]*.pt"):
        path.unlink()
    (run / "averaged.pt").unlink()
    code, output = main(recipes / "transformer_lite.yml", *options)
    assert code == 0 and "average   is not what it was: its translations and scores are" in output
    assert sha256(run / "averaged.pt") != before and not (run / "results.json").exists()
    stamps = {path.name for path in (run / "steps").glob("*.json") if "started" not in path.name}
    assert stamps == {"train.json", "average.json"}


def test_an_average_that_was_interrupted_leaves_no_scores_of_another(recipes, main, monkeypatch):
    run = copy_run(recipes, "transformer_lite", "interrupted")
    options = ("--name", "interrupted", "--steps", "average")
    for path in [run / "averaged.pt", *(run / "checkpoints").glob("checkpoint[0-9]*.pt")]:
        path.unlink()

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(recipe_run, "execute", stop)
        assert main(recipes / "transformer_lite.yml", *options)[0] == 130
    in_forks(monkeypatch)
    code, output = main(recipes / "transformer_lite.yml", *options)
    assert code == 0 and "average   is not what it was" in output and "| test set" not in output
    assert not (run / "results.json").exists()


def test_a_run_without_its_checkpoints_stays_as_it_is(recipes, main, monkeypatch):
    """Cleaned, it was trained anew under the word "goes on", or lost its results."""
    run, recipe = copy_run(recipes, "transformer_lite", "few"), recipes / "transformer_lite.yml"
    few = ("--name", "few")
    assert main(recipe, *few, "--clean")[0] == 0
    epochs = results(recipes, "few")["settings"]["train"]["max-epoch"]
    before = {path: path.read_bytes() for path in run.rglob("*.*") if path.is_file()}
    gone = "checkpoint_last.pt: is not there any more, so that the training cannot go on"
    for setting, words in {
        f"max-epoch={epochs + 2}": f"{gone} with other settings (train.max-epoch: {epochs} -> ",
        f"max-epoch={epochs - 2}": gone,
        "average.num-epoch-checkpoints=2": "checkpoints: has no checkpoints to average any more",
        "average=null": "checkpoint_best.pt: is not there any more",
    }.items():
        code, output = main(recipe, *few, "--set", setting)
        assert code == 1 and words in output.strip().splitlines()[-1]
    assert {path: path.read_bytes() for path in run.rglob("*.*") if path.is_file()} == before
    code, output = main(recipe, *few)
    assert code == 0 and output.count("done before") == len(STEPS)

    # One of a longer training beside old ones, of which the average would have been.
    (run / "steps" / "train.json").unlink()
    for number in (1, 2, 3):
        (run / "checkpoints" / f"checkpoint{number}.pt").touch()
    code, output = main(recipe, *few, "--steps", "train")
    assert code == 1 and gone in output.strip().splitlines()[-1]


def test_no_results_without_an_end_of_the_training(recipes, main):
    run = copy_run(recipes, "transformer_lite", "begun")
    (run / "results.json").unlink()
    (run / "steps" / "train.json").unlink()
    code, output = main(recipes / "transformer_lite.yml", "--name", "begun", "--steps", "evaluate")
    assert code == 0 and "Traceback" not in output and "| test set" not in output
    assert not (run / "results.json").exists()


def test_throwing_away_keeps_the_settings_to_the_last(recipes, main, monkeypatch):
    """Killed in between, checkpoints of other settings were gone on from."""
    run = copy_run(recipes, "transformer_lite", "away")
    removed = []

    def remove(path, *_):
        removed.append(path.name)
        if path.name == "checkpoints":
            assert (run / "steps" / "train.json").exists()
            raise KeyboardInterrupt

    monkeypatch.setattr(recipe_run.shutil, "rmtree", remove)
    options = ("--name", "away", "--fresh", "--set", "lr=0.002")
    code, output = main(recipes / "transformer_lite.yml", *options)
    assert code == 130 and "steps" not in removed
    assert output.strip().splitlines()[-1] == "stopped; without --fresh it goes on from here"


def test_other_content_of_what_a_training_read_is_told(recipes, main, tmp_path):
    run = copy_run(recipes, "transformer_lite", "own")
    recipe = replace(load_recipe(recipes / "transformer_lite.yml"), user_dir=tmp_path)
    (tmp_path / "__init__.py").write_text("a = 1\n")
    corpus = config.load(recipe.corpus)
    found = find_run(recipe, corpus, recipes.parent / "work", "own", 1)
    found = replace(found, data=recipes.parent / "work" / "data" / "tiny.de-en")

    def files(**options):
        sections = recipe.sections | {"train": recipe.options("train") | options}
        other = replace(recipe, sections=sections)
        work = recipe_run.RecipeRun(other, corpus, found, wanted_of(args), None)
        return work._files()

    args = run_recipe.make_parser().parse_args([])
    first = files()
    assert list(first) == ["--user-dir"] and files() == first
    (tmp_path / "__init__.py").write_text("a = 2\n")
    assert files() != first
    weights = tmp_path / "weights.pt"
    weights.write_text("1")
    assert files(**{"finetune-from-model": str(weights)})["finetune-from-model"] == sha256(weights)

    stamp = json.loads((run / "steps" / "train.json").read_text())
    assert stamp["files"] == {}
    write_json(run / "steps" / "train.json", stamp | {"files": first})
    code, output = main(recipes / "transformer_lite.yml", "--name", "own")
    assert code == 0 and f"warning: {run}: --user-dir" in output and "has other content" in output


def test_fewer_kept_checkpoints_than_are_averaged_are_other_settings():
    def settings(kept, averaged, option="keep-last-epochs"):
        train = {"lr": 1, option: kept, "log-interval": kept}
        return comparable({"train": train, "average": {"num-epoch-checkpoints": averaged}})

    assert settings(10, 10) == settings(20, 10) == settings(-1, 10) == settings(None, 10)
    assert settings("3", 10) != settings(10, 10) and settings(3, 10)["train"] == {
        "lr": 1,
        "keep-last-epochs": 3,
    }
    assert settings(3, 10, "keep-best-checkpoints") == settings(10, 10, "keep-best-checkpoints")
    assert comparable({"train": {"keep-last-epochs": 3}}) == {"train": {}}  # of training alone


def test_a_step_that_is_done_again_takes_its_time_anew_whatever_the_clock_is_set_to(
    tmp_path, monkeypatch
):
    """Translations that were deleted and made again took twice their time, by results.json."""
    step = Step("generate", tmp_path, {"beam": 5})
    step.start()
    started = json.loads(step.started.read_text()) | {"began": time.time() - 100}
    write_json(step.started, started)
    step.log.parent.mkdir()
    step.log.write_text("")  # a killed attempt's, whose time counts
    step.start()
    step.finish({})
    assert 99 < step.seconds() < 110
    step.start()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    step.finish({})
    assert 0 <= step.seconds() < 10


def test_a_recipe_is_the_same_from_within_its_folder(recipes, capfd, monkeypatch):
    monkeypatch.chdir(recipes)
    options = arguments(recipes / "transformer_lite.yml", "--dry-run")[1:]
    assert run_recipe.main(["transformer_lite.yml", *options]) == 0
    checkpoints = seed_folder(recipes, "transformer_lite") / "checkpoints"
    assert str(checkpoints) in capfd.readouterr().out


@pytest.mark.parametrize(
    ("option", "section"),
    [("generate.post-process=subword_nmt", "generate"), ("eval-bleu=true", "train")],
)
def test_pieces_of_words_are_never_scored(tmp_path, main, option, section):
    recipe = make_corpus(tmp_path) / "transformer_lite.yml"
    corpus = recipe.parent / "corpus.yml"
    corpus.write_text(corpus.read_text() + "subword: sentencepiece\n")
    fitting = ("--dry-run", "--set", "generate.post-process=sentencepiece")
    assert main(recipe, *fitting)[0] == 0
    wrong = ("--set", option, "--set", "eval-bleu-remove-bpe=subword_nmt")
    code, output = main(recipe, *fitting, *wrong)
    assert code == 1 and len(output.strip().splitlines()) == 1
    assert f"'{section}: " in output and "must be sentencepiece" in output


def test_a_failing_command_ends_the_run_with_one_line_and_no_results(recipes, main):
    folder = copy_run(recipes, "transformer_lite", "failing")
    newest = max((folder / "checkpoints").glob("checkpoint??.pt"))
    newest.write_bytes(newest.read_bytes()[:500])
    options = ("--name", "failing", "--set", "average.num-epoch-checkpoints=2")
    code, output = main(recipes / "transformer_lite.yml", *options)
    assert code == 1
    error = output.strip().splitlines()[-1]
    assert error.startswith("ea-recipe: error: ") and "average.log" in error
    assert not (folder / "results.json").exists()
    assert not (folder / "steps" / "average.json").exists()


@pytest.mark.thorough
def test_another_seed_is_another_run(recipes, main):
    code, _ = main(recipes / "transformer_lite.yml", "--seeds", "2", "--steps", "train")
    assert code == 0
    first = seed_folder(recipes, "transformer_lite") / "checkpoints" / "checkpoint12.pt"
    second = Path(str(first).replace("seed1", "seed2"))
    assert first.read_bytes() != second.read_bytes()


def test_the_table_over_seeds_gives_mean_and_deviation(recipes, tmp_path, capsys):
    runs = []
    for seed, score in ((1, 30.0), (2, 33.0)):
        content = results(recipes, "transformer_lite")
        content["scores"]["first"]["scores"][0]["score"] = score
        folder = tmp_path / f"seed{seed}"
        write_json(folder / "results.json", content)
        runs.append(Run(tmp_path, folder, seed, ("de", "en"), ["first", "second"]))
    print_results(runs)
    # The deviation of two values is their distance over the square root of two.
    assert f"31.50 ± {3 / 2**0.5:.2f} |" in capsys.readouterr().out


def test_seeds_that_were_trained_on_other_text_have_no_mean(recipes, capfd):
    for seed in (1, 2):
        folder = seed_folder(recipes, "text").with_name(f"seed{seed}")
        shutil.copytree(seed_folder(recipes, "transformer_lite"), folder)
    for path in (folder / "steps").glob("*.json"):
        step = json.loads(path.read_text())
        write_json(path, step | {"settings": step["settings"] | {"seed": 2}})
    kept = json.loads((folder / "text" / "corpus.json").read_text())
    kept["prepared"]["inputs"]["train.de"] = "0" * 64
    write_json(folder / "text" / "corpus.json", kept)
    work = ["--work-dir", str(recipes.parent / "work")]
    command = [str(recipes / "transformer_lite.yml"), *work, "--name", "text", "--seeds", "1", "2"]
    assert run_recipe.main([*command, "--steps", "evaluate"]) == 1
    error = capfd.readouterr().err.splitlines()[-1]
    assert "was trained on other data than seed1 (data.inputs.train.de: " in error


def test_a_finished_run_whose_logs_or_scores_were_deleted_is_whole_again(recipes, main):
    folder = copy_run(recipes, "transformer_lite", "tidied")
    before = results(recipes, "transformer_lite")
    shutil.rmtree(folder / "logs")
    (folder / "results.json").unlink()
    (folder / "scores" / "first.json").unlink()
    options = ("--name", "tidied", "--steps", "evaluate")
    code, output = main(recipes / "transformer_lite.yml", *options)
    assert code == 0 and "fairseq_cli" not in output
    assert results(recipes, "tidied")["parameters"] == before["parameters"] > 0
    assert results(recipes, "tidied")["scores"] == before["scores"]


@pytest.mark.parametrize(
    ("options", "missing", "kept"),
    [
        ((), None, None),
        (("--set", "average=null"), None, "checkpoint_best.pt"),  # it is the model then
        *(((), name, None) for name in ("results.json", "steps/train.json", "averaged.pt")),
    ],
)
def test_checkpoints_of_no_more_use_are_removed_on_demand_from_a_finished_run(
    recipes, main, tmp_path, options, missing, kept
):
    folder = copy_run(recipes, "transformer_lite", tmp_path.name)
    gone = {path for path in (folder / "checkpoints").glob("*.pt") if path.name != kept}
    if missing is not None:
        (folder / missing).unlink()
        gone = set()

    def present():
        return {path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}

    before, size = present(), sum(path.stat().st_size for path in gone) / 1e6
    clean = (recipes / "transformer_lite.yml", "--name", tmp_path.name, "--clean", *options)
    said = f"removed {len(gone)} checkpoints, {size:.0f} MB" if gone else "nothing to remove"
    assert said in main(*clean)[1]
    assert before - present() == gone
    code, output = main(*clean)
    assert code == 0 and "nothing to remove" in output


def translate(recipes, folder, text="Ein Hund.\n", *options):
    """translate.py's exit code, for text in a file."""
    (folder / "input").write_text(text)
    recipe, work = recipes / "ea_transformer_lite.yml", recipes.parent / "work"
    words = [recipe, "--work-dir", work, "--input", folder / "input", *options]
    try:
        return translate_script.main([*map(str, words), "--output", str(folder / "output")])
    except SystemExit as stop:
        return stop.code


def test_raw_text_gets_the_translations_of_the_recipe(recipes, tmp_path, capsys):
    raw = (recipes / "raw" / "first.de").read_text()
    expected = seed_folder(recipes, "ea_transformer_lite") / "generate" / "first.en"
    assert translate(recipes, tmp_path, raw, "--buffer-size", "5") == 0
    errors = capsys.readouterr().err
    assert (tmp_path / "output").read_text() == expected.read_text()
    assert [line for line in errors.splitlines() if "no C++ compiler" not in line] == []


def test_the_run_has_a_model_folder_that_knows_its_scores(recipes, tmp_path):
    """Made at the end of the recipe; made anew where the run's model is newer."""
    folder = seed_folder(recipes, "ea_transformer_lite")
    config = folder / "model" / "config.json"
    before = config.stat().st_mtime_ns
    model = read_model_folder(folder / "model")
    assert model.config.scores == results(recipes, "ea_transformer_lite")["scores"]
    assert model.config.search.beam == 2
    assert model.config.longest.sentences == 1 and 4 < model.config.longest.tokens < 40
    assert translate(recipes, tmp_path) == 0 and config.stat().st_mtime_ns == before
    os.utime(folder / "averaged.pt")
    assert translate(recipes, tmp_path) == 0 and config.stat().st_mtime_ns > before


def test_two_sentences_in_a_line_are_both_translated(recipes, tmp_path, capsys):
    first, second = "Ein Hund mag das Buch.", "Ein Auto sieht das Haus."
    assert translate(recipes, tmp_path, f"{first}\n{second}\n{first} {second}\n") == 0
    answers = (tmp_path / "output").read_text().splitlines()
    assert answers[2] == f"{answers[0]} {answers[1]}"
    # Two short sentences: of no more subwords than one that was trained on.
    refused = f"{first}\nEin Hund. Ein Hund.\n{first} {second} {first} {second}\n"
    assert translate(recipes, tmp_path, refused, "--long", "refuse") == 1
    assert (tmp_path / "output").read_text().splitlines() == [answers[0], "", ""]
    errors = capsys.readouterr().err
    assert "translate.py: line 2: 2 sentences; the model was trained on 1" in errors
    assert re.search(r"line 3: \d+ subwords in one piece; the model was trained on \d+\n", errors)


def test_runs_and_models_that_cannot_translate_are_named_in_one_line(recipes, tmp_path, capsys):
    weights = seed_folder(recipes, "ea_transformer_lite") / "model" / "model.safetensors"
    whole = weights.read_bytes()
    try:
        weights.write_bytes(whole[:1000])
        for options, words in {
            ("--seed", "7"): "seed7: no such run; train first: ea-recipe",
            ("--work-dir", "/nowhere"): "/nowhere",
            ("--variant", "transformer"): "--variant",
            (): "model.safetensors: damaged",
        }.items():
            assert translate(recipes, tmp_path, "Ein Hund.\n", *options)
            errors = capsys.readouterr().err
            assert words in errors and len(errors.splitlines()) == 1
            assert not (tmp_path / "output").exists()
    finally:
        weights.write_bytes(whole)


@pytest.mark.thorough
def test_killed_at_any_step_the_run_goes_on_to_whole_results(recipes, tmp_path, main):
    killed = make_corpus(tmp_path)
    recipe = killed / "transformer_lite.yml"
    folder = seed_folder(killed, "transformer_lite")
    begun = {step: folder / "steps" / f"{step}.started.json" for step in STEPS}
    moments = [
        ("prepare", tmp_path / "work" / "data" / "tiny.de-en" / "state.json"),
        ("train", folder / "checkpoints" / "checkpoint_last.pt"),
        ("average", begun["average"]),
        ("generate", begun["generate"]),
        ("generate", folder / "generate" / "generate-test1.txt"),
        ("evaluate", begun["evaluate"]),
    ]
    for step, moment in moments:
        kill_when(command(*arguments(recipe)), moment)
        assert not (folder / "steps" / f"{step}.json").exists(), f"{step} was already done"
        assert not (folder / "results.json").exists()
    code, output = main(recipe)
    assert code == 0
    assert "train     done before" in output
    whole, theirs = results(recipes, "transformer_lite"), results(killed, "transformer_lite")
    assert theirs.keys() == whole.keys() and theirs["parameters"] == whole["parameters"]
    assert theirs["scores"] == whole["scores"]
    epochs = re.findall(r"end of epoch (\d+) ", (folder / "logs" / "train.log").read_text())
    assert epochs[-1] == "12" and len(epochs) <= 12  # none twice: it was killed after the first
    data = ("raw", "tok", "bpe")
    assert files_below(killed, data) == files_below(recipes, data)


def files_below(recipes: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """Content of the prepared text."""
    data = recipes.parent / "work" / "data" / "tiny.de-en"
    paths = [path for name in names for path in (data / name).rglob("*") if path.is_file()]
    return {str(path.relative_to(data)): path.read_bytes() for path in paths}


def kill_when(arguments: list[str], moment: Path) -> None:
    """SIGKILL the runner as soon as a file is there."""
    child = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: moment.exists() or child.poll() is not None)
    assert child.poll() is None, f"ended before {moment} was there"
    child.send_signal(signal.SIGKILL)
    child.wait()


@pytest.mark.thorough
def test_progress_bars_are_drawn_on_a_terminal_and_the_log_still_has_curves(recipes):
    options = ("--name", "bars", "--set", "log-format=tqdm", "--steps", "train", "--verbose")
    ours, theirs = os.openpty()
    child = subprocess.Popen(
        command(*arguments(recipes / "transformer_lite.yml", *options)),
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal's output
        while chunk := os.read(ours, 65536):
            shown += chunk
    os.close(ours)
    assert child.wait() == 0
    assert b"epoch 001:   0%|" in shown
    curves = read_curves(seed_folder(recipes, "bars"))
    assert len(curves.curve("valid", "loss")[0]) == 12


def as_installed(arguments):
    """The console script, to which SIGTERM and SIGHUP are Ctrl-C."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
    sys.argv[1:] = arguments
    return run_recipe.run()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_stop_the_runner_lets_the_training_save(recipes, ending):
    """By a job manager, or by a terminal that is closed."""
    name = f"stopped{ending}"
    endless = ("--name", name, "--set", "max-epoch=100000", "--steps", "train")
    options = arguments(recipes / "transformer_lite.yml", *endless)
    child = Fork(as_installed, *options)
    folder = seed_folder(recipes, name)
    wait_for((folder / "checkpoints" / "checkpoint_last.pt").exists)
    os.kill(child.pid, ending)
    assert child.wait() == 130
    output = (child.stdout.read() + child.stderr.read()).decode()
    assert output.strip().splitlines()[-1] == "stopped; the same command goes on from here"
    log = (folder / "logs" / "train.log").read_text()
    saved = re.findall(r"Saving checkpoint to .*checkpoint_last.pt", log)
    assert saved and "Traceback" not in output + log
    assert zipfile.is_zipfile(folder / "checkpoints" / "checkpoint_last.pt")
    assert not (folder / "steps" / "train.json").exists()


@pytest.mark.parametrize("averages", [True, False])
def test_each_command_reads_what_the_one_before_it_wrote(tmp_path, main, averages):
    """Of its own seed; the average translates, and where there is none the best checkpoint."""
    recipe = make_corpus(tmp_path) / "ea_transformer_lite.yml"
    options = () if averages else ("--set", "average=null")
    code, output = main(recipe, "--dry-run", "--seeds", "3", "7", *options)
    assert code == 0
    lines = [line for line in output.splitlines() if not line.startswith("#")]
    prepare, *commands = [words_of(line) for line in lines]
    data = prepare["--output"]
    for seed in ("3", "7"):
        folder = seed_folder(tmp_path / "tiny.de-en", "ea_transformer_lite").with_name(
            f"seed{seed}"
        )
        train = commands.pop(0)
        assert train[""][-1] == f"{data}/bin" and train["--seed"] == seed
        checkpoints = train["--save-dir"]
        assert checkpoints == str(folder / "checkpoints")
        model = f"{checkpoints}/checkpoint_best.pt"
        if averages:
            average = commands.pop(0)
            assert (average["--inputs"], average["--num-epoch-checkpoints"]) == (checkpoints, "3")
            model = average["--output"]
            assert model == str(folder / "averaged.pt")
        for subset in ("test", "test1"):
            generate = commands.pop(0)
            assert generate[""][-1] == f"{data}/bin" and generate["--gen-subset"] == subset
            assert (generate["--path"], generate["--beam"]) == (model, "2")
        for test_set in ("first", "second"):
            evaluate = commands.pop(0)
            assert evaluate["--generated"] == str(folder / "generate" / f"{test_set}.txt")
            assert evaluate["--references"] == f"{data}/raw/{test_set}.en"
            assert evaluate["--tokenized-references"] == f"{data}/tok/{test_set}.en"
            assert evaluate["--sources"] == f"{data}/raw/{test_set}.de"
            assert evaluate["--target-lang"] == "en" and "--lowercase" in evaluate
            assert evaluate["--json"] == str(folder / "scores" / f"{test_set}.json")
    assert not commands and not (tmp_path / "work").exists()


def words_of(line: str) -> dict:
    """A command's options and their values; what is no option or value is listed under ""."""
    found, name = {"": []}, ""
    for word in shlex.split(line):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = value
            name = "" if equals else name
        elif name:
            found[name], name = word, ""
        else:
            found[""].append(word)
    return found


UPDATES = "average=null average.num-update-checkpoints=3"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ("max-epoch=1", "max-epoch 1: 1 checkpoint of epochs to average, not 3"),
        ("max-update=40", "the last update's weights count as one"),
        ("patience=1", "as soon as after epoch 2"),
        ("keep-last-epochs=2", "2 checkpoints to average, not 3"),
        (UPDATES, "save-interval-updates is not set"),
        (
            f"{UPDATES} save-interval-updates=10 max-update=20",
            "max-update 20, saved every 10: 2 checkpoints, not 3",
        ),
    ],
)
def test_dry_run_says_what_a_short_training_will_leave_to_average(tmp_path, main, changes, words):
    recipe = make_corpus(tmp_path) / "transformer_lite.yml"
    options = [f"--set={change}" for change in changes.split()]
    code, output = main(recipe, "--dry-run", *options)
    notes = [line for line in output.splitlines() if line.startswith("# ")]
    assert code == 0 and len(notes) == 1 and words in notes[0]


def test_several_recipes_can_share_a_pattern_of_names(tmp_path, capsys):
    recipes = make_corpus(tmp_path)
    options = arguments(recipes / "ea_transformer_lite.yml", "--dry-run", "--steps", "train")
    both = [str(recipes / "transformer_lite.yml"), *options, "--name"]
    assert run_recipe.main([*both, "{recipe}.short"]) == 0
    output = capsys.readouterr().out
    for name in ("transformer_lite", "ea_transformer_lite"):
        assert f"/runs/tiny.de-en/{name}.short/seed1/checkpoints" in output
    assert run_recipe.main([*both, "short"]) == 1
    error = capsys.readouterr().err
    assert "--name short: choose one recipe, or a name with {recipe}" in error


@pytest.mark.thorough
def test_runs_side_by_side_have_a_log_and_progress_each(recipes, capfd):
    """Of one recipe all is done, of the other nothing: one process of its own for each."""
    untrained = recipes / "untrained.yml"
    write_yaml(untrained, {"base": "ea_transformer_lite.yml"})
    options = ("--jobs", "2", "--steps", "average", "generate", "evaluate")
    recipe = recipes / "ea_transformer_lite.yml"
    assert run_recipe.main([str(untrained), *arguments(recipe, *options)]) == 1
    output = "".join(capfd.readouterr())
    done, failed = (f"tiny.de-en/{path.stem}/seed1" for path in (recipe, untrained))
    for step in ("average", "generate", "evaluate"):
        assert f"{done}  {step:9} done before" in output
    logs = [seed_folder(recipes, p.stem).with_name("run.seed1.log") for p in (recipe, untrained)]
    assert "step 'average' needs step 'train'" in logs[1].read_text()
    assert f"error: {failed} failed: see {logs[1]}" in output and f"{done} failed" not in output
    table = f"{logs[0].parent}, seed 1\n\n| test set"
    assert table in logs[0].read_text() and table in output
