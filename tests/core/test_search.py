"""Beam search: the hypotheses of fairseq's, for 1,000 sentences and every setting."""

import random
import re
from collections import Counter

import pytest
import torch
from fairseq_commands import binarize, generation, run
from fairseq_search import generator, sample
from small_folders import WORDS as NAMES
from small_folders import strong, write_folder
from small_models import EOS, TINY, dictionary

from ea_fairseq import Translator
from ea_fairseq.attention import cached_heads
from ea_fairseq.errors import UserError
from ea_fairseq.inference.build_model import build_model
from ea_fairseq.inference.decoders import TorchDecoder
from ea_fairseq.inference.fairseq_checkpoint import write_fairseq_folder
from ea_fairseq.inference.model_folder import Search, read_model_folder
from ea_fairseq.inference.search import BeamSearch

WORDS = dictionary()
SETTINGS = {
    "beam 5": Search(max_len_b=12),
    "beam 1": Search(beam=1, max_len_b=12),
    "beam 3, long": Search(beam=3, lenpen=1.5, max_len_b=12),
    "beam 4, short": Search(beam=4, lenpen=-0.3, max_len_b=12),
    "not normalized": Search(unnormalized=True, max_len_b=12),
    "no word": Search(min_len=0, max_len_b=0),
    "from 4 tokens": Search(min_len=4, max_len_b=9),
    "without unknown": Search(unkpen=2.0, max_len_b=12),
    "with unknown": Search(unkpen=-3.0, max_len_b=12),
    "beam over the dictionary": Search(beam=40, max_len_b=4),
    "a limit by the length of the source": Search(max_len_a=0.5, max_len_b=2),
}


def sources(count, seed, most=9):
    draw = random.Random(seed)
    return [
        [*(draw.randrange(4, len(WORDS)) for _ in range(draw.randint(1, most))), EOS]
        for _ in range(count)
    ]


def of_fairseq(models, batch, search):
    """What fairseq-generate finds."""
    return generator(models, WORDS, search).generate(models, sample(batch))


def check(models, batch, search):
    """On torch, and compiled where that can be."""
    expected = of_fairseq(models, batch, search)
    owner = BeamSearch(models, WORDS)
    for compiled in {owner.compiled, None}:
        owner.compiled = compiled
        check_hypotheses(batch, owner(batch, search, need_attention=True), expected)


def check_hypotheses(batch, found, expected):
    for source, ours, theirs in zip(batch, found, expected, strict=True):
        assert len(ours) == len(theirs) > 0
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.tokens == other["tokens"].tolist()
            assert mine.score == pytest.approx(other["score"].item(), rel=2e-6, abs=2e-5)
            scores = other["positional_scores"].tolist()
            assert mine.token_scores == pytest.approx(scores, abs=1e-4)
            attention = other["attention"].t()[:, -len(source) :]
            assert torch.allclose(mine.attention, attention, atol=1e-5)


@pytest.mark.parametrize("search", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("arch", ["ea_transformer_lite", "transformer_lite"])
def test_every_setting_gives_the_hypotheses_of_fairseq(arch, search):
    check([strong(arch)], sources(30, seed=1), search)


def test_a_reorder_is_worked_out_once_for_all_attentions(monkeypatch):
    calls = Counter()

    def count(where, name):
        work = getattr(where, name)

        def counted(*args):
            calls[name] += 1
            return work(*args)

        monkeypatch.setattr(where, name, counted)

    count(cached_heads, "_share")
    count(TorchDecoder, "reorder")
    owner = BeamSearch([strong("ea_transformer_lite")], WORDS)
    owner.compiled = None
    owner(sources(5, seed=1), Search(max_len_b=12))
    assert calls["_share"] == calls["reorder"] > 5


def test_no_limit_is_below_the_shortest_translation_that_is_asked_for():
    """Such a search would find nothing; fairseq's asserts."""
    owner = BeamSearch([strong("ea_transformer_lite")], WORDS)
    short = [source for source in sources(30, seed=6) if len(source) < 10]
    found = owner(short, Search(max_len_a=0.5, max_len_b=0, min_len=4))
    assert short and found == owner(short, Search(max_len_b=4, min_len=4))
    with pytest.raises(UserError, match="min_len is 5000: the model writes .* tokens at most"):
        owner(short, Search(max_len_b=6000, min_len=5000))


def test_an_ensemble():
    models = [strong("ea_transformer_lite", 1), strong("transformer_lite", 2)]
    check(models, sources(40, seed=3), Search(max_len_b=12))


def test_an_ensemble_writes_no_more_than_each_of_its_models_can():
    lengths = 30, 7
    models = [
        strong("ea_transformer_lite", seed, max_target_positions=length)
        for seed, length in enumerate(lengths, start=1)
    ]
    batch = sources(20, seed=3)
    for order in (models, models[::-1]):
        check(order, batch, Search(max_len_b=20))
        found = [h for best in BeamSearch(order, WORDS)(batch, Search(max_len_b=20)) for h in best]
        assert max(len(h.tokens) for h in found) == 7 and any(h.cut for h in found)


SMALL = {"encoder_embed_dim": 16, "decoder_embed_dim": 16, "decoder_out_embed_dim": 16}
OTHERS = {
    "fconv": {**SMALL, "encoder_layers": "[(16, 3)] * 2", "decoder_layers": "[(16, 3)] * 2"},
    "lstm": {**SMALL, "encoder_layers": 1, "decoder_layers": 1, "decoder_hidden_size": 16},
    "transformer": {**TINY, "adaptive_softmax_cutoff": "8,12", "decoder_layers": 1},
}


@pytest.mark.parametrize("arch", OTHERS)
def test_other_architectures_of_fairseq(arch):
    """fairseq's LSTM moves the padding of its sources to the right: what a word of the translation
    attends to is the same alone and in a batch."""
    torch.manual_seed(3)
    most = {"max_source_positions": 20, "max_target_positions": 20}
    model = build_model(arch, OTHERS[arch] | most, (WORDS, WORDS)).eval()
    batch = sorted(sources(12, seed=4), key=len, reverse=True)  # what fairseq's LSTM needs
    assert len({len(source) for source in batch}) > 3
    search, owner = Search(beam=3, max_len_b=8), BeamSearch([model], WORDS)
    together = owner(batch, search, need_attention=True)
    for ours, theirs in zip(together, of_fairseq([model], batch, search), strict=True):
        assert [h.tokens for h in ours] == [h["tokens"].tolist() for h in theirs]
    for source, found in zip(batch, together, strict=True):
        (alone,) = owner([source], search, need_attention=True)
        for mine, other in zip(found, alone, strict=True):
            assert mine.attention.shape == (len(mine.tokens), len(source))
            assert torch.allclose(mine.attention, other.attention, atol=1e-5)
            sums = mine.attention.sum(dim=1)
            assert torch.allclose(sums, torch.ones_like(sums), atol=1e-4)


def test_a_row_without_numbers_is_given_up_in_an_ensemble_too():
    """topk took what is no number for the best of all."""
    models = [strong("ea_transformer_lite", seed) for seed in (1, 2)]
    batch, search = sources(12, seed=3), Search(max_len_b=8)
    usual = [h.tokens for found in BeamSearch(models, WORDS)(batch, search) for h in found]
    # Whoever has written this word goes on with no numbers; it is in some hypotheses, not in all.
    word = next(
        word
        for word in range(4, len(WORDS))
        if 0 < sum(word in tokens[:-2] for tokens in usual) < len(usual) / 3
    )
    with torch.no_grad():
        models[1].decoder.embed_tokens.weight[word] = torch.nan
    check(models, batch, search)
    found = [h.tokens for best in BeamSearch(models, WORDS)(batch, search) for h in best]
    assert found != usual and not any(word in tokens[:-2] for tokens in found)


def test_1000_sentences_as_fairseq_generate_prints_them(tmp_path):
    draw = random.Random(7)
    lines = [" ".join(draw.choices([*NAMES, "new"], k=draw.randint(1, 9))) for _ in range(1000)]
    folder = write_folder(tmp_path / "model", search=Search(max_len_a=0.7, max_len_b=3))
    write_fairseq_folder(read_model_folder(folder), tmp_path / "back")
    data = binarize(tmp_path, {"test": [(line, line) for line in lines]}, tmp_path / "back")
    options = ["--max-len-a", "0.7", "--max-len-b", "3", "--max-tokens", "400"]
    model = tmp_path / "back" / "model.pt"
    done = run("generate", *generation(data, model, "--beam", "5", *options))
    assert done.status == 0, done.errors()
    printed = dict(re.findall(r"^([HP]-\d+)\t(.*)$", done.output(), re.M))
    found = Translator(folder).translate(lines, beam=5, details=True, long="whole")
    lengths = {len(translation.tokens) for translation in found}
    for number, translation in enumerate(found):
        score, text = printed[f"H-{number}"].split("\t")
        assert translation.text == text
        assert translation.score == pytest.approx(float(score), abs=2e-4)
        scores = [float(score) for score in printed[f"P-{number}"].split()]
        assert translation.token_scores == pytest.approx(scores, abs=2e-4)
    assert len(found) == 1000 and len(lengths) > 1
    limits = [int(0.7 * (len(line.split()) + 1) + 3) for line in lines]
    written = [len(translation.token_scores) - 1 for translation in found]
    cut = sum(one == limit for one, limit in zip(written, limits, strict=True))
    assert 50 < cut < 950 and all(map(int.__le__, written, limits))
