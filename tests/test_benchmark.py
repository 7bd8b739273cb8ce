"""The benchmark: fair order, right arithmetic, figures of real work."""

import json
from pathlib import Path

import benchmark
import benchmark_variants
import pytest
import torch
from benchmarks import models
from benchmarks.memory import peak_memory
from benchmarks.models import PAD, Decoding, Setting, Training, batch
from benchmarks.timing import Comparison, alternate

from ea_fairseq.kernels.build import compiler
from ea_fairseq.variants import architectures
from ea_fairseq.variants.evolving import EvolvingLogits

SMALL = Setting(vocabulary=50, threads=1)


def test_models_work_alternately_after_a_warm_up():
    calls = []
    times = alternate(lambda: calls.append("A"), lambda: calls.append("B"), rounds=2)
    assert "".join(calls) == "AB" + "ABBA" + "ABBA"
    assert len(times.baseline) == len(times.other) == 4


def test_ratio_is_of_medians_and_spread_of_rounds():
    times = Comparison([1.0, 3.0, 2.0, 2.0], [2.0, 2.0, 6.0, 4.0])
    assert times.medians() == (2.0, 3.0)
    assert times.ratio() == 1.5
    assert times.spread() == (1.0, 2.5)


def test_batches_have_padding_where_fairseq_puts_it():
    sample = batch(24, 480, SMALL)
    source, target = sample["net_input"]["src_tokens"], sample["target"]
    assert source.shape == target.shape == (20, 24)
    assert (source[:, -1] != PAD).all() and (target[:, 0] != PAD).all()
    assert source[:, 0].eq(PAD).any() and target[:, -1].eq(PAD).any()
    assert (source[0] != PAD).all() and (target[0] != PAD).all()
    assert sample["ntokens"] == int((target != PAD).sum())


def test_training_learns_and_a_seed_gives_the_same_losses():
    sample = batch(6, 60, SMALL)

    def losses(arch):
        training = Training(arch, SMALL)
        torch.manual_seed(1)
        return [training.step(sample) for _ in range(8)]

    first = losses("ea_transformer_lite")
    assert first[-1] < first[0]
    assert losses("ea_transformer_lite") == first
    assert losses("transformer_lite") != first


def test_decoding_takes_the_steps_it_is_asked_for():
    sample = batch(5, 15, SMALL)
    for arch in ("transformer_lite", "ea_transformer_lite"):
        found = Decoding(arch, SMALL, beam=2).search(sample, steps=4)
        assert [len(tokens) for tokens in found] == [5, 5, 5]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells")
@pytest.mark.slow
def test_peak_memory_grows_with_the_work():
    small, large = (peak_memory("transformer_lite", 8, tokens, SMALL) for tokens in (64, 4096))
    # 18 layers of work keep several activations of 160 numbers per token for the gradient.
    assert large - small > 4000 * 160 * 4 * 18


def test_writes_table_and_json(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(benchmark, "LENGTHS", (4,))
    path = tmp_path / "figures.json"
    command = [
        "length",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--vocabulary",
        "20",
        "--json",
        str(path),
    ]
    threads = torch.get_num_threads()
    try:
        assert benchmark.main(command) == 0
    finally:
        torch.set_num_threads(threads)
    assert "| training step, length 4 |" in capsys.readouterr().out
    report = json.loads(path.read_text())
    (row,) = report["rows"]
    assert row["ratio"] == pytest.approx(row["other"] / row["baseline"])
    assert report["environment"]["threads"] == 1 and report["environment"]["torch"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_suite_without_enough_memory_stops_no_other_and_each_is_kept(
    monkeypatch, tmp_path, capsys
):
    path = tmp_path / "figures.json"

    def large(archs, setting, rounds):
        raise torch.OutOfMemoryError("too large\nof many lines")

    def small(archs, setting, rounds):
        assert json.loads(path.read_text())["rows"] == []
        return [{"what": "small", "unit": "ms", "baseline": 1, "other": 2, "ratio": 2}]

    monkeypatch.setattr(benchmark, "SUITES", {"large": large, "small": small})
    assert benchmark.main(["--threads", "1", "--json", str(path)]) == 1
    assert [row["what"] for row in json.loads(path.read_text())["rows"]] == ["small"]
    assert "error: large: too large\n" in capsys.readouterr().err


def test_torch_compile_is_compared_with_what_it_compiles_and_with_ours(
    monkeypatch, tmp_path, capsys
):
    """Without compiling, which takes a minute: what is compiled is the plain path."""
    taken, way = [], EvolvingLogits._way

    def noted(*args):
        taken.append(way(*args))
        return taken[-1]

    monkeypatch.setattr(EvolvingLogits, "_way", noted)
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(benchmark, "LENGTHS", (2,))
    path = tmp_path / "figures.json"
    arguments = ["--inductor", "--threads", "1", "--rounds", "1", "--json", str(path)]
    assert benchmark.main(arguments) == 0
    ours = "torch" if compiler() is None else "cpp"
    assert taken == ["torch", "torch", "torch", "torch", ours, ours, "torch", "torch", ours] * 3
    printed = capsys.readouterr().out
    assert "| encoder-decoder, 2 |" in printed and "| torch alone, ms | inductor, ms |" in printed
    assert [row["attention"] for row in json.loads(path.read_text())["rows"]] == [
        *("encoder", "decoder", "encoder-decoder")
    ]
    assert benchmark.main(["--inductor", "--arch", "realformer_lite", "--threads", "1"]) == 1
    assert "inductor: knows ea_transformer_lite" in capsys.readouterr().err


def test_every_variant_has_its_row(monkeypatch, tmp_path):
    monkeypatch.setattr(models, "Setting", lambda threads: SMALL)
    for name in ("suite_train", "suite_decode"):
        monkeypatch.setattr(benchmark_variants, name, lambda archs, *_: [{"ratio": len(archs[1])}])
    path = tmp_path / "table.md"
    assert benchmark_variants.main(["--markdown", str(path), "--threads", "1"]) == 0
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in path.read_text().split("\n")
    ]
    lite = [name for name, (_, arch) in architectures().items() if arch.size == "lite"]
    assert [row[0] for row in rows[2:] if row] == ["transformer_lite", *lite]
    assert rows[2][3:] == ["1.00", "1.00"] and rows[3][3] == f"{len(lite[0]):.2f}"


@pytest.mark.slow
def test_language_models_are_measured_beside_the_plain_one(monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "BLOCKS", (8,))
    monkeypatch.setattr(benchmark, "WRITTEN", 3)
    assert benchmark.main(["lm", "--rounds", "1", "--threads", "1", "--vocabulary", "20"]) == 0
    text = capsys.readouterr().out
    for what in ("training step, blocks of 8", "peak memory", "20 steps after 3 tokens"):
        assert f"| language model, {what}" in text or f"| language model, {what} of a step" in text
    assert benchmark.main(["lm", "--arch", "pa_transformer_lite", "--rounds", "1"]) == 1
    error = capsys.readouterr().err
    assert "no language model: choose from" in error and " bet_transformer_lite," in error


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["speed"], "speed: no such suite; choices: train, length, memory, decode, growth"),
        (["--suite", "speed"], "speed: no such suite; choices: train, length, memory, decode"),
        (["--rounds", "0"], "--rounds 0 is too small"),
        (["--traffic", "--dtype", "bfloat16"], "--dtype bfloat16: the tables of --traffic have"),
        (["--profile", "--json", "x"], "--json x: --traffic and --profile print alone; leave it"),
        (["lm", "--traffic"], "lm: --traffic and --inductor have no suites; leave it out"),
        (["--arch", "lstm"], "--arch lstm: choose from "),
        (["--device", "cuda"], "--device cuda: torch sees no GPU"),
        (
            ["--arch", "nonsense", "--baseline", "transformer", "train"],
            "nonsense: no such",
        ),
    ],
)
def test_wrong_options_are_named(arguments, message, capsys):
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    try:
        assert benchmark.main(arguments) != 0
    except SystemExit as stop:
        assert stop.code != 0
    assert message in capsys.readouterr().err


def test_the_suite_translate_is_the_benchmark_of_translation(capsys):
    arguments = ["--suite", "translate", "model", "--input", "test.de", "--rounds", "0"]
    assert benchmark.main(arguments) == 1
    assert capsys.readouterr().err == (
        "benchmark_translation.py: error: --rounds 0: give 1 or more\n"
    )
