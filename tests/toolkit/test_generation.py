"""Going on with prefixes: the hypotheses of fairseq's search, and the text around them."""

import random

import pytest
import torch
from fairseq_search import generator
from small_folders import strong_language_model, write_folder, write_language_model
from small_models import EOS, PAD, VOCABULARY, dictionary, padded

from ea_fairseq import LanguageModel, Sampling, Translator
from ea_fairseq.errors import UserError
from ea_fairseq.inference.build_model import build_model
from ea_fairseq.inference.model_folder import LANGUAGE_MODELING, Search
from ea_fairseq.inference.search import BeamSearch

WORDS = dictionary()
ARCHITECTURES = ("ea_transformer_lm_lite", "transformer_lm_lite", "bet_transformer_lm_lite")
SETTINGS = {
    "beam 5": Search(max_len_b=22),
    "beam 3, long": Search(beam=3, lenpen=1.5, max_len_b=22),
    "with unknown": Search(unkpen=-3.0, max_len_b=15),
    "not normalized": Search(unnormalized=True, max_len_b=15),
    "beam over the dictionary": Search(beam=40, max_len_b=9),
    "from 9 tokens, the prefix among them": Search(min_len=9, max_len_b=22),
}


def prefixes(count, seed, least=1, most=7):
    draw = random.Random(seed)
    lengths = [draw.randint(least, most) for _ in range(count)]
    return [[draw.randrange(3, VOCABULARY) for _ in range(length)] for length in lengths]


def of_fairseq(models, batch, search):
    """What fairseq-interactive finds for prefixes in one batch."""
    forced = padded([torch.tensor(prefix, dtype=torch.long) for prefix in batch])
    read = torch.cat([torch.full((len(batch), 1), EOS), forced], dim=1)
    sample = {"net_input": {"src_tokens": read, "src_lengths": read.ne(PAD).sum(dim=1)}}
    owner = generator(models, WORDS, search)
    return owner.generate(models, sample, prefix_tokens=forced, bos_token=EOS)


def check(models, batch, search):
    expected = of_fairseq(models, batch, search)
    found = BeamSearch(models, WORDS).go_on(batch, search)
    for ours, theirs in zip(found, expected, strict=True):
        assert len(ours) == len(theirs) > 0
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.tokens == other["tokens"].tolist()
            assert mine.score == pytest.approx(other["score"].item(), abs=1e-5)
            scores = other["positional_scores"].tolist()
            assert mine.token_scores == pytest.approx(scores, abs=1e-5)
    return found


@pytest.mark.parametrize("sampling", [None, Sampling(seed=1)])
def test_scores_that_are_no_numbers_are_no_empty_text(tmp_path, sampling):
    model = LanguageModel(write_language_model(tmp_path / "model"))
    with torch.no_grad():
        model.models[0].decoder.layers[0].fc1.bias[0] = torch.nan
    with pytest.raises(UserError, match="text 1: the model's scores are no numbers"):
        model.generate(["w1", "w2"], sampling=sampling)
    found = model.generate(["w1"], sampling=sampling, details=True)
    assert [one.problem for one in found] == ["the model's scores are no numbers"]
    with pytest.raises(UserError, match="text 1: the model's scores are no numbers"):
        model.score(["w1"])


@pytest.mark.parametrize("search", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_prefixes_of_all_lengths_in_a_batch_have_fairseqs_hypotheses(arch, search):
    batch = [[], *prefixes(19, seed=1)]
    found = check([strong_language_model(arch)], batch, search)
    for prefix, hypotheses in zip(batch, found, strict=True):
        assert all(h.tokens[: len(prefix)] == prefix for h in hypotheses)
    assert len({len(h.tokens) for hypotheses in found for h in hypotheses}) > 1


@pytest.mark.parametrize(
    "search", [Search(max_len_a=1.0, max_len_b=2), Search(3, max_len_a=0.6, max_len_b=2)]
)
def test_a_limit_by_the_length_of_the_prefix_is_that_of_fairseq(search):
    """It was a token less for each that ``max_len_a`` counts of the end before the prefix."""
    model = strong_language_model()
    with torch.no_grad():  # texts do not end by themselves
        model.decoder.output_projection.weight[EOS] -= 3
    batch = prefixes(8, seed=6, least=0)
    for prefix, hypotheses in zip(batch, check([model], batch, search), strict=True):
        limit = max(int(search.max_len_a * (len(prefix) + 1) + 2), len(prefix))
        assert all(h.cut and len(h.tokens) == limit + 1 for h in hypotheses)


def test_an_ensemble_of_language_models():
    models = [strong_language_model(arch, n) for n, arch in enumerate(ARCHITECTURES)]
    check(models, prefixes(12, seed=2), Search(beam=3, max_len_b=15))


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("transformer_lm", {"adaptive_softmax_cutoff": "8,12", "decoder_attention_heads": 2}),
        ("lstm_lm", {"decoder_hidden_size": 16, "decoder_layers": 1}),
        ("fconv_lm", {"decoder_layers": "[(16, 3)] * 2"}),
    ],
)
def test_other_language_models_of_fairseq(arch, options):
    torch.manual_seed(0)
    options = {"decoder_embed_dim": 16, "max_target_positions": 30, **options}
    model = build_model(arch, options, (WORDS, WORDS), LANGUAGE_MODELING).eval()
    check([model], prefixes(6, seed=3), Search(beam=3, max_len_b=10))


@pytest.mark.parametrize("search", [Search(max_len_a=1.0, max_len_b=9), Search(40, max_len_b=9)])
def test_a_prefix_is_gone_on_with_the_same_alone_and_in_any_batch(search):
    owner = BeamSearch([strong_language_model()], WORDS)
    batch = prefixes(15, seed=4, least=0)
    for prefix, together in zip(batch, owner.go_on(batch, search), strict=True):
        (alone,) = owner.go_on([prefix], search)
        assert [h.tokens for h in alone] == [h.tokens for h in together]
        for one, other in zip(alone, together, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-5)
            limit = int(search.max_len_a * (len(prefix) + 1)) + 9
            assert one.cut == other.cut == (len(one.tokens) == limit + 1)


def test_a_prefix_is_never_cut():
    long, short = [5, 9, 4, 7], [6]
    ((only,), others) = check([strong_language_model()], [long, short], Search(max_len_b=2))
    assert only.tokens == [*long, EOS] and only.cut
    assert all(len(hypothesis.tokens) <= 3 for hypothesis in others)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_language_model(tmp_path_factory.mktemp("generation") / "model")


@pytest.fixture(scope="module")
def model(folder):
    return LanguageModel(folder)


LINES = ["w1 w2 w3", "", "w4", "w5 w6 new w8", "w4"]


def test_step_by_step_scores_are_those_of_a_full_pass(model):
    """`score` reads a text at once, and with others of all lengths beside it."""
    found = [c for line in model.generate(LINES, n_best=3, details=True) for c in line]
    texts = [continuation.text for continuation in found]
    for continuation, likelihood in zip(found, model.score(texts), strict=True):
        assert likelihood.tokens == continuation.tokens
        assert likelihood.token_scores == pytest.approx(continuation.token_scores, abs=1e-5)
        assert likelihood.score == pytest.approx(continuation.score, abs=1e-5)
        assert likelihood.perplexity == pytest.approx(2**-continuation.score, rel=1e-4)
    assert model.score("").tokens == ["</s>"]


def test_several_models_score_by_the_mean_of_their_probabilities(tmp_path):
    """A text that one of them cannot read none reads."""
    folders = [
        write_language_model(tmp_path / name, seed=seed, options={"max_target_positions": most})
        for seed, (name, most) in enumerate((("a", 40), ("b", 9)), start=1)
    ]
    each = [LanguageModel(folder).score("w1 w5 w2").token_scores for folder in folders]
    for order in (folders, folders[::-1]):
        together = LanguageModel(order)
        found = together.score("w1 w5 w2").token_scores
        for score, one, other in zip(found, *each, strict=True):
            assert 2**score == pytest.approx((2**one + 2**other) / 2, rel=1e-4)
            assert one != pytest.approx(other, abs=1e-3)
        with pytest.raises(UserError, match="9 subwords; the model takes 8"):
            together.score("w1 " * 9)


def test_adaptive_layers_with_tied_weights_come_back_from_their_folder(tmp_path):
    """Of WikiText-103's recipe."""
    cutoffs = {f"adaptive_{name}_cutoff": "8,12" for name in ("input", "softmax")}
    sizes = {"decoder_input_dim": 16, "decoder_output_dim": 16}
    options = {"adaptive_input": True, "tie_adaptive_weights": True, **cutoffs, **sizes}
    model = LanguageModel(write_language_model(tmp_path / "model", options=options))
    weights = strong_language_model(**options, max_target_positions=40).state_dict()
    found = model.models[0].state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in found.items())
    found = model.generate("w1 w2", details=True)
    assert model.score(found.text).token_scores == pytest.approx(found.token_scores, abs=1e-5)


def test_texts_are_in_their_places_and_begin_with_their_prefixes(model):
    texts = model.generate(LINES)
    assert list(model.stream(iter(LINES), buffer=2)) == texts
    assert texts == [model.generate(line) for line in LINES]
    assert texts[2] == texts[4] and texts[2].startswith("w4 ")
    assert texts[3].startswith("w5 w6 new w8 ")
    assert model.generate(LINES[3], details=True).tokens[:4] == ["w5", "w6", "<unk>", "w8"]
    assert all(len(texts) == 3 for texts in model.generate(LINES, beam=4, n_best=3))


def test_the_limit_counts_what_is_behind_the_prefix(model):
    for continuation in model.generate(LINES, max_len=2, details=True):
        written = len(continuation.tokens) - len(continuation.prefix_tokens) - 1
        assert 0 <= written <= 2 and continuation.cut == (written == 2)


def test_what_is_longer_than_the_positions_is_told_and_the_rest_is_there(model):
    """39 of 40 positions, as the end of a line stands before the first token."""
    longest, longer = " ".join(["w1"] * 39), " ".join(["w1"] * 40)
    (fits, too_long, short) = model.generate([longest, longer, "w1"], details=True)
    assert fits.text == longest and fits.cut and fits.problem is None
    assert too_long.problem == "40 subwords; the model takes 39" and too_long.text == ""
    assert short.text.startswith("w1 ")
    for call in (model.generate, model.score):
        with pytest.raises(UserError, match="^text 2: 40 subwords; the model takes 39$"):
            call(["w1", longer])


def test_models_of_the_other_task_are_refused(folder, tmp_path):
    """That ea-generate refuses a model that translates: see test_generate_command.py."""
    translates = write_folder(tmp_path / "translates")
    for models in (folder, [translates, folder]):
        with pytest.raises(UserError, match="model: holds a language model.*: ea-generate"):
            Translator(models)


@pytest.mark.parametrize(
    "prefix, options, message",
    [
        ("w1", {"max_len": 0}, "max_len is 0: expected a whole number from 1"),
        ("w1", {"n_best": 6}, "n_best is 6: choose from 1 to beam, 5"),
        ("w1", {"beam": 0}, "beam is 0"),
        ("w1", {"sampling": Sampling(), "n_best": 1001}, "n_best is 1001: choose .* the most, 10"),
        ("w1", {"sampling": Sampling(), "beam": 5}, "beam goes with beam search, not with sampl"),
        ("w1", {"sampling": Sampling(), "lenpen": 1.0}, "lenpen goes with beam search"),
        ("w1", {"sampling": {"top_k": 3}}, "give a Sampling, such as "),
        ("w1", {"sampling": True}, "give a Sampling, such as "),
        ("w1", {"max_tokens": 0}, "max_tokens is 0"),
        (b"w1", {}, "^prefix is .* expected text"),
        (["w1", 4], {}, "4 is no text"),
    ],
)
def test_what_cannot_be_is_refused(model, prefix, options, message):
    with pytest.raises(UserError, match=message):
        model.generate(prefix, **options)
    with pytest.raises(UserError, match="expected a list of texts, or an iterator"):
        list(model.stream("w1"))
