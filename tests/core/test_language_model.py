"""The language model: the decoder's properties without an encoder, and fairseq's own as neutral."""

import argparse
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask
from reference import Transformer
from small_models import EOS, PAD, dictionary, padded, sentences, settings_of

from ea_fairseq.attention.configuration import EAOptions
from ea_fairseq.attention.variants import VARIANTS, language_models
from ea_fairseq.errors import UserError

TINY = {
    "decoder_embed_dim": 16,
    "decoder_ffn_embed_dim": 24,
    "decoder_attention_heads": 4,
    "decoder_layers": 3,
}
SETTINGS = {
    name: options
    for variant in VARIANTS
    if "decoder" in VARIANTS[variant].arrangement
    for name, options in settings_of(variant)
}
SETTINGS["synthesized scores"] = {"ea_scores": "random_synthesizer", "max_target_positions": 12}
SETTINGS["branches"] = {"ea_branch": "convolution"}
every_setting = pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS.keys())


def build(arch="ea_transformer_lm_lite", **options):
    args = argparse.Namespace(arch=arch, **{**TINY, **options})
    ARCH_CONFIG_REGISTRY[arch](args)
    words = dictionary()
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)


def build_strong(seed=0, **options):
    """In float64, with weights that no tolerance hides."""
    torch.manual_seed(seed)
    model = build(**options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layer_norm" in name:
                parameter.normal_(mean=float(name.endswith("weight")), std=0.2)
            else:
                parameter.normal_(std=1.0 if ".transform." in name else 0.4)
            if "embed_tokens" in name:
                parameter[PAD] = 0
    return model.double().eval()


def score(model, texts, left=False):
    """Scores of each text in one padded batch: a list of (length, vocabulary)."""
    with torch.no_grad():
        scores, _ = model(padded(texts, left))
    return [
        row[-len(text) :] if left else row[: len(text)]
        for row, text in zip(scores, texts, strict=True)
    ]


@every_setting
def test_model_equals_loops_in_a_padded_batch(options):
    model = build_strong(**options)
    oracle = Transformer(
        {name: value.numpy() for name, value in model.state_dict().items()},
        EAOptions.from_namespace(model.decoder.cfg),
        layers=3,
        heads=4,
        normalize_before=True,
        padding_idx=PAD,
    )
    texts = sentences([4, 9, 1, 6], 3)
    for scores, text in zip(score(model, texts), texts, strict=True):
        expected = torch.from_numpy(oracle.language_model_scores(text.tolist()))
        torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)


@every_setting
def test_later_tokens_never_change_earlier_scores(options):
    model = build_strong(**options)
    texts = sentences([8, 8], 2)
    for t in range(1, 8):
        texts[1] = torch.cat([texts[0][:t], (texts[0][t:] + 3) % 20 + 4])
        one, other = score(model, texts)
        assert torch.equal(one[:t], other[:t])
        assert not torch.isclose(one[t:], other[t:]).all(dim=1).any()


@every_setting
@pytest.mark.parametrize("left", [True, False])
def test_a_text_scores_the_same_alone_and_in_any_batch(options, left):
    model = build_strong(**options)
    texts = sentences([5, 9, 1, 7], 4)
    for scores, text in zip(score(model, texts, left), texts, strict=True):
        torch.testing.assert_close(scores, score(model, [text])[0])


@every_setting
def test_step_by_step_equals_full_pass_while_hypotheses_move(options):
    model, tokens = build_strong(**options), padded(sentences([8] * 6, 5))
    generator, state = torch.Generator().manual_seed(3), {}
    with torch.no_grad():
        for t in range(8):
            if t:
                remaining = len(tokens) - (1 if t in (3, 5) else 0)
                order = torch.randint(len(tokens), (remaining,), generator=generator)
                later = tokens[:remaining, t:]  # differ again, so that another's rows are found out
                tokens = torch.cat([tokens[order, :t], later], dim=1)
                model.decoder.reorder_incremental_state_scripting(state, order)
            step, _ = model.decoder(tokens[:, : t + 1], incremental_state=state)
            full, _ = model.decoder(tokens[:, : t + 1])
            torch.testing.assert_close(step[:, -1], full[:, -1], atol=1e-9, rtol=1e-9)


@every_setting
def test_every_parameter_gets_a_gradient(options):
    model = build_strong(**options).train()
    scores, _ = model(padded(sentences([6, 9, 2], 6)))
    scores.log_softmax(-1)[..., EOS].sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.ne(0).any(), name


@pytest.mark.parametrize(
    "variant",
    [n for n, v in VARIANTS.items() if v.neutral is not None and "decoder" in v.arrangement],
)
def test_a_neutral_variant_is_fairseqs_and_continues_its_checkpoints(variant):
    neutral = {f"ea_{name}": value for name, value in VARIANTS[variant].neutral.items()}
    torch.manual_seed(1)
    theirs = build("transformer_lm_lite", share_decoder_input_output_embed=True).double().eval()
    ours = build(ea_variant=variant, share_decoder_input_output_embed=True, **neutral)
    ours = ours.double().eval()
    ours.load_state_dict(theirs.state_dict())  # with fresh parameters of the variant
    texts = sentences([5, 9, 1, 7], 7)
    for one, other in zip(score(ours, texts), score(theirs, texts), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_every_lite_architecture_that_serves_the_decoder_has_a_language_model():
    found = language_models()
    assert found["ea_transformer_lite"] == "ea_transformer_lm_lite"
    assert found["realformer_lite"] == "realformer_lm_lite"
    assert found["bet_transformer_lite"] == "bet_transformer_lm_lite"
    assert "pa_transformer_lite" not in found and "ea_transformer_base" not in found
    for name in found.values():
        assert build(name).decoder.num_layers == 3


@pytest.mark.parametrize(
    "options",
    [
        {"adaptive_input": True, "adaptive_input_cutoff": "8,16", "tie_adaptive_weights": True,
         "adaptive_softmax_cutoff": "8,16"},
        {"share_decoder_input_output_embed": True},
        {"adaptive_softmax_cutoff": "8,16"},
        {"decoder_learned_pos": True},
        {"decoder_normalize_before": False},
        {"decoder_input_dim": 8, "decoder_output_dim": 12},
        {"no_token_positional_embeddings": True},
        {"activation_fn": "gelu"},
        {"scale_fc": True, "scale_attn": True, "scale_heads": True, "scale_resids": True},
    ],
    ids=lambda options: next(iter(options)),
)  # fmt: skip
def test_fairseqs_inputs_and_outputs_are_fairseqs(options):
    torch.manual_seed(1)
    theirs = build("transformer_lm_lite", **options).double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.4)
    neutral = {f"ea_{name}": value for name, value in VARIANTS["evolving"].neutral.items()}
    ours = build(**options, **neutral).double().eval()
    ours.load_state_dict(theirs.state_dict())  # with fresh parameters of the variant
    tokens = padded(sentences([6, 6], 8))
    with torch.no_grad():
        found, expected = (
            model.get_normalized_probs(model(tokens), log_probs=True, sample=None)
            if model.decoder.adaptive_softmax is None
            else model.decoder.adaptive_softmax.get_log_prob(model(tokens)[0], None)
            for model in (ours, theirs)
        )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert expected.std() > 0.3


def test_the_stack_can_be_cut_to_some_layers():
    options = {"decoder_layers_to_keep": "0,2"}
    whole, cut = build_strong(), build_strong(seed=1, **options)
    model_cfg = argparse.Namespace(arch="ea_transformer_lm_lite", **options)
    cut.load_state_dict(whole.state_dict(), strict=True, model_cfg=model_cfg)
    layers = whole.decoder.layers
    whole.decoder.layers = torch.nn.ModuleList([layers[0], layers[2]])
    texts = sentences([5, 9, 1, 7], 7)
    for one, other in zip(score(cut, texts), score(whole, texts), strict=True):
        torch.testing.assert_close(one, other)


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
