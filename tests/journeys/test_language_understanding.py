"""The example of language understanding: pre-training, GLUE, comparisons, rationales."""

import gzip
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "language_understanding"))

import compare_systems  # noqa: E402
import glue  # noqa: E402
import measures  # noqa: E402
import pretrain  # noqa: E402
import tasks  # noqa: E402
from transformers import (  # noqa: E402
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
)

from ea_fairseq.errors import UserError  # noqa: E402
from ea_fairseq.hf import evolve, load  # noqa: E402

GOOD = ["the cat saw a dog", "a dog ran", "the bird sang", "a cat slept", "the dog saw the cat"]
BAD = ["cat the saw dog a", "ran dog a", "sang the bird a", "slept a cat the", "saw the the cat"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """GLUE's layout with a few sentences, and a model pre-trained on them."""
    folder = tmp_path_factory.mktemp("understanding")
    rows = [f"x\t{label}\t\t{text}" for label, texts in ((1, GOOD), (0, BAD)) for text in texts]
    (folder / "CoLA").mkdir()
    (folder / "CoLA" / "train.tsv").write_text("\n".join(rows * 3) + "\n")
    with gzip.open(folder / "CoLA" / "dev.tsv.gz", "wt") as file:
        file.write("\n".join(rows) + "\n")
    (folder / "RTE").mkdir()
    pairs = "index\tsentence1\tsentence2\tlabel\n0\tone\ttwo\tentailment\n"
    (folder / "RTE" / "train.tsv").write_text(pairs)
    (folder / "text.txt").write_text("\n".join(GOOD * 4) + "\n")
    sizes = "--vocabulary 60 --layers 2 --width 8 --heads 2 --positions 32 --block 16".split()
    made = [str(folder / "bert"), "--text", str(folder / "text.txt"), "--glue"]
    assert pretrain.main([*made, str(folder / "CoLA"), *sizes, *"--steps 3 --batch 4".split()]) == 0
    return folder


def run_glue(data, output, *more, task="CoLA", model=None):
    base = [task, str(model or data / "bert"), "--data", str(data), "--output", str(output)]
    return glue.main([*base, "--epochs", "1", "--max-length", "16", *more])


def test_plain_and_evolved_are_trained_and_compared(data, tmp_path, capsys):
    evolving = ["--variant", "evolving", "--option", "alpha=0.2", "--option", "beta=0.2"]
    for more in ([], [*evolving, "--save"]):
        assert run_glue(data, tmp_path, "--seeds", "1", "2", *more) == 0
    systems = [tmp_path / "CoLA" / name for name in ("plain", "evolving-alpha=0.2-beta=0.2")]
    results = json.loads((systems[1] / "seed2" / "results.json").read_text())
    plain = json.loads((systems[0] / "seed2" / "results.json").read_text())
    assert len(results["predictions"]["dev"]) == len(results["labels"]["dev"]) == 10
    assert results["metrics"]["dev"]["matthews"] == pytest.approx(
        measures.score("matthews", results["labels"]["dev"], results["predictions"]["dev"])
    )
    saved = load(AutoModelForSequenceClassification, systems[1] / "seed2" / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(systems[1] / "seed2" / "model")
    encoded = tokenizer(GOOD + BAD, padding=True, return_tensors="pt")
    assert saved(**encoded).logits.argmax(-1).tolist() == results["predictions"]["dev"]
    # Two layers, a 3 x 3 convolution over two heads each.
    assert results["parameters"] - plain["parameters"] == 2 * (2 * 2 * 9 + 2)
    capsys.readouterr()
    assert compare_systems.main([*map(str, systems), "--samples", "50"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4 and "plain, dev, matthews | 2 |" in printed[2]
    assert compare_systems.main([str(systems[0]), str(systems[0])]) == 1  # one replaced the other
    assert "two systems have one name" in capsys.readouterr().err
    # What is there is not trained again, and other settings do not mix with it.
    before = (systems[0] / "seed1" / "results.json").stat().st_mtime_ns
    assert run_glue(data, tmp_path, "--seeds", "1") == 0
    assert (systems[0] / "seed1" / "results.json").stat().st_mtime_ns == before
    assert run_glue(data, tmp_path, "--seeds", "1", "--batch", "4") == 1
    assert "of another setting (batch 8, not 4)" in capsys.readouterr().err
    damaged = systems[0] / "seed1" / "results.json"
    damaged.write_text("{")
    assert run_glue(data, tmp_path, "--seeds", "1") == 1
    assert compare_systems.main([*map(str, systems)]) == 1
    assert capsys.readouterr().err.count(f"error: {damaged}: not JSON") == 2


def test_the_grid_chooses_on_a_part_of_the_training_set(data, tmp_path, monkeypatch):
    scores = iter([10.0, 30.0, 20.0])
    seen = []

    def train(task, train, devs, args, setting, seed, folder):
        seen.append((len(train), {name: len(examples) for name, examples in devs.items()}))
        metrics = {"held out": {"matthews": next(scores)}} if "held out" in devs else {"dev": {}}
        return {"metrics": metrics}

    monkeypatch.setattr(glue, "fine_tune", train)
    monkeypatch.setattr(glue, "GRID", {"learning_rate": (1e-3, 1e-4, 1e-5)})
    assert run_glue(data, tmp_path, "--grid", "--seeds", "7") == 0
    assert seen == [(27, {"held out": 3})] * 3 + [(30, {"dev": 10})]
    chosen = json.loads((tmp_path / "CoLA" / "plain" / "seed7" / "results.json").read_text())
    assert chosen["learning_rate"] == 1e-4


@pytest.mark.parametrize("variant, count", [("evolving", 162), ("residual", 18), (None, 18)])
def test_all_systems_try_the_same_settings_and_evolving_its_weights_too(variant, count):
    tried = list(glue.candidates(variant, {"options": {}}))
    assert len(tried) == count and {one["batch"] for one in tried} == {8, 16}
    assert all(("alpha" in one["options"]) == (variant == "evolving") for one in tried)


@pytest.mark.parametrize(
    "change, message",
    [
        (["SST2"], "task SST2: choose one of CoLA, SST-2"),
        (["RTE"], r"RTE: no dev\.tsv"),
        (["CoLA", "--option", "alpha=0.1"], "name one with --variant"),
        (["CoLA", "--variant", "evolving", "--option", "alfa=0.1"], "alfa is no option"),
        (["CoLA", "--max-length", "99"], "the model has 32 positions"),
    ],
)
def test_bad_input_is_one_line(data, tmp_path, capsys, change, message):
    task, *more = change
    assert run_glue(data, tmp_path, "--seeds", "1", *more, task=task) == 1
    *_, error = capsys.readouterr().err.splitlines()  # above: transformers on a head that is new
    assert error.startswith("error: ") and re.search(message, error), error


def test_folders_without_a_model_are_refused(data, tmp_path, capsys):
    folder = tmp_path / "model"
    folder.mkdir()
    assert run_glue(data, tmp_path, model=folder) == 1
    assert "not a folder of a model" in capsys.readouterr().err
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(data / "bert" / name, folder)
    assert run_glue(data, tmp_path, model=folder) == 1
    assert "no weights" in capsys.readouterr().err


def test_files_of_tasks_are_read_as_published(tmp_path):
    def read(task, text, name="train"):
        (tmp_path / f"{name}.tsv").write_text(text)
        return tasks.read_examples(tmp_path, tasks.task_of(task), name)

    film, dull = tasks.Example(("fine film",), 1), tasks.Example(("dull film",), 0)
    assert read("sst-2", "sentence\tlabel\nfine film\t1\n") == [film]
    assert read("sst-2", "label\tcontent\n0\tdull film\n", "dev") == [dull]
    pair = "a\tsentence1\tsentence2\tscore\n0\tone\ttwo\t3.5\n"
    assert read("STS-B", pair) == [tasks.Example(("one", "two"), 3.5)]
    with pytest.raises(UserError, match="no column #1 String; it has a, sentence1"):
        read("MRPC", pair)
    with pytest.raises(UserError, match=r"train\.tsv, line 2: label 'yes', SST-2 has 0, 1"):
        read("SST-2", "sentence\tlabel\nfine film\tyes\n")


def test_differences_are_of_means_over_seeds():
    labels = [0, 1] * 30
    right, wrong = labels, [1 - label for label in labels]
    half = labels[:30] + wrong[30:]
    found = measures.difference("accuracy", labels, [half, half], [right, right], samples=200)
    assert found.observed == 50 and found.interval[0] > 0
    same = measures.difference("accuracy", labels, [half, right], [half, right], samples=200)
    assert same.observed == 0 and same.interval[0] < 0 < same.interval[1]
    assert measures.score("matthews", labels, [1] * 60) == 0
    assert measures.score("pearson", [1.0, 2.0, 3.0], [2.0, 4.0, 6.0]) == pytest.approx(100)


@pytest.mark.thorough
@torch.no_grad()
def test_a_folder_of_bert_s_real_size_evolves(tmp_path):
    model = BertForSequenceClassification(BertConfig())
    model.save_pretrained(tmp_path)
    again = BertForSequenceClassification.from_pretrained(tmp_path)
    evolved = evolve(again, alpha=0.1, beta=0.1)
    assert evolved.num_parameters() - model.num_parameters() == 12 * 1308
