"""The list of runs behind the results: every one is there, and fairseq takes its options."""

import os
import re
import shlex
import stat
import subprocess

import ablation
import compare_many
import keep_runs
import time_to_match
from tiny_translation import REPOSITORY

from ea_fairseq.commands import compare, plot
from ea_fairseq.commands import recipe as run_recipe

SCRIPT = REPOSITORY / "scripts" / "reproduce_multi30k.sh"


def reproduce(*options, python="python"):
    done = subprocess.run(
        ["bash", str(SCRIPT), *options],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHON": str(python)},
    )
    print(done.stdout, done.stderr)
    return done


def commands(*options):
    """What --dry-run prints: (script, arguments) of each command."""
    done = reproduce("--dry-run", *options)
    assert done.returncode == 0
    lines = [shlex.split(line) for line in done.stdout.splitlines() if line.startswith("$ ")]
    return [(words[2], words[3:]) for words in lines]


#: The runs in their order: languages, models, what stands behind their names, seeds.
RUNS = [
    ("de-en", "transformer_lite ea_transformer_lite", "epochs_22", (1, 2, 3)),
    ("en-de", "transformer_lite ea_transformer_lite", "epochs_22", (1, 2, 3)),
    (
        "de-en",
        "realformer_lite pa_transformer_lite conv_transformer_lite ea_conv_transformer_lite "
        "bet_transformer_lite diagonal_free talking_heads_transformer_lite mta_transformer_lite",
        "epochs_22",
        (1,),
    ),
    ("de-en", "pa_transformer_lite pa_conv_transformer_lite", "lr_1e-3.epochs_22", (1,)),
    ("de-en", "pa_transformer_lite", "layers_0.lr_1e-3.epochs_22", (1,)),
    ("de-en", "ea_transformer_lite", "learned_mixing.epochs_22", (1,)),
    (
        "de-en",
        "conv_transformer_lite ea_conv_transformer_lite mta_transformer_lite "
        "talking_heads_transformer_lite",
        "epochs_22",
        (2, 3),
    ),
    ("de-en", "ea_transformer_lite", "learned_mixing.epochs_22", (2, 3)),
    ("de-en", "pa_transformer_lite", "lr_1e-3.epochs_22", (2, 3)),
    ("de-en", "conv_transformer_lite_wide transformer_lite_wide", "epochs_22", (1, 2, 3)),
    ("en-fr", "transformer_lite ea_transformer_lite", "epochs_22", (1, 2, 3)),
    ("en-de", "transformer_lite ea_transformer_lite", "published", (1,)),
]


def test_every_run_is_listed_once_and_its_options_are_fairseqs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(REPOSITORY)
    found = []
    raw = tmp_path / "raw"
    raw.mkdir()
    for name in ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"):
        for language in ("de", "en", "fr"):
            (raw / f"{name}.{language}").touch()
    for script, arguments in commands("--work-dir", str(tmp_path), "--raw", str(raw)):
        if script == "scripts/run_recipe.py":
            assert run_recipe.main([*arguments, "--dry-run", "--steps", "train"]) == 0
            for line in capsys.readouterr().out.splitlines():
                if "fairseq_cli.train" in line:
                    folder = re.search(r"--save-dir[= ](\S+)/checkpoints", line)[1]
                    found.append(folder.removeprefix(f"{tmp_path}/runs/multi30k."))
                    epochs = 200 if ".published" in folder else 22
                    assert re.search(rf"--max-epoch[= ]{epochs} ", line)
    assert found == [
        f"{pair}/{model}.{name}/seed{seed}"
        for pair, models, name, seeds in RUNS
        for model in models.split()
        for seed in seeds
    ]
    assert list(tmp_path.iterdir()) == [raw]


def test_the_ablation_runs_under_the_names_and_settings_of_the_seeds(tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    ((script, arguments),) = commands("ablation", "--jobs", "3", "--work-dir", str(tmp_path))
    assert script == "scripts/ablation.py"
    given = []
    monkeypatch.setattr(run_recipe, "main", lambda arguments: given.append(arguments) or 0)
    assert ablation.main(arguments) == 0
    args = run_recipe.make_parser().parse_args(given[0])
    assert args.variant == list(ablation.ROWS)
    assert (args.name, args.set) == ("{recipe}.epochs_22", ["max-epoch=22"])
    assert (args.seeds, args.threads, args.jobs, args.work_dir) == ([1], 1, 3, tmp_path)


def test_folders_are_where_the_caller_names_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for options, work in (((), "work"), (("--work-dir", "mine"), "mine")):
        ((_, arguments),) = commands("french", "--raw", "raw", *options)
        args = run_recipe.make_parser().parse_args(arguments)
        assert (args.work_dir, args.raw) == (tmp_path / work, tmp_path / "raw")


def test_every_report_is_a_command_that_its_script_takes(tmp_path):
    parsers = {
        "scripts/compare.py": compare.make_parser(),
        "scripts/time_to_match.py": time_to_match.make_parser(),
        "scripts/plot_training.py": plot.make_parser(),
        "scripts/ablation.py": ablation.make_parser(),
        "scripts/compare_many.py": compare_many.make_parser(),
        "scripts/keep_runs.py": keep_runs.make_parser(),
    }
    made = commands("keep", "report", "--work-dir", str(tmp_path))
    assert {script for script, _ in made} == set(parsers)
    for script, arguments in made:
        parsers[script].parse_args(arguments)  # ends the test where it does not


def test_reports_of_unfinished_runs_are_left_out_and_the_others_kept(tmp_path):
    python = tmp_path / "python"  # compares English-French alone
    python.write_text(
        '#!/bin/sh\ncase "$*" in *compare.py*en-fr*) echo "| table |" ;; *) exit 1; esac'
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    # Of runs that were taken back since: not what this report shows.
    (tmp_path / "work" / "report").mkdir(parents=True)
    for stale in ("ablation.md", "multi30k.de-en.epochs_22.png"):
        (tmp_path / "work" / "report" / stale).write_text("old\n")
    done = reproduce("report", "--work-dir", str(tmp_path / "work"), python=python)
    assert done.returncode == 0
    kept = {path.name: path.read_text() for path in (tmp_path / "work" / "report").iterdir()}
    assert list(kept) == ["multi30k.en-fr.epochs_22.scores.md"]
    assert "| table |" in kept["multi30k.en-fr.epochs_22.scores.md"]
    assert done.stdout.count("left out: ") == 3 * 4 - 1 + 1 + 1 + 1 + 2 * 13


def test_kept_runs_that_differ_stop_neither_the_others_nor_the_report(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncase "$*" in *keep_runs.py*de-en*) exit 1 ;; esac')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    for pair in ("de-en", "en-de"):
        (tmp_path / "work" / "runs" / f"multi30k.{pair}" / "a").mkdir(parents=True)
    done = reproduce("keep", "report", "--work-dir", str(tmp_path / "work"), python=python)
    assert done.returncode == 1
    assert "multi30k.en-de/translations" in done.stdout and "compare_many.py" in done.stdout
    (command,) = [words for name, words in commands("report", "--work-dir", str(tmp_path))
                  if name == "scripts/compare_many.py"]  # fmt: skip
    assert command[0] == str(tmp_path / "runs" / "multi30k.de-en")


def test_reports_are_of_the_seeds_that_both_models_have_finished(tmp_path):
    runs = tmp_path / "runs" / "multi30k.de-en"
    pair = [runs / f"{name}.epochs_22" for name in ("transformer_lite", "ea_transformer_lite")]
    for run, finished in zip(pair, ((2, 3, 10), (2, 10)), strict=True):
        for seed in (2, 3, 10):
            (run / f"seed{seed}").mkdir(parents=True)
        for seed in finished:
            (run / f"seed{seed}" / "results.json").touch()
    made = commands("report", "--work-dir", str(tmp_path))
    pair = [str(run) for run in pair]
    for script in ("scripts/compare.py", "scripts/time_to_match.py"):
        (arguments,) = [words for name, words in made if name == script and words[:2] == pair]
        assert arguments[2:] == ["--seeds", "10", "2"]


def test_a_failed_run_ends_it_and_unknown_words_are_named(tmp_path):
    done = reproduce("seeds", "--work-dir", str(tmp_path), python="false")
    assert done.returncode == 1 and done.stdout.count("$ false") == 1
    for wrong, named in (
        (["everything"], "everything: choose from"),
        (["--raw"], "--raw: its value"),
    ):
        done = reproduce(*wrong)
        assert done.returncode == 1 and named in done.stderr and done.stderr.count("\n") == 1
