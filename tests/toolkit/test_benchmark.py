"""The benchmark: fair order, right arithmetic, figures of real work."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import benchmark
import benchmark_variants
import pytest
import torch
from benchmarks import huggingface, isa, models
from benchmarks.models import PAD, Setting, Training, batch
from benchmarks.timing import Comparison, alternate
from fairseq.models import FairseqEncoderDecoderModel
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel

from ea_fairseq.attention.variants.evolving import EvolvingLogits
from ea_fairseq.kernels.cpp.build import compiler

SCRIPTS = Path(benchmark.__file__).parent
SMALL = Setting(vocabulary=50, threads=1)
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def test_models_work_alternately_after_a_warm_up():
    calls = []
    work = [partial(calls.append, name) for name in "ABC"]
    times = alternate(*work, rounds=2, setting=SMALL)
    assert "".join(calls) == "ABC" + "ABCCBA" + "ABCCBA"
    assert len(times.baseline) == len(times.other) == len(times.alone) == 4
    assert not alternate(*work[:2], rounds=1, setting=SMALL).loses()


def test_ratio_is_of_medians_and_spread_of_rounds():
    times = Comparison([1.0, 3.0, 2.0, 2.0], [2.0, 2.0, 6.0, 4.0])
    assert times.medians() == (2.0, 3.0)
    assert times.ratio() == 1.5
    assert times.spread() == (1.0, 2.5)


@pytest.mark.parametrize(
    "other, alone, loses",
    [
        ([2, 2, 2, 2], [1, 1, 1, 1], True),
        ([2, 2, 2, 2], [3, 3, 3, 3], False),
        ([2, 2, 2, 9], [1, 1, 9, 1], True),  # disturbed, one of each
        ([1, 2, 1, 2], [1, 1, 2, 2], False),  # within what times vary
        ([2, 2], [1, 2], False),
    ],
)
def test_torch_alone_wins_only_by_more_than_times_vary(other, alone, loses):
    assert Comparison([1, 1, 1, 1], other, alone).loses() == loses


def test_compiled_slower_than_torch_is_an_error(capsys):
    row = {"what": "a step", "unit": "ms", "other": 2.0, "alone": 1.0, "loses_to_torch": True}
    assert benchmark.print_losses([row, {**row, "loses_to_torch": False}, {"unit": "MiB"}])
    error = capsys.readouterr().err
    assert error == "error: a step: compiled is slower: 2 ms, torch alone 1 ms\n"
    assert not benchmark.print_losses([])


def test_all_libraries_are_limited_before_they_are_loaded(tmp_path):
    """In a process of its own, which starts itself again."""
    script = tmp_path / "program.py"
    script.write_text(
        "import os, sys\n"
        f"sys.path[:0] = [{str(SCRIPTS)!r}]\n"
        "from benchmarks import isa\n"
        "assert 'torch' not in sys.modules\n"
        "isa.restart_limited('avx2', sys.argv[1:])\n"
        "import torch\n"
        "print(torch.backends.cpu.get_cpu_capability(), sys.argv[1:], flush=True)\n"
        "assert all(os.environ[n] == v for n, v in isa.LIMITS['avx2'].items())\n"
    )
    unlimited = {k: v for k, v in os.environ.items() if k not in isa.LIMITS["avx2"]}
    done = subprocess.run(
        [sys.executable, script, "a b"], capture_output=True, text=True, check=True, env=unlimited
    )
    capability = torch.backends.cpu.get_cpu_capability()
    expected = "AVX2" if capability == "AVX512" else capability
    assert done.stdout == f"{expected} ['a b']\n"


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


def test_writes_table_and_json(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(benchmark, "LENGTHS", (4,))
    monkeypatch.setattr(models, "batch", lambda length, _, setting: batch(length, 64, setting))
    path = tmp_path / "figures.json"
    command = "length --rounds 1 --threads 1 --vocabulary 20 --json".split()
    threads = torch.get_num_threads()
    try:
        code = benchmark.main([*command, str(path)])
    finally:
        torch.set_num_threads(threads)
    assert "| training step, length 4 |" in capsys.readouterr().out
    report = json.loads(path.read_text())
    (row,) = report["rows"]
    assert row["ratio"] == pytest.approx(row["other"] / row["baseline"])
    assert row["alone"] > 0 and code == row["loses_to_torch"]  # as it may beside other programs
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
        row = {"what": "small", "unit": "ms", "baseline": 1, "other": 2, "alone": 3, "ratio": 2}
        return [row]

    monkeypatch.setattr(benchmark, "SUITES", {"large": large, "small": small})
    assert benchmark.main(["--threads", "1", "--json", str(path)]) == 1
    assert [row["what"] for row in json.loads(path.read_text())["rows"]] == ["small"]
    assert "error: large: too large\n" in capsys.readouterr().err


def test_torch_compile_is_compared_with_what_it_compiles_and_with_ours(
    monkeypatch, tmp_path, capsys
):
    """Without compiling, which takes a minute: what is compiled is the plain path."""
    taken, way = [], EvolvingLogits._backend

    def noted(*args):
        taken.append(way(*args))
        return taken[-1]

    monkeypatch.setattr(EvolvingLogits, "_backend", noted)
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


def test_models_of_runs_are_measured_with_their_options(monkeypatch, tmp_path):
    monkeypatch.setattr(models, "Setting", lambda threads: SMALL)
    for name in ("suite_train", "suite_decode"):
        monkeypatch.setattr(
            benchmark_variants,
            name,
            lambda archs, setting, _: [{"ratio": models.build(archs[1], setting)[0].count}],
        )
    counted = property(lambda model: float(sum(p.numel() for p in model.parameters())))
    monkeypatch.setattr(FairseqEncoderDecoderModel, "count", counted, raising=False)
    run = tmp_path / "runs" / "wide" / "seed1"
    run.mkdir(parents=True)
    train = {"arch": "conv_transformer_lite", "lr": 1, "encoder-ffn-embed-dim": 340}
    train |= {"share-decoder-input-output-embed": True, "ea-branch": None}
    (run / "results.json").write_text(json.dumps({"settings": {"train": train}}))
    out = tmp_path / "times.json"
    options = ["--systems", str(tmp_path / "runs"), "--json", str(out), "--threads", "1"]
    assert benchmark_variants.main(options) == 0
    plain = models.build("conv_transformer_lite", SMALL)[0].count
    units = (340 - 160) * (2 * 160 + 1) * 6
    assert json.loads(out.read_text()) == {
        "wide": {"training": plain + units, "decoding": plain + units}
    }
    assert benchmark_variants.main(["--systems", str(tmp_path / "typo")]) == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("speed", "speed: no such suite; choices: train, length, memory, decode, growth"),
        ("--suite speed", "speed: no such suite; choices: train, length, memory, decode"),
        ("--rounds 0", "--rounds 0 is too small"),
        ("--profile --json x", "--json x: --profile prints alone; leave it out"),
        ("lm --inductor", "lm: --inductor has no suites; leave it out"),
        ("--arch lstm", "--arch lstm: choose from "),
        ("--arch nonsense --baseline transformer train", "nonsense: no such"),
        pytest.param("--device cuda", "--device cuda: torch sees no GPU", marks=NO_GPU),
    ],
)
def test_wrong_options_are_named(arguments, message, capsys):
    try:
        assert benchmark.main(arguments.split()) != 0
    except SystemExit as stop:
        assert stop.code != 0
    assert message in capsys.readouterr().err


def test_added_parameters_are_those_of_the_convolutions():
    assert huggingface.added_parameters(huggingface.SIZES["BERT-Base"]) == 12 * 1308
    assert huggingface.added_parameters(huggingface.SIZES["T5-Base"]) == 36 * 1308


def test_multiplications_are_those_that_torch_counts():
    config = BertConfig(
        **dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2),
        **dict(intermediate_size=24, vocab_size=30),
    )
    make = partial(BertModel, config, add_pooling_layer=False)
    size = huggingface.Size(make, {"encoder": 2}, *(2, 16, ("", "")))
    model = size.make()
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 7, dtype=torch.long))
    plain, added = huggingface.multiplications(size, 7)
    assert counter.get_total_flops() == 2 * plain
    assert added == 2 * 49 * (2 * 2 * 9)  # layers, pixels, weights


def test_models_of_transformers_are_compared_and_every_size_of_the_papers_is_printed(capsys):
    options = "hf --layers 1 --tokens 4 --batch 1 --rounds 1"
    assert benchmark.main(options.split()) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed] == ["training", "inference"]
    assert all("times eager" in line for line in printed)
    assert benchmark.main(["hf", "--sizes"]) == 0
    printed = capsys.readouterr().out
    assert all(f"| {name} |" in printed for name in huggingface.SIZES)
    assert "109.5M | 15,696" in printed and "335.1M | 55,680" in printed
