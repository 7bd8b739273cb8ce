"""A recipe for two files of one's own: written anywhere, accepted by every check, then run."""

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tiny_translation import sentences

from ea_fairseq.commands import recipe as run_recipe
from ea_fairseq.corpus.config import load
from ea_fairseq.recipes.results.listing import list_runs
from ea_fairseq.recipes.says.new_corpus import schedule
from ea_fairseq.recipes.says.recipe import load_recipe, recipe_path


@pytest.fixture
def files(tmp_path):
    """Two files of 100 pairs."""
    for lang, lines in zip(("de", "en"), zip(*sentences(100, 1), strict=True), strict=True):
        (tmp_path / f"all.{lang}").write_text("".join(f"{line}\n" for line in lines))
    return [str(tmp_path / "all.de"), str(tmp_path / "all.en")]


def test_a_recipe_is_written_that_prepares_the_two_files(files, tmp_path, capsys):
    folder = tmp_path / "elsewhere" / "my.de-en"
    assert run_recipe.main(["--new", str(folder), "--files", *files]) == 0
    output = capsys.readouterr().out
    assert re.search(rf"ea-recipe {folder} --variant ea_transformer_lite$", output, re.M)
    corpus = load(folder / "corpus.yml")
    assert corpus.languages == ("de", "en") and corpus.splits == ["train", "valid", "test"]
    assert corpus.held_out == {"valid": 5, "test": 5}
    assert [part.path for part in corpus.files["train"]] == ["../../all.{lang}"]  # both may move
    recipe = load_recipe(recipe_path(folder, "ea_transformer_lite"))
    assert recipe.corpus.resolve() == folder / "corpus.yml"
    # Every option is checked against fairseq's parsers; the place of data and runs is free.
    command = [str(folder), "--variant", "ea_transformer_lite", "--dry-run"]
    assert run_recipe.main([*command, "--work-dir", str(tmp_path / "work")]) == 0
    assert "fairseq_cli.train" in capsys.readouterr().out
    assert not (tmp_path / "work").exists()


def test_one_tsv_is_enough(files, tmp_path, capsys):
    sides = [Path(file).read_text().splitlines() for file in files]
    table = tmp_path / "all.tsv"
    table.write_text(
        "".join(f"{source}\t{target}\n" for source, target in zip(*sides, strict=True))
    )
    folders = [tmp_path / "two" / "my.de-en", tmp_path / "one" / "my.de-en"]
    for folder, given in zip(folders, (files, [str(table)]), strict=True):
        assert run_recipe.main(["--new", str(folder), "--files", *given]) == 0
    assert capsys.readouterr().out.count(f"      100  {sides[0][99]}\n") == 2
    two, one = ((folder / "common.yml").read_text() for folder in folders)
    assert one == two
    (part,) = load(folders[1] / "corpus.yml").files["train"]
    assert (part.path, part.format) == ("../../all.tsv", "tsv")
    command = [str(folders[1]), "--variant", "transformer_lite", "--dry-run"]
    assert run_recipe.main([*command, "--work-dir", str(tmp_path / "work")]) == 0
    table.write_text(table.read_text().replace("\t", " "))
    for arguments, words in {
        ("my.de-en", table): f"{table}: line 1 has no tab",
        ("mine", table): "is said by the folder's name: my.de-en",
        ("my.de-de", table): "is said by the folder's name: my.de-en",
        ("my.de-en", files[0]): "give two files",
        ("my.de-en", tmp_path / "none.tsv"): "no such file",
        ("my.de-en", *files, table): "two files, not 3",
    }.items():
        name, *given = map(str, arguments)
        assert run_recipe.main(["--new", str(tmp_path / name), "--files", *given]) == 1
        assert words in capsys.readouterr().err and not (tmp_path / name).exists()


def test_three_pairs_are_shown_and_few_are_told_of(files, tmp_path, capsys):
    assert run_recipe.main(["--new", str(tmp_path / "my.de-en"), "--files", *files]) == 0
    shown = capsys.readouterr()
    source, target = (Path(file).read_text().splitlines() for file in files)
    for number in (1, 51, 100):
        pair = rf"^ +{number}  {source[number - 1]}\n +{target[number - 1]}$"
        assert re.search(pair, shown.out, re.M), number
    assert "warning: 100 pairs are few" in shown.err


@pytest.mark.parametrize("pairs", [50, 400, 1000, 6000, 29_000, 160_000, 4_500_000])
def test_the_schedule_follows_the_size_of_the_corpus(pairs):
    """Of lines with 18 subwords: the learning rate rises within a tenth of the training, which is
    long enough, and an epoch has many updates where there is text for it."""
    plan = schedule(pairs, 18 * pairs)
    assert 512 <= plan.batch <= 4096 and plan.updates == max(1, round(18 * pairs / plan.batch))
    assert plan.updates * plan.epochs >= 6000 or plan.epochs == 300
    assert plan.warmup <= max(1, plan.updates * plan.epochs / 10) + 1 and plan.warmup <= 4000
    assert plan.updates >= 175 or plan.batch == 512
    assert plan.dropout == (0.3 if pairs < 10_000 else 0.2 if pairs < 10**6 else 0.1)


def test_the_schedule_is_what_the_recipe_says(tmp_path):
    for lang in ("de", "en"):
        lines = (" ".join([f"{lang}rd"] * 16) for _ in range(2000))
        (tmp_path / f"many.{lang}").write_text("".join(f"{line}\n" for line in lines))
    folder, files = tmp_path / "my.de-en", [str(tmp_path / f"many.{lang}") for lang in ("de", "en")]
    assert run_recipe.main(["--new", str(folder), "--files", *files]) == 0
    plan = schedule(2000, 2000 * 79 // 4)  # four characters a subword
    train = load_recipe(recipe_path(folder, "ea_transformer_lite")).options("train")
    names = {"batch": "max-tokens", "epochs": "max-epoch", "patience": "patience"}
    names |= {"warmup": "warmup-updates", "dropout": "dropout"}
    for name, option in names.items():
        assert train[option] == getattr(plan, name), option
    assert plan.warmup < plan.updates * plan.epochs / 9


def test_compressed_files_are_taken_and_broken_ones_named(files, tmp_path, capsys):
    for file in files:
        subprocess.run(["gzip", file], check=True)
    compressed = [f"{file}.gz" for file in files]
    new = str(tmp_path / "my.de-en")
    assert run_recipe.main(["--new", new, "--files", *compressed]) == 0
    assert load(tmp_path / "my.de-en" / "corpus.yml").files["train"][0].path.endswith("all.{lang}")
    (tmp_path / "all.de.gz").write_bytes(b"no gzip file")
    assert run_recipe.main(["--new", str(tmp_path / "other.de-en"), "--files", *compressed]) == 1
    assert "all.de.gz: cannot be read" in capsys.readouterr().err
    (tmp_path / "all.en").write_text("Preparation takes this before what is compressed.\n")
    assert run_recipe.main(["--new", str(tmp_path / "other.de-en"), "--files", *compressed]) == 1
    assert "all.en.gz: all.en is there as well, and would be taken" in capsys.readouterr().err


def test_files_and_folders_that_do_not_fit_are_named(files, tmp_path, capsys):
    source, target = files
    (tmp_path / "short.en").write_text("one\n")
    (tmp_path / "short.de").write_text("eins\n")
    (tmp_path / "all.fr").write_text("un\n")
    (tmp_path / "there").mkdir()
    for lang in ("de", "en"):
        (tmp_path / f"few.{lang}").write_text("one\ntwo\nthree\n")
        (tmp_path / f"latin.{lang}").write_text("one\nzw\xf6lf\n", encoding="latin-1")
        (tmp_path / f"wide.{lang}").write_text("one\ntwo\n", encoding="utf-16")
        (tmp_path / f"packed.{lang}").write_bytes(gzip.compress(b"one\ntwo\nthree\n"))
        (tmp_path / f"same.{lang}").write_text("one line\n" * 100)
    wide, packed, few, latin, same = (
        [str(tmp_path / f"{name}.{lang}") for lang in ("de", "en")]
        for name in ("wide", "packed", "few", "latin", "same")
    )
    new = str(tmp_path / "my.de-en")
    dashed = [source, shutil.copy(target, target.replace(".en", ".pt-br"))]
    for arguments, words in {
        ("--new", new): "give both",
        ("--files", *files): "give both",
        ("--new", new, "--files", source, str(tmp_path / "no.en")): "no.en: no such file",
        ("--new", new, "--files", source, str(tmp_path / "short.en")): "name them alike",
        ("--new", new, "--files", source, source): "one file for each language",
        ("--new", new, "--files", target, source): "my.en-de",
        ("--new", str(tmp_path / "my"), "--files", source, str(tmp_path / "all.fr")): "100 lines",
        ("--new", str(tmp_path / "there"), "--files", *files): "there already",
        ("--new", str(tmp_path / "a b"), "--files", *files): "without space",
        ("--new", new, "--files", *dashed): ".pt-br: pt-br is no language code",
        ("--new", new, "--files", *few): "few.de has 3 lines: too few to train on",
        ("--new", new, "--files", *same): "--files: de and en are the same text",
        ("--new", new, "--files", *files, "--seeds", "2"): "--seeds: --new runs nothing",
        ("--new", new, "--files", *files, "--set", "lr=1"): "--set: --new runs nothing",
        ("--new", new, "--files", *files, "--steps", "train"): "--steps: --new runs nothing",
        ("--new", new, "--files", *latin): "latin.de: line 2 is not UTF-8; make UTF-8 of it first",
        ("--new", new, "--files", *wide): "wide.de: is UTF-16; make UTF-8 of it first: iconv -f",
        ("--new", new, "--files", *packed): "packed.de: is compressed (gzip); unpack it first",
    }.items():
        assert run_recipe.main(list(arguments)) == 1
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1, arguments
    assert not (tmp_path / "my.de-en").exists()
    assert run_recipe.main([]) == 1
    assert "give a corpus" in capsys.readouterr().err


def test_the_list_shows_in_what_runs_differ(tmp_path):
    """Of any step but without effect; that others have not begun a step is no difference."""
    train = {"arch": "x", "lr": "1e-3", "clip-norm": 1, "log-interval": 9}
    generate = {"train": train, "average": None, "generate": {"beam": 5, "lenpen": 1}}
    for began, (name, step, settings) in enumerate(
        (
            ("a", "train", {"seed": 1, "train": train}),
            ("b", "generate", {"seed": 2, **generate}),
            (
                "c",
                "generate",
                {**generate, "train": train | {"clip-norm": "2.0", "log-interval": 1}},
            ),
            ("d", "generate", {**generate, "generate": {"beam": 4, "lenpen": "1.0"}}),
            (
                "e",
                "generate",
                {**generate, "average": {"num-epoch-checkpoints": 9}, "generate": {}},
            ),
            ("f", "evaluate", {**generate, "evaluate": {"lowercase": True}}),
            ("g", "evaluate", {**generate, "evaluate": {}, "data": "1234567"}),
            ("g", "train", {"train": train | {"max-epoch": 9}, "data": "1234567"}),  # went on
            ("h", "generate", {**generate, "models": ["1", "2"]}),
        )
    ):
        steps = tmp_path / "runs" / "my.de-en" / name / "seed1" / "steps"
        steps.mkdir(parents=True, exist_ok=True)
        content = {"settings": settings, "began": began}
        (steps / f"{step}.started.json").write_text(json.dumps(content))
    assert [row.split("|")[3].strip() for row in list_runs(tmp_path).splitlines()[2:]] == [
        "x, lr 1e-3, clip-norm 1",
        "x, lr 1e-3, clip-norm 1, generate.beam 5, generate.lenpen 1",
        "x, lr 1e-3, clip-norm 2.0, generate.beam 5, generate.lenpen 1",
        "x, lr 1e-3, clip-norm 1, generate.beam 4, generate.lenpen 1.0",
        "x, lr 1e-3, clip-norm 1, average.num-epoch-checkpoints 9",
        "x, lr 1e-3, clip-norm 1, generate.beam 5, generate.lenpen 1",
        "x, lr 1e-3, max-epoch 9, clip-norm 1",
        "x, lr 1e-3, ensemble of 2, clip-norm 1, generate.beam 5, generate.lenpen 1",
    ]


def test_the_list_shows_runs_with_settings_and_scores(tmp_path, capsys):
    assert list_runs(tmp_path).endswith("no runs yet")
    for name, train, score in (
        ("a", {"arch": "x", "lr": "1e-3", "ea-alpha": 0.3}, 12.345),
        ("b", {}, None),
    ):
        for seed in (1, 10, 2):
            folder = tmp_path / "runs" / "my.de-en" / name / f"seed{seed}"
            (folder / "steps").mkdir(parents=True)
            started = {"settings": {"train": train}}
            (folder / "steps" / "train.started.json").write_text(json.dumps(started))
            if score is not None:
                scored = {"scores": [{"label": "tokenized BLEU", "score": score}]}
                (folder / "results.json").write_text(json.dumps({"scores": {"test": scored}}))
    (folder / "steps" / "train.json").write_text("{}")
    (tmp_path / "runs" / "my.de-en" / "c" / "seed1").mkdir(parents=True)
    assert run_recipe.main(["--list", "--work-dir", str(tmp_path)]) == 0
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in capsys.readouterr().out.splitlines()
    ]
    assert [row[0] for row in rows[2:]] == [
        *(f"my.de-en/{n}/seed{s}" for n in "ab" for s in (1, 2, 10)),
        "my.de-en/c/seed1",
    ]
    assert rows[2][1:] == ["done", "x, lr 1e-3, ea-alpha 0.3", "test", "tokenized BLEU", "12.35"]
    assert [row[1] for row in rows[5:]] == [
        "stopped in train",
        "stopped after train",
        "stopped in train",
        "not begun",
    ]
