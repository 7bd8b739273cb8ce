"""Sampling: what is drawn, how often, and that it is drawn again with the same seed."""

import math
from collections import Counter

import pytest
import torch
from small_folders import strong_language_model, write_language_model
from small_models import EOS, PAD, VOCABULARY, dictionary

from ea_fairseq import LanguageModel, Sampling
from ea_fairseq.errors import UserError
from ea_fairseq.inference.model_folder import Search
from ea_fairseq.inference.search import BeamSearch

WORDS = dictionary()
PREFIX = [7, 9, 4]
DRAWS = 3000

#: The 99.99 % quantile of chi-square, by degrees of freedom up to a dictionary's; scipy's.
CHI_SQUARE = {2: 18.42, 3: 21.11, 4: 23.51, 21: 54.96, 22: 56.44, 23: 57.91}


@pytest.fixture(scope="module")
def owner():
    model = strong_language_model()
    with torch.no_grad():  # nothing is all but certain, or all but impossible
        model.decoder.output_projection.weight *= 0.3
    return BeamSearch([model], WORDS)


def drawn(owner, sampling, prefix=PREFIX, draws=DRAWS, **search):
    """Hypotheses that go on with a prefix, by one token unless it is said."""
    search = Search(beam=1, max_len_b=len(prefix) + 1, **search)
    streams = [sampling.stream(0, draw) for draw in range(draws)]
    return [found for (found,) in owner.go_on([prefix] * draws, search, sampling, streams)]


@torch.no_grad()
def probabilities(owner, temperature=1.0):
    """Of the token behind the prefix, from the full pass; padding is never drawn."""
    logits = owner.models[0](torch.tensor([[EOS, *PREFIX]]))[0][0, -1].double() / temperature
    probs = logits.softmax(dim=0).tolist()
    return [0.0 if token == PAD else p for token, p in enumerate(probs)]


def chi_square(found, expected):
    """Of the tokens behind the prefix, and the degrees of freedom."""
    counts = Counter(hypothesis.tokens[len(PREFIX)] for hypothesis in found)
    total = sum(expected)
    assert all(expected[token] > 0 for token in counts)
    shares = {token: p / total * len(found) for token, p in enumerate(expected) if p > 0}
    return sum((counts[t] - share) ** 2 / share for t, share in shares.items()), len(shares) - 1


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_frequencies_are_the_softmax(owner, temperature):
    found = drawn(owner, Sampling(temperature=temperature))
    expected = probabilities(owner, temperature)
    distance, freedom = chi_square(found, expected)
    assert freedom == VOCABULARY - 2 and distance < CHI_SQUARE[freedom]
    # That of another temperature is found out.
    assert chi_square(found, probabilities(owner, 2 * temperature))[0] > CHI_SQUARE[freedom]
    for hypothesis in found[:50]:
        token = hypothesis.tokens[len(PREFIX)]
        score = hypothesis.token_scores[len(PREFIX)]
        assert score == pytest.approx(math.log(expected[token]), abs=1e-4)


def within_top_p(expected, top_p):
    """By a loop over the definition: the fewest tokens that have this share together."""
    total, kept, share = sum(expected), set(), 0.0
    for token in sorted(range(len(expected)), key=lambda token: -expected[token]):
        if share >= top_p * total:
            break
        kept.add(token)
        share += expected[token]
    return kept


@pytest.mark.parametrize(
    "sampling, size",
    [
        (Sampling(top_k=1), 1),
        (Sampling(top_k=3), 3),
        (Sampling(top_p=0.9, temperature=2.0), None),
        (Sampling(top_p=1e-9), 1),
        (Sampling(top_p=1.0), VOCABULARY - 1),
        (Sampling(top_k=4, top_p=0.99), 4),
        (Sampling(top_k=22, top_p=0.9), None),
        (Sampling(top_k=1000), VOCABULARY - 1),
    ],
)
def test_nothing_beyond_the_limits_is_drawn_and_what_is_within_as_often_as_it_should(
    owner, sampling, size
):
    expected = probabilities(owner, sampling.temperature)
    kept = within_top_p(expected, sampling.top_p or 2.0) - {PAD}
    best = sorted(kept, key=lambda token: -expected[token])[: sampling.top_k]
    assert len(best) == size or (size is None and 1 < len(best) < VOCABULARY - 2)
    found = drawn(owner, sampling)
    cut = [p if token in best else 0.0 for token, p in enumerate(expected)]
    distance, freedom = chi_square(found, cut)
    assert distance < max(CHI_SQUARE.get(freedom, 60.0), 1e-9)
    assert {h.tokens[len(PREFIX)] for h in found} <= set(best)


def test_whole_texts_have_the_scores_of_a_full_pass(owner):
    with torch.no_grad():
        for hypothesis in drawn(owner, Sampling(), draws=20, max_len_a=8.0):
            read = torch.tensor([[EOS, *hypothesis.tokens[:-1]]])
            scores = owner.models[0](read)[0][0].log_softmax(dim=1)
            expected = scores.gather(1, torch.tensor(hypothesis.tokens)[:, None]).squeeze(1)
            assert hypothesis.token_scores == pytest.approx(expected.tolist(), abs=1e-5)
            assert hypothesis.tokens[:3] == PREFIX and EOS not in hypothesis.tokens[:-1]


def test_many_draws_are_of_few_prefixes_at_once(tmp_path, monkeypatch):
    """All draws of all prefixes of a batch filled the memory."""
    model, rows = LanguageModel(write_language_model(tmp_path / "model")), []
    search = BeamSearch.go_on

    def counted(self, prefixes, *rest, **more):
        rows.append(len(prefixes))
        return search(self, prefixes, *rest, **more)

    monkeypatch.setattr(BeamSearch, "go_on", counted)
    settings = {"max_len": 1, "max_tokens": 40}
    texts = model.generate(["w3 w4 w5"] * 6, n_best=4, sampling=Sampling(), **settings)
    assert [len(each) for each in texts] == [4] * 6 and rows == [8, 8, 8]
    model.generate(["w3 w4 w5"] * 6, n_best=50, sampling=Sampling(), **settings)
    assert rows[3:] == [50] * 6  # a prefix's draws stay together


def test_a_seed_gives_the_same_texts_whatever_is_drawn_beside_them(tmp_path):
    model = LanguageModel(write_language_model(tmp_path / "model"))
    lines = ["w1 w2", "", "w4", "w4", "w1 w2 w3 w4"]
    texts = model.generate(lines, n_best=3, sampling=Sampling(seed=5))
    assert model.generate(lines, n_best=3, sampling=Sampling(seed=5)) == texts
    assert list(model.stream(lines, buffer=2, n_best=3, sampling=Sampling(seed=5))) == texts
    assert model.generate(lines, n_best=3, sampling=Sampling(seed=5), max_tokens=4) == texts
    assert model.generate(lines, n_best=2, sampling=Sampling(seed=5)) == [t[:2] for t in texts]
    assert model.generate(lines, n_best=3, sampling=Sampling(seed=6)) != texts
    assert texts[2] != texts[3] and len(set(texts[2])) > 1


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"temperature": 0}, "temperature is 0: expected a number above 0"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"top_k": 0}, "top_k is 0: expected a whole number from 1"),
        ({"top_k": 1.5}, "top_k is 1.5"),
        ({"top_p": 0.0}, "top_p is 0.0: expected a number above 0, at most 1"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"seed": "x"}, "seed is 'x': expected a whole number"),
    ],
)
def test_settings_that_draw_nothing_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        Sampling(**settings)
