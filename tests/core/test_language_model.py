"""The language model, beside the properties of test_ea_transformer.py: fairseq's own as neutral."""

import argparse
import functools

import pytest
import small_models
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask
from small_models import PAD, padded, score, sentences
from torch.testing import assert_close

from ea_fairseq.attention.variants import VARIANTS, language_models
from ea_fairseq.errors import UserError


def build(arch="ea_transformer_lm_lite", **options):
    return small_models.build(arch, **options)


#: In float64, with weights that no tolerance hides.
build_strong = functools.partial(small_models.build_strong, "ea_transformer_lm_lite")


SHARED, ADAPTIVE = {"share_decoder_input_output_embed": True}, {"adaptive_softmax_cutoff": "8,16"}
TIED = {"adaptive_input": True, "adaptive_input_cutoff": "8,16", "tie_adaptive_weights": True}
NEUTRAL = [n for n, v in VARIANTS.items() if v.neutral is not None and "decoder" in v.arrangement]


@pytest.mark.parametrize(
    ("variant", "options"),
    [
        *((name, SHARED) for name in NEUTRAL),
        ("evolving", ADAPTIVE),
        ("evolving", {**ADAPTIVE, **TIED}),
        ("evolving", {"decoder_normalize_before": False}),
        ("evolving", {"decoder_input_dim": 8, "decoder_output_dim": 12}),
    ],
    ids=str,
)
def test_a_neutral_variant_is_fairseqs_and_continues_its_checkpoints(variant, options):
    """With the decoder's options that test_ea_transformer.py holds to fairseq's, and its own."""
    neutral = {f"ea_{name}": value for name, value in VARIANTS[variant].neutral.items()}
    torch.manual_seed(1)
    theirs = build("transformer_lm_lite", **options).double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.4)
    ours = build(ea_variant=variant, **options, **neutral).double().eval()
    ours.load_state_dict(theirs.state_dict())  # with fresh parameters of the variant
    tokens = padded(sentences([5, 9, 1, 7], 7))
    with torch.no_grad():
        found, expected = (
            model.get_normalized_probs(model(tokens), log_probs=True, sample=None)
            if model.decoder.adaptive_softmax is None
            else model.decoder.adaptive_softmax.get_log_prob(model(tokens)[0], None)
            for model in (ours, theirs)
        )
    real = tokens != PAD
    assert_close(found[real], expected[real], atol=1e-6, rtol=1e-5)
    assert expected[real].std() > 0.3


def test_every_lite_architecture_that_serves_the_decoder_has_a_language_model():
    found = language_models()
    assert found["ea_transformer_lite"] == "ea_transformer_lm_lite"
    assert found["realformer_lite"] == "realformer_lm_lite"
    assert found["bet_transformer_lite"] == "bet_transformer_lm_lite"
    assert "pa_transformer_lite" not in found and "ea_transformer_base" not in found
    for name in found.values():
        assert build(name).decoder.num_layers == 3


def test_the_stack_can_be_cut_to_some_layers():
    options = {"decoder_layers_to_keep": "0,2"}
    whole, cut = build_strong(), build_strong(seed=1, **options)
    model_cfg = argparse.Namespace(arch="ea_transformer_lm_lite", **options)
    cut.load_state_dict(whole.state_dict(), strict=True, model_cfg=model_cfg)
    layers = whole.decoder.layers
    whole.decoder.layers = torch.nn.ModuleList([layers[0], layers[2]])
    texts = sentences([5, 9, 1, 7], 7)
    assert_close(score(cut, texts, texts), score(whole, texts, texts))


def test_nobody_is_warned_of_options_that_nobody_gave(caplog):
    """fairseq completes arguments twice; --ea-skip is for the encoder by default."""
    args = argparse.Namespace()
    for _ in range(2):
        ARCH_CONFIG_REGISTRY["ea_transformer_lm_lite"](args)
    assert args.ea_skip == "encoder" and not caplog.messages
    args.ea_skip = "encoder-decoder"
    ARCH_CONFIG_REGISTRY["ea_transformer_lm_lite"](args)
    assert [m for m in caplog.messages if m.startswith("--ea-skip encoder-decoder has no effect")]


@pytest.mark.parametrize(
    "arch, task, words",
    [
        ("ea_transformer_lm_lite", TranslationTask, "is a language model: .*translation"),
        ("ea_transformer_lite", LanguageModelingTask, "translates: .*ea_transformer_lm_lite"),
        ("ea_roberta_base", TranslationTask, "ea_roberta is an encoder"),
    ],
)
def test_each_model_has_its_task(arch, task, words):
    args = argparse.Namespace(arch=arch)
    ARCH_CONFIG_REGISTRY[arch](args)
    with pytest.raises(UserError, match=words):
        ARCH_MODEL_REGISTRY[arch].build_model(args, object.__new__(task))
