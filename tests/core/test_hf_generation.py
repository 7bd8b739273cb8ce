"""Generation of evolved models with their cache: what it keeps equals generation without."""

import pytest
import torch
from hf_models import BOTH, DECODERS, WORDS, enlarge, inputs, make, settings
from transformers import DynamicCache, StaticCache

from ea_fairseq.errors import UserError
from ea_fairseq.hf import evolve
from ea_fairseq.hf.decoding import EvolvingLayer

FAMILIES = (*DECODERS, *BOTH)


def search(model, use_cache, **options):
    """Generated tokens and their scores, from the same random numbers every time."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, WORDS, (3, 7), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, :3], mask[2, :5] = 0, 0  # padded left, as generation wants it
    if model.config.is_encoder_decoder:
        mask = mask.flip(1)
    torch.manual_seed(7)
    return model.generate(
        ids,
        attention_mask=mask,
        **dict(use_cache=use_cache, max_new_tokens=10, min_new_tokens=6, pad_token_id=0),
        **dict(output_scores=True, return_dict_in_generate=True),
        **options,
    )


def assert_a_cache_changes_nothing(model, **options):
    """Words and their scores; returns the words."""
    kept, whole = (search(model, use_cache, **options) for use_cache in (True, False))
    assert torch.equal(kept.sequences, whole.sequences)
    for one, other in zip(kept.scores, whole.scores, strict=True):
        torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)
    return kept.sequences


@pytest.mark.parametrize("kernel_size", [3, 5])
@pytest.mark.parametrize("family", FAMILIES)
def test_generation_with_a_cache_equals_generation_without(family, kernel_size, monkeypatch):
    moves = []
    reorder = EvolvingLayer.reorder_cache

    def noted(self, order):
        moves.append(not torch.equal(order, torch.arange(len(order))))
        reorder(self, order)

    monkeypatch.setattr(EvolvingLayer, "reorder_cache", noted)
    chosen = settings(family, 0.4, 0.9, kernel_size=kernel_size)
    model = enlarge(evolve(make(family, torch.float64), **chosen))
    chosen_words = set()
    for options in (
        {},
        {"do_sample": True},
        {"num_beams": 4},
        {"num_beams": 3, "do_sample": True, "num_return_sequences": 2},
    ):
        chosen_words |= set(assert_a_cache_changes_nothing(model, **options).flatten().tolist())
    assert len(chosen_words) > 10
    assert sum(moves) > 20  # hypotheses did change their places


@pytest.mark.parametrize(
    "variant, options",
    [
        ("residual", {}),
        ("multi_token", {}),
        ("bird_eye", {}),
        ("talking_heads", {}),
        ("plain", {"scores": "random_synthesizer"}),
        ("evolving", {"skip": "decoder", "learned_mixing": True, "alpha": 0.3, "beta": 0.6}),
    ],
)
def test_every_variant_generates_with_a_cache(variant, options):
    model = enlarge(evolve(make("gpt2", torch.float64), variant, **options), 2.0)
    assert_a_cache_changes_nothing(model)
    assert_a_cache_changes_nothing(model, num_beams=3)


def test_several_tokens_at_once_continue_a_cache():
    model = enlarge(evolve(make("gpt2", torch.float64), **settings("gpt2", 0.4, 0.9)))
    ids = inputs("gpt2")["input_ids"]
    whole = model(ids).logits
    cache = DynamicCache(config=model.config)
    parts = [model(part, past_key_values=cache).logits for part in ids.split([3, 1, 4, 1], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("variant", ["residual", "talking_heads", "diagonal_free", "bird_eye"])
def test_a_picture_in_a_later_call_is_seen_whole(variant):
    """Its mask shows later positions of the same call, which were cut off."""
    model = evolve(make("gpt2", torch.float64), variant)
    ids = inputs("gpt2")["input_ids"]
    shown = torch.ones(1, 1, 9, 9, dtype=torch.bool).tril()
    shown[..., 4:8, 4:8] = True  # the picture's positions

    cache = DynamicCache(config=model.config)
    model(ids[:, :3], past_key_values=cache, attention_mask=shown[..., :3, :3])
    if variant == "bird_eye":  # whose importance of a token is kept, and knows earlier ones alone
        with pytest.raises(UserError, match="shows later positions, and a cache"):
            model(ids[:, 3:], past_key_values=cache, attention_mask=shown[..., 3:, :])
        return
    whole = model(ids, attention_mask=shown, use_cache=False).logits
    found = model(ids[:, 3:], past_key_values=cache, attention_mask=shown[..., 3:, :]).logits
    torch.testing.assert_close(found, whole[:, 3:], atol=1e-9, rtol=1e-9)
    causal = model(ids, use_cache=False).logits
    assert (whole - causal)[:, 4:7].abs().max() > 1e-3


def test_what_cannot_be_cached_is_refused():
    model = evolve(make("gpt2"), **settings("gpt2", 0.4, 0.9))
    ids = inputs("gpt2")["input_ids"]
    with pytest.raises(UserError, match="StaticCache.*use a DynamicCache"):
        model(ids, past_key_values=StaticCache(config=model.config, max_cache_len=20))
    with pytest.raises(UserError, match="StaticCache"):
        model.generate(ids, max_new_tokens=4, cache_implementation="static")
    cache = DynamicCache(config=model.config)
    make("gpt2")(ids, past_key_values=cache)
    with pytest.raises(UserError, match="9 earlier positions, of which 0"):
        model(ids[:, :1], past_key_values=cache)
    cache = model(ids, use_cache=True).past_key_values
    with pytest.raises(UserError, match="cannot take steps back"):
        cache.crop(-2)
    cache = model.train()(ids, use_cache=True).past_key_values
    with pytest.raises(UserError, match="in evaluation"):
        model.eval()(ids[:, :1], past_key_values=cache)
