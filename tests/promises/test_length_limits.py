"""A search that does not end is cut at the limit of its own sentence, as fairseq cuts it alone."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from fairseq_search import built, sample
from small_folders import strong
from small_models import EOS, padded

LENGTHS = (1, 8, 3, 5, 2, 8)  # of sources, their ends not counted
SOURCES = [[*range(4, 4 + length), EOS] for length in LENGTHS]
SHORT = {"beam": 3, "max_len_a": 0.5, "max_len_b": 1}


def limits(a, b):
    return [int(a * (length + 1) + b) for length in LENGTHS]


def endless(arch):
    """A model whose sentences never end by themselves."""
    model = strong(arch)
    with torch.no_grad():
        model.decoder.output_projection.weight[EOS] -= 3
    return model


def check_same(one, other):
    assert [h["tokens"].tolist() for h in one] == [h["tokens"].tolist() for h in other]
    for mine, theirs in zip(one, other, strict=True):
        assert torch.allclose(mine["positional_scores"], theirs["positional_scores"], atol=1e-5)


@pytest.mark.parametrize("arch", ["ea_transformer_lite", "transformer"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"diverse_beam_groups": 3},
        {"diversity_rate": 0.5},
        {"no_repeat_ngram_size": 2},
        {"print_alignment": "hard"},
        {"max_len_a": 0.25, "max_len_b": 0, "min_len": 0},  # where fewer end than the beam has
    ],
    ids=str,
)
@torch.no_grad()
def test_together_as_fairseq_alone(arch, settings):
    generator = built(endless(arch), **{**SHORT, **settings})
    together = generator.generate([], sample(SOURCES))
    expected = limits(generator.max_len_a, generator.max_len_b)
    assert [len(found[0]["tokens"]) - 1 for found in together] == expected
    for source, found in zip(SOURCES, together, strict=True):
        (alone,) = SequenceGenerator._generate.__wrapped__(generator, sample([source]))
        check_same(found, alone)
        for hypothesis in found if "print_alignment" in settings else []:
            aligned = [target for _, target in hypothesis["alignment"]]
            assert aligned == list(range(len(hypothesis["tokens"]) - 1))


def test_prefixes_are_never_cut_and_the_least_length_is_that_of_each():
    generator = built(strong("ea_transformer_lite"), **SHORT, min_len=3)
    prefixes = [[5, 6, 7, 8, 9], [5], [6, 7], [], [4, 4, 4, 4, 4, 4], [9]]
    forced = padded([torch.tensor(prefix, dtype=torch.long) for prefix in prefixes])
    together = generator.generate([], sample(SOURCES), prefix_tokens=forced)
    for source, prefix, limit, found in zip(
        SOURCES, prefixes, limits(0.5, 1), together, strict=True
    ):
        forced = torch.tensor([prefix], dtype=torch.long)
        (alone,) = generator.generate([], sample([source]), prefix_tokens=forced)
        check_same(found, alone)
        for hypothesis in found:
            *written, end = hypothesis["tokens"].tolist()
            assert written[: len(prefix)] == prefix and end == EOS
            assert 3 <= len(written) <= max(limit, 3, len(prefix))
