"""Sampling goes on where it has no choice, however improbable that is, with the model's scores."""

import pytest
import torch
from fairseq_search import built, sample
from small_folders import strong
from small_models import EOS

SOURCES = [[5, 9, 7, EOS], [6, EOS], [4, 4, 8, 12, EOS]]
TEMPERATURE = 0.01


@torch.no_grad()
def log_probabilities(model, source, tokens):
    """Of each of a translation's tokens at the temperature, from one full pass."""
    read = torch.tensor([[EOS, *tokens[:-1]]])
    logits = model(torch.tensor([source]), torch.tensor([len(source)]), read)[0][0]
    return (logits / TEMPERATURE).log_softmax(dim=1)[range(len(tokens)), tokens].tolist()


@pytest.mark.parametrize("among", [{}, {"sampling_topk": 5}, {"sampling_topp": 0.9}], ids=str)
@pytest.mark.parametrize("forced", ["the limit", "a prefix", "the least length"])
def test_what_is_all_but_impossible_is_drawn_where_there_is_nothing_else(forced, among):
    """A probability of 0 in float32 ended in a traceback."""
    model = strong("ea_transformer_lite")
    with torch.no_grad():  # its sentences never end by themselves, or all but at once
        model.decoder.output_projection.weight[EOS] += 4 if forced == "the least length" else -4
    settings = {"beam": 3, "nbest": 3, "min_len": 3, "max_len_b": 6, **among}
    generator = built(model, sampling=True, temperature=TEMPERATURE, **settings)
    prefixes = torch.full((len(SOURCES), 2), 13) if forced == "a prefix" else None
    torch.manual_seed(1)
    found = generator.generate([], sample(SOURCES), prefix_tokens=prefixes)
    improbable = 0
    for source, hypotheses in zip(SOURCES, found, strict=True):
        assert len(hypotheses) == 3
        for hypothesis in hypotheses:
            tokens = hypothesis["tokens"].tolist()
            assert 3 <= len(tokens) - 1 <= 6 and tokens[-1] == EOS
            assert prefixes is None or tokens[:2] == [13, 13]
            expected = log_probabilities(model, source, tokens)
            scores = hypothesis["positional_scores"].tolist()
            assert scores == pytest.approx(expected, rel=1e-3, abs=1e-2)
            improbable += sum(score < -110 for score in scores)
    assert improbable > 0  # the smallest number above 0 of float32 has the logarithm -103
