"""The benchmark of transformers' models: what it counts."""

import torch
from benchmarks import huggingface
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel


def test_added_parameters_are_those_of_the_convolutions():
    assert huggingface.added_parameters(huggingface.SIZES["BERT-Base"]) == 12 * 1308
    assert huggingface.added_parameters(huggingface.SIZES["T5-Base"]) == 36 * 1308


def test_multiplications_are_those_that_torch_counts():
    size = huggingface.Size(
        lambda: BertModel(
            BertConfig(
                **dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2),
                **dict(intermediate_size=24, vocab_size=30),
            ),
            add_pooling_layer=False,
        ),
        {"encoder": 2},
        *(2, 16, ("", "")),
    )
    model = size.make()
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 7, dtype=torch.long))
    plain, added = huggingface.multiplications(size, 7)
    assert counter.get_total_flops() == 2 * plain
    assert added == 2 * 49 * (2 * 2 * 9)  # layers, pixels, weights


def test_times_are_compared_system_by_system(capsys):
    options = ["--layers", "1", "--tokens", "4", "--batch", "1", "--rounds", "1"]
    assert huggingface.main(options) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed] == ["training", "inference"]
    assert all("times eager" in line for line in printed)


def test_every_size_of_the_papers_is_printed(capsys):
    assert huggingface.main(["--sizes"]) == 0
    printed = capsys.readouterr().out
    assert all(f"| {name} |" in printed for name in huggingface.SIZES)
    assert "109.5M | 15,696" in printed and "335.1M | 55,680" in printed
