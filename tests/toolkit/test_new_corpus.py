"""A recipe for two files of one's own: written anywhere, accepted by every check, then run."""

import gzip
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tiny_translation import sentences

from ea_fairseq.commands import recipe as run_recipe
from ea_fairseq.corpus.config import load
from ea_fairseq.files import write_json
from ea_fairseq.recipes.results.listing import list_runs
from ea_fairseq.recipes.says.new_corpus import schedule
from ea_fairseq.recipes.says.recipe import load_recipe, recipe_path


@pytest.fixture
def files(tmp_path):
    """Two files of 100 pairs."""
    for lang, lines in zip(("de", "en"), zip(*sentences(100, 1), strict=True), strict=True):
        (tmp_path / f"all.{lang}").write_text("".join(f"{line}\n" for line in lines))
    return [str(tmp_path / "all.de"), str(tmp_path / "all.en")]


def new(folder, *files):
    """ea-recipe's exit code."""
    return run_recipe.main(["--new", str(folder), "--files", *map(str, files)])


def test_a_recipe_is_written_that_prepares_the_two_files(files, tmp_path, capsys):
    folder = tmp_path / "elsewhere" / "my.de-en"
    assert new(folder, *files) == 0
    shown = capsys.readouterr()
    assert re.search(rf"ea-recipe {folder} --variant ea_transformer_lite$", shown.out, re.M)
    source, target = (Path(file).read_text().splitlines() for file in files)
    for number in (1, 51, 100):
        pair = rf"^ +{number}  {source[number - 1]}\n +{target[number - 1]}$"
        assert re.search(pair, shown.out, re.M), number
    assert "warning: 100 pairs are few" in shown.err
    corpus = load(folder / "corpus.yml")
    assert corpus.languages == ("de", "en") and corpus.splits == ["train", "valid", "test"]
    assert corpus.held_out == {"valid": 5, "test": 5}
    assert [part.path for part in corpus.files["train"]] == ["../../all.{lang}"]  # both may move
    recipe = load_recipe(recipe_path(folder, "ea_transformer_lite"))
    assert recipe.corpus.resolve() == folder / "corpus.yml"
    assert_taken(folder, tmp_path)
    assert "fairseq_cli.train" in capsys.readouterr().out


def assert_taken(folder, tmp_path):
    """Every option is checked against fairseq's parsers; the place of data and runs is free."""
    command = [str(folder), "--variant", "ea_transformer_lite", "--dry-run"]
    assert run_recipe.main([*command, "--work-dir", str(tmp_path / "work")]) == 0
    assert not (tmp_path / "work").exists()


def test_one_tsv_is_enough(files, tmp_path):
    sides = [Path(file).read_text().splitlines() for file in files]
    table = tmp_path / "all.tsv"
    table.write_text("".join(f"{pair[0]}\t{pair[1]}\n" for pair in zip(*sides, strict=True)))
    two, one = tmp_path / "two" / "my.de-en", tmp_path / "one" / "my.de-en"
    assert new(two, *files) == 0 and new(one, table) == 0
    assert (one / "common.yml").read_text() == (two / "common.yml").read_text()
    (part,) = load(one / "corpus.yml").files["train"]
    assert (part.path, part.format) == ("../../all.tsv", "tsv")
    assert_taken(one, tmp_path)


@pytest.mark.parametrize("pairs", [50, 400, 1000, 6000, 29_000, 160_000, 4_500_000])
def test_the_schedule_follows_the_size_of_the_corpus(pairs):
    """Of lines with 18 subwords: the learning rate rises within a tenth of the training, which is
    long enough, and an epoch has many updates where there is text for it."""
    plan = schedule(pairs, 18 * pairs)
    assert 512 <= plan.batch <= 4096 and plan.updates == max(1, round(18 * pairs / plan.batch))
    assert plan.updates * plan.epochs >= 6000 or plan.epochs == 300
    assert plan.warmup <= max(1, plan.updates * plan.epochs / 10) + 1 and plan.warmup <= 4000
    assert plan.updates >= 35 or plan.batch == 512
    assert plan.updates <= 354 or plan.batch == 4096
    assert plan.dropout == (0.3 if pairs < 10_000 else 0.2 if pairs < 10**6 else 0.1)


def test_a_small_corpus_has_the_batches_that_were_measured_to_be_better():
    """6,000 pairs of Multi30K, of 103,000 subwords: see examples/translation/README.md."""
    assert vars(schedule(6000, 103_000)) == {
        **{"batch": 2048, "updates": 50, "epochs": 120, "patience": 10},
        **{"warmup": 600, "dropout": 0.3},
    }


def test_the_schedule_is_what_the_recipe_says(tmp_path):
    files = [tmp_path / f"many.{lang}" for lang in ("de", "en")]
    for file, word in zip(files, ("derd", "enrd"), strict=True):
        file.write_text((" ".join([word] * 16) + "\n") * 2000)
    assert new(tmp_path / "my.de-en", *files) == 0
    plan = schedule(2000, 2000 * 79 // 4)  # four characters a subword
    recipe = load_recipe(recipe_path(tmp_path / "my.de-en", "ea_transformer_lite"))
    numbers = {"max-tokens": plan.batch, "max-epoch": plan.epochs, "patience": plan.patience}
    numbers |= {"warmup-updates": plan.warmup, "dropout": plan.dropout}
    assert recipe.options("train") == recipe.options("train") | numbers
    assert plan.warmup < plan.updates * plan.epochs / 9


def test_compressed_files_are_taken_and_broken_ones_named(files, tmp_path, capsys):
    for file in files:
        subprocess.run(["gzip", file], check=True)
    compressed = [f"{file}.gz" for file in files]
    assert new(tmp_path / "my.de-en", *compressed) == 0
    assert load(tmp_path / "my.de-en" / "corpus.yml").files["train"][0].path.endswith("all.{lang}")
    capsys.readouterr()
    (tmp_path / "all.de.gz").write_bytes(b"no gzip file")
    assert new(tmp_path / "other.de-en", *compressed) == 1
    assert "all.de.gz: cannot be read" in capsys.readouterr().err
    (tmp_path / "all.en").write_text("Preparation takes this before what is compressed.\n")
    assert new(tmp_path / "other.de-en", *compressed) == 1
    assert "all.en.gz: all.en is there as well, and would be taken" in capsys.readouterr().err


#: What ea-recipe is told, in a folder with these files, and words of the refusal.
TABLE = """
--new my.de-en                               | give both
--files all.de all.en                        | give both
--new my.de-en --files all.de no.en          | no.en: no such file
--new my.de-en --files all.de short.en       | name them alike
--new my.de-en --files all.de all.de         | one file for each language
--new my.de-en --files all.en all.de         | my.en-de
--new my --files all.de all.fr               | 100 lines
--new there --files all.de all.en            | there already
--new 'a b' --files all.de all.en            | without space
--new my.de-en --files all.de all.pt-br      | .pt-br: pt-br is no language code
--new my.de-en --files few.de few.en         | few.de has 3 lines: too few to train on
--new my.de-en --files same.de same.en       | --files: de and en are the same text
--new my.de-en --files all.de all.en --seeds 2 | --seeds: --new runs nothing
--new my.de-en --files all.de all.en --set lr=1 | --set: --new runs nothing
--new my.de-en --files all.de all.en --steps train | --steps: --new runs nothing
--new my.de-en --files latin.de latin.en     | latin.de: line 2 is not UTF-8; make UTF-8 of it first
--new my.de-en --files wide.de wide.en       | wide.de: is UTF-16; make UTF-8 of it first: iconv -f
--new my.de-en --files packed.de packed.en   | packed.de: is compressed (gzip); unpack it first
--new my.de-en --files spaces.tsv            | spaces.tsv: line 1 has no tab
--new mine --files spaces.tsv                | is said by the folder's name: my.de-en
--new my.de-de --files spaces.tsv            | is said by the folder's name: my.de-en
--new my.de-en --files all.de                | give two files
--new my.de-en --files none.tsv              | no such file
--new my.de-en --files all.de all.en spaces.tsv | two files, not 3
"""


def test_files_and_folders_that_do_not_fit_are_named(files, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("there").mkdir()
    shutil.copy("all.en", "all.pt-br")
    contents = {
        "few": b"one\ntwo\nthree\n",
        "latin": "one\nzw\xf6lf\n".encode("latin-1"),
        "wide": "one\ntwo\n".encode("utf-16"),
        "packed": gzip.compress(b"one\ntwo\nthree\n"),
        "same": b"one line\n" * 100,
    }
    for name, content in contents.items():
        for lang in ("de", "en"):
            Path(f"{name}.{lang}").write_bytes(content)
    Path("short.en").write_text("one\n")
    Path("all.fr").write_text("un\n")
    Path("spaces.tsv").write_text("eins one\n")
    before = set(tmp_path.iterdir())
    for row in TABLE.strip().splitlines():
        given, words = map(str.strip, row.split("|"))
        assert run_recipe.main(shlex.split(given)) == 1
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1, row
    assert set(tmp_path.iterdir()) == before
    assert run_recipe.main([]) == 1
    assert "give a corpus" in capsys.readouterr().err


def test_the_list_shows_in_what_runs_differ(tmp_path):
    """Of any step but without effect; that others have not begun a step is no difference."""
    train = {"arch": "x", "lr": "1e-3", "clip-norm": 1, "log-interval": 9}
    generate = {"train": train, "average": None, "generate": {"beam": 5, "lenpen": 1}}
    other = train | {"clip-norm": "2.0", "log-interval": 1}
    averaged = {"average": {"num-epoch-checkpoints": 9}, "generate": {}}
    begun = [
        ("a", "train", {"seed": 1, "train": train}),
        ("b", "generate", generate | {"seed": 2}),
        ("c", "generate", generate | {"train": other}),
        ("d", "generate", generate | {"generate": {"beam": 4, "lenpen": "1.0"}}),
        ("e", "generate", generate | averaged),
        ("f", "evaluate", generate | {"evaluate": {"lowercase": True}}),
        ("g", "evaluate", generate | {"evaluate": {}, "data": "1234567"}),
        ("g", "train", {"train": train | {"max-epoch": 9}, "data": "1234567"}),  # went on
        ("h", "generate", generate | {"models": ["1", "2"]}),
    ]
    for began, (name, step, settings) in enumerate(begun):
        file = tmp_path / "runs" / "my.de-en" / name / "seed1" / "steps" / f"{step}.started.json"
        write_json(file, {"settings": settings, "began": began})
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
    runs = tmp_path / "runs" / "my.de-en"
    scored = {"scores": {"test": {"scores": [{"label": "tokenized BLEU", "score": 12.345}]}}}
    for seed in (1, 10, 2):
        train = {"arch": "x", "lr": "1e-3", "ea-alpha": 0.3}
        for name, content in (("a", train), ("b", {})):
            started = runs / name / f"seed{seed}" / "steps" / "train.started.json"
            write_json(started, {"settings": {"train": content}})
        write_json(runs / "a" / f"seed{seed}" / "results.json", scored)
    write_json(runs / "b" / "seed2" / "steps" / "train.json", {})
    (runs / "c" / "seed1").mkdir(parents=True)
    assert run_recipe.main(["--list", "--work-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    names = [f"my.de-en/{name}/seed{seed}" for name in "ab" for seed in (1, 2, 10)]
    assert [row[0] for row in rows] == [*names, "my.de-en/c/seed1"]
    assert rows[0][1:] == ["done", "x, lr 1e-3, ea-alpha 0.3", "test", "tokenized BLEU", "12.35"]
    stopped = ["stopped in train", "stopped after train", "stopped in train"]
    assert [row[1] for row in rows[3:]] == [*stopped, "not begun"]
