"""Score functions: what holds beside the properties of test_ea_transformer.py."""

import argparse
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from small_models import EOS, PAD, TINY, build, build_strong, padded, score, sentences
from test_ea_transformer import SHORT, beam_case, beam_search, lengths_case
from torch import nn

from ea_fairseq.attention.scores import SCORES, Score, ScoreFunction, register
from ea_fairseq.checkpoints.model_identity import refuse_another_variant
from ea_fairseq.errors import UserError

SYNTHESIZERS = ("dense_synthesizer", "random_synthesizer")


def test_multiplicative_scores_start_as_the_product():
    """And a plain Transformer's checkpoint continues with them, which then start fresh."""
    plain = build("transformer_lite").double().eval()
    model = build("ea_transformer_lite", ea_variant="plain", ea_scores="multiplicative")
    model = model.double().eval()
    model.load_state_dict(plain.state_dict(), strict=True)
    case = lengths_case()
    for one, other in zip(score(model, *case), score(plain, *case), strict=True):
        # fairseq's encoder-decoder attention takes its softmax in float32.
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", SCORES)
def test_nothing_is_projected_that_nobody_uses(name):
    kept = {"dense_synthesizer": {"q_proj"}, "random_synthesizer": set()}
    model = build("ea_transformer_lite", ea_scores=name, **SHORT)
    both = {"q_proj", "k_proj"}
    for layer in (*model.encoder.layers, *model.decoder.layers):
        own = dict(layer.self_attn.named_children())
        assert both & own.keys() - {n for n in both if own.get(n) is None} == kept.get(name, both)
    for layer in model.decoder.layers:  # synthesizers leave it the product
        assert layer.encoder_attn.q_proj is not None and layer.encoder_attn.k_proj is not None
        is_product = name in ("product", "multiplicative", *SYNTHESIZERS)
        assert layer.encoder_attn.scores.is_product == is_product
    bird_eye = build("ea_transformer_lite", ea_scores=name, ea_variant="bird_eye", **SHORT)
    assert all(layer.self_attn.k_proj is not None for layer in bird_eye.decoder.layers)


@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_a_sentence_longer_than_the_models_positions_is_refused(name):
    limits = {"max_source_positions": 6, "max_target_positions": 5}
    model = build_strong(ea_scores=name, **limits)
    score(model, sentences([6], 1, last=EOS), sentences([5], 2))
    for source, target, named in (
        (7, 2, "a sentence of 7 tokens is longer than --max-source-positions 6"),
        (6, 6, "a sentence of 6 tokens is longer than --max-target-positions 5"),
    ):
        with pytest.raises(UserError, match=f"{named}.* the scores {name}"):
            score(model, sentences([source], 1, last=EOS), sentences([target], 2))
    state, encoder_out = {}, model.encoder(padded(sentences([6], 1, last=EOS)))
    prefix = padded(sentences([6], 2))
    with torch.no_grad(), pytest.raises(UserError, match="--max-target-positions 5"):
        for t in range(1, 7):
            model.decoder(prefix[:, :t], encoder_out=encoder_out, incremental_state=state)
    assert t == 6


@pytest.mark.parametrize("name", SYNTHESIZERS)
@pytest.mark.parametrize("left", [True, False])
def test_padding_may_go_beyond_the_models_positions(name, left):
    """As fairseq's --required-seq-len-multiple pads."""
    model = build_strong(ea_scores=name, max_source_positions=6, max_target_positions=5)
    source, prefix = sentences([6], 1, last=EOS)[0], sentences([5], 2)[0]
    more = torch.full((3,), PAD)
    long = [torch.cat([more, one] if left else [one, more]) for one in (source, prefix)]
    (expected,) = score(model, [source], [prefix])
    (found,) = score(model, [long[0]], [long[1]])
    torch.testing.assert_close(found[3:] if left else found[:5], expected)


def test_checkpoints_name_the_scores_where_they_are_not_the_product():
    kept = {}
    for given in (None, "product", "additive"):
        args = argparse.Namespace(arch="ea_transformer_lite", **TINY)
        if given is not None:
            args.ea_scores = given
        ARCH_CONFIG_REGISTRY["ea_transformer_lite"](args)
        kept[given] = vars(args).get("ea_scores")
    assert kept == {None: None, "product": None, "additive": "additive"}
    names = build("ea_transformer_lite").state_dict()
    assert not any("scores" in name for name in names)


def test_a_checkpoint_of_other_scores_is_refused():
    def settings(**options):
        return SimpleNamespace(ea_variant="evolving", **options)

    additive = settings(ea_scores="additive")
    refuse_another_variant(additive, settings(ea_scores="additive"), "a.pt")
    refuse_another_variant(settings(), settings(ea_scores="product"), "a.pt")
    for stored, wanted, named in (
        (additive, settings(), "a.pt is of --ea-scores additive, and product was asked for"),
        (settings(), additive, "a.pt is of --ea-scores product, and additive was asked for"),
    ):
        with pytest.raises(UserError, match=named):
            refuse_another_variant(stored, wanted, "a.pt")


def test_unknown_scores_are_refused_with_the_choices():
    with pytest.raises(UserError, match="--ea-scores must be one of .*additive.*, not 'other'"):
        build("ea_transformer_lite", ea_scores="other")


class Distance(ScoreFunction):
    """A toy without queries and keys that serves every attention: the farther, the less."""

    is_product = uses_queries = uses_keys = False

    def __init__(self, num_heads):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_heads))

    def forward(self, queries, keys, scaling, shape, visible):
        assert queries is None and keys is None
        places = torch.arange(shape[2]).expand(shape[0], 1, shape[1], shape[2])
        return -self.weight.view(-1, 1, 1) * places


@pytest.fixture
def distance():
    register(Score("distance", "a toy", lambda place, longest: Distance(place.num_heads)))
    yield "distance"
    del SCORES["distance"]


@pytest.mark.parametrize("shared_keys", [False, True])
def test_a_score_function_is_one_registration(distance, shared_keys):
    """Keys that it does not use are cached nowhere, and the beam moves values alone."""
    model = build_strong(ea_scores=distance)
    if shared_keys:
        model.decoder.set_beam_size(3)
    with torch.no_grad():
        for step, full in beam_search(model, *beam_case()):
            torch.testing.assert_close(step, full, atol=1e-9, rtol=1e-9)
    assert not any("k_proj" in name or "q_proj" in name for name, _ in model.named_parameters())


def test_a_name_is_taken_once():
    with pytest.raises(ValueError, match="product: the name is taken"):
        register(Score("product", "", lambda place, longest: ScoreFunction()))
