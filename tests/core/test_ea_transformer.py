"""The model: against an oracle of the whole network, and what holds for every model."""

import argparse
import contextlib
import logging

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.modules import FairseqDropout
from reference import REGIONS, Transformer
from small_models import (
    EOS,
    PAD,
    TINY,
    beam_search,
    build,
    build_strong,
    padded,
    score,
    scores_of,
    sentences,
    settings_of,
)
from torch.testing import assert_close

from ea_fairseq.attention.configuration import EAOptions
from ea_fairseq.attention.scores import SCORES
from ea_fairseq.attention.variants import VARIANTS
from ea_fairseq.kernels.cpp.library import switch, torch_alone

ALL = ",".join(REGIONS)
# Every variant with each of its sets of options; every property below is held to all.
SETTINGS = {name: options for variant in VARIANTS for name, options in settings_of(variant)}
SETTINGS["a chain"] = {"ea_variant": "encoder=residual,encoder-decoder=evolving", "ea_skip": ALL}
SETTINGS["a long chain"] = {
    "ea_variant": "encoder=predictive,decoder=bird_eye,encoder-decoder=evolving"
}
SHORT = {"max_source_positions": 12, "max_target_positions": 12}
SETTINGS |= {
    f"{score} scores": {"ea_scores": score, **SHORT} for score in SCORES if score != "product"
}
SETTINGS |= {
    f"{score} scores, {variant}": {"ea_scores": score, "ea_variant": variant, **SHORT}
    for score, variant in (
        ("additive", "bird_eye"),
        ("random_synthesizer", "bird_eye"),
        ("random_synthesizer", "diagonal_free"),
    )
}
SETTINGS |= {
    f"branches, {variant}": {"ea_branch": "convolution", "ea_variant": variant}
    for variant in ("plain", "predictive", "evolving")
}
SETTINGS |= {
    f"language model, {name}": {"arch": "ea_transformer_lm_lite", **options}
    for name, options in (
        *(one for v in VARIANTS if "decoder" in VARIANTS[v].arrangement for one in settings_of(v)),
        ("scores", {"ea_scores": "random_synthesizer", "max_target_positions": 12}),
        ("branches", {"ea_branch": "convolution"}),
    )
}
SETTINGS["pre-norm"] = {"encoder_normalize_before": True, "decoder_normalize_before": True}
if switch() == "0":  # in the second pass of scripts/test.sh: of the others nothing is compiled
    SETTINGS = {
        name: options
        for name, options in SETTINGS.items()
        if "evolving" in options.get("ea_variant", "evolving")
    }
every_setting = pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS.keys())


def lengths_case(seed=0):
    sources = sentences([5, 3, 8, 1, 6], seed, last=EOS)
    prefixes = sentences([4, 9, 1, 5, 7], seed + 1)
    return sources, prefixes


def oracle_of(model):
    """The loops of reference.py with the model's weights."""
    return Transformer(
        {name: value.numpy() for name, value in model.state_dict().items()},
        EAOptions.from_namespace(model.decoder.cfg),
        layers=TINY["encoder_layers"],
        heads=TINY["encoder_attention_heads"],
        normalize_before=model.decoder.cfg.decoder.normalize_before,
        padding_idx=PAD,
    )


@every_setting
def test_model_equals_loops_in_a_padded_batch(options):
    model = build_strong(**options)
    sources, prefixes = lengths_case()
    oracle = oracle_of(model)
    expected = [
        torch.from_numpy(oracle.scores(source.tolist(), prefix.tolist()))
        for source, prefix in zip(sources, prefixes, strict=True)
    ]
    # fairseq keeps its sinusoidal positions in float32.
    assert_close(score(model, sources, prefixes), expected, atol=1e-5, rtol=1e-5)


@every_setting
def test_later_target_tokens_never_change_earlier_scores(options):
    model = build_strong(**options)
    sources, prefixes = [sentences([6], 1, last=EOS)[0]] * 2, sentences([8, 8], 2)
    for t in range(1, 8):
        prefixes[1] = torch.cat([prefixes[0][:t], (prefixes[0][t:] + 3) % 20 + 4])
        one, other = score(model, sources, prefixes)
        assert torch.equal(one[:t], other[:t])  # the same arithmetic: to the bit
        assert not torch.isclose(one[t:], other[t:]).all(dim=1).any()


@every_setting
@pytest.mark.parametrize(("left_pad_source", "left_pad_target"), [(True, False), (False, True)])
def test_a_sentence_scores_the_same_alone_and_in_any_batch(
    options, left_pad_source, left_pad_target
):
    assert_the_same_alone(build_strong(**options), 3, left_pad_source, left_pad_target)


def assert_the_same_alone(model, seed, *left_pad):
    sources, prefixes = lengths_case(seed)
    alone = [score(model, [s], [p])[0] for s, p in zip(sources, prefixes, strict=True)]
    assert_close(score(model, sources, prefixes, *left_pad), alone)


def beam_case():
    return sentences([5, 3, 8, 2], 1, last=EOS), sentences([9] * 12, 2)


def assert_steps_equal_a_full_pass(model, **tolerance):
    with torch.no_grad():
        for step, full in beam_search(model, *beam_case()):
            assert_close(step, full, **tolerance)


@every_setting
@pytest.mark.parametrize("shared_keys", [False, True])
def test_step_by_step_equals_full_pass_under_beam_reordering(options, shared_keys):
    model = build_strong(**options)
    if shared_keys:
        model.decoder.set_beam_size(3)
    assert_steps_equal_a_full_pass(model, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("shared_keys", [False, True])
@pytest.mark.parametrize("kind", ["self_attn", "encoder_attn"])
def test_the_beam_test_notices_a_forgotten_reorder(kind, shared_keys, monkeypatch):
    """The test above is worth something: without the reorder of the kept rows it fails."""
    model = build_strong()
    if shared_keys:
        model.decoder.set_beam_size(3)
    for layer in model.decoder.layers:
        module = getattr(layer, kind)

        def forgets(state, order, module=module, reorder=module.reorder_incremental_state):
            kept = module.get_incremental_state(state, "logit_state")
            reorder(state, order)
            if kept:  # only shrinks with the batch
                kept = {name: value[: len(order)] for name, value in kept.items()}
                module.set_incremental_state(state, "logit_state", kept)
            return state

        monkeypatch.setattr(module, "reorder_incremental_state", forgets)
    with torch.no_grad():
        worst = max((step - full).abs().max() for step, full in beam_search(model, *beam_case()))
    assert worst > 1e-2


@pytest.mark.parametrize(
    "options",
    [
        {"ea_branch": "convolution"},
        {"ea_scores": "dense_synthesizer", **SHORT},
        {"ea_scores": "random_synthesizer", **SHORT},
        {"ea_variant": "multi_token"},
    ],
    ids=lambda options: "-".join(map(str, next(iter(options.items())))),
)
def test_step_by_step_equals_full_pass_with_left_padded_targets(options):
    # Without positions: fairseq counts them from the padding when it goes step by step.
    model = build_strong(no_token_positional_embeddings=True, **options)
    for step, full in padded_steps(model, sentences([4, 6], 1, last=EOS), sentences([3, 7], 2)):
        assert_close(step, full)


def padded_steps(model, sources, prefixes):
    """The scores of each step over targets that are padded left, and those of a full pass."""
    tokens = padded(prefixes, left=True)
    with torch.no_grad():
        encoder_out, state = model.encoder(padded(sources, left=True)), {}
        full, _ = model.decoder(tokens, encoder_out=encoder_out)
        for t in range(tokens.size(1)):
            prefix = tokens[:, : t + 1]
            step, _ = model.decoder(prefix, encoder_out=encoder_out, incremental_state=state)
            real = tokens[:, t] != PAD
            yield step[real, -1], full[real, t]


def neutral_and_fairseqs(**options):
    """A model whose evolving attention does nothing, and fairseq's with the same weights."""
    ours = build_strong(ea_alpha=0.0, ea_beta=0.0, ea_skip=ALL, **options)
    theirs = build("transformer_lite", **options).double().eval()
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            if name.rpartition(".")[2] in ("c_attn", "w_resid") or "_ln" in name:
                parameter.uniform_(0.5, 1.5)
    shared = {
        name: value
        for name, value in ours.state_dict().items()
        if ".transform." not in name and name != "ea_version"
    }
    theirs.load_state_dict(shared)
    return ours, theirs


def norm_first(answer):
    return {"encoder_normalize_before": answer, "decoder_normalize_before": answer}


#: fairseq's own options, which hold with evolving attention as without.
FAIRSEQS = [
    norm_first(False),
    norm_first(True),
    {"scale_heads": True},
    {"scale_attn": True},
    {"scale_fc": True},
    {"scale_resids": True},
    {"layernorm_embedding": True},
    {"no_scale_embedding": True},
    {"activation_fn": "gelu"},
    {"encoder_learned_pos": True, "decoder_learned_pos": True},
    {"no_token_positional_embeddings": True},
    {"decoder_embed_dim": 24, "decoder_input_dim": 16, "decoder_output_dim": 8},
    {"encoder_attention_heads": 2, "decoder_attention_heads": 8},
    {"share_all_embeddings": True},
    {"share_decoder_input_output_embed": True},
    {"quant_noise_pq": 0.1, "quant_noise_pq_block_size": 4},
]
fairseqs_options = pytest.mark.parametrize(
    "options", FAIRSEQS, ids=lambda options: " ".join(f"{k}={v}" for k, v in options.items())
)


@fairseqs_options
def test_alpha_and_beta_zero_equal_fairseqs_transformer(options):
    ours, theirs = neutral_and_fairseqs(**options)
    sources, prefixes = lengths_case(seed=5)
    found, expected = (score(model, sources, prefixes) for model in (ours, theirs))
    # fairseq's encoder-decoder attention takes its softmax in float32.
    assert_close(found, expected, atol=1e-6, rtol=1e-5)
    source, target = padded(sources, left=True), padded(prefixes)
    with torch.no_grad():  # and with a decoder that sees later tokens too
        whole = [
            m.decoder(target, encoder_out=m.encoder(source), full_context_alignment=True)[0]
            for m in (ours, theirs)
        ]
    real = target != PAD
    assert_close(*(found[real] for found in whole), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("norm_before", [False, True])
@pytest.mark.parametrize("place", ["dropout", "attention_dropout", "activation_dropout"])
@pytest.mark.parametrize("compiled", [True, False])
def test_dropout_falls_where_fairseqs_falls(place, norm_before, compiled):
    """In training, with a rate of 1, so that nothing is left to chance: all of it falls."""
    rates = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, place: 1.0}
    models = neutral_and_fairseqs(**rates, **norm_first(norm_before))
    sources, prefixes = lengths_case(seed=5)
    with contextlib.nullcontext() if compiled else torch_alone():
        whole, _ = [score(model, sources, prefixes) for model in models]
        ours, theirs = [score(model.train(), sources, prefixes) for model in models]
    assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    for one, kept in zip(ours, whole, strict=True):
        assert not torch.allclose(one, kept, atol=1e-2)


@every_setting
def test_every_parameter_gets_a_gradient(options):
    model = build_strong(**options).train()
    sources, prefixes = lengths_case(seed=6)
    scores = scores_of(model, padded(sources, left=True), padded(prefixes))
    scores.log_softmax(-1)[..., EOS].sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.ne(0).any(), name


def test_architectures_have_the_papers_alpha_and_beta():
    lite = build("ea_transformer_lite", sizes={}).encoder.layers[0].self_attn.transform
    base = build("ea_transformer_base", sizes={}).encoder.layers[0].self_attn.transform
    assert (lite.alpha, lite.beta) == (0.1, 0.1)
    assert (base.alpha, base.beta) == (0.5, 0.1)


# fairseq's options with evolving attention.


def train_step(model):
    """A loss and the gradients of the parameters that have one."""
    sources, prefixes = lengths_case(seed=8)
    model.zero_grad()
    scores, _ = model(padded(sources, left=True), None, padded(prefixes))
    loss = scores.log_softmax(-1)[..., EOS].mean()
    loss.backward()
    return loss, {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def test_checkpointed_activations_give_the_same_loss_and_gradients():
    plain = build_strong(ea_skip=ALL).train()
    wrapped = build_strong(ea_skip=ALL, checkpoint_activations=True).train()
    wrapped.load_state_dict(plain.state_dict())
    torch.manual_seed(11)
    loss, grads = train_step(plain)
    torch.manual_seed(11)  # the same dropout
    other_loss, other_grads = train_step(wrapped)
    assert_close((loss, grads), (other_loss, other_grads))


def test_layerdrop_carries_logits_over_dropped_layers():
    """The layers that are left are a model of their own, in which each follows the one before."""
    options = {"ea_alpha": 0.4, "ea_beta": 0.5, "ea_skip": ALL, "dropout": 0.0}
    model = build_strong(encoder_layerdrop=0.5, decoder_layerdrop=0.5, **options)
    sources, prefixes = lengths_case(seed=9)
    whole = score(model, sources, prefixes)
    assert torch.equal(whole[0], score(model, sources, prefixes)[0])  # no dropping in eval mode
    ran = {"encoder": [], "decoder": []}
    for side, found in ran.items():
        for index, layer in enumerate(getattr(model, side).layers.children()):
            layer.register_forward_hook(lambda *_, found=found, i=index: found.append(i))
    model.train()
    jumps = set()
    for seed in range(8):
        torch.manual_seed(seed)
        ran["encoder"].clear(), ran["decoder"].clear()
        scores = score(model, sources, prefixes)
        if not all(ran.values()):
            continue
        left = build(
            "ea_transformer_lite", **options, **{f"{side}_layers": len(ran[side]) for side in ran}
        )
        weights = {name: model.state_dict()[renamed(name, ran)] for name in left.state_dict()}
        left.double().eval().load_state_dict(weights)
        assert_close(scores, score(left, sources, prefixes))
        jumps |= {side for side in ran if ran[side][0] == 0 and ran[side][-1] > len(ran[side]) - 1}
    assert jumps == {"encoder", "decoder"}  # over a layer between two others
    for _ in range(4):
        _, grads = train_step(model)
        assert grads and all(grad.isfinite().all() for grad in grads.values())


def renamed(name, ran):
    """The whole model's name of what one of the layers that ran has; numbers are those in ran."""
    side, *rest = name.split(".")
    if rest and rest[0] == "layers":
        rest[1] = str(ran[side][int(rest[1])])
    return ".".join([side, *rest])


def test_a_stack_cut_to_some_layers_is_the_whole_without_the_others():
    """As fairseq-generate cuts it, with --encoder-layers-to-keep in --model-overrides."""
    kept = {"encoder": [0, 2], "decoder": [1, 2]}
    options = {f"{side}_layers_to_keep": ",".join(map(str, kept[side])) for side in kept}
    whole, cut = build_strong(ea_skip=ALL), build_strong(ea_skip=ALL, seed=1, **options)
    model_cfg = argparse.Namespace(arch="ea_transformer_lite", **options)
    cut.load_state_dict(whole.state_dict(), strict=True, model_cfg=model_cfg)
    for side, indices in kept.items():
        stack = getattr(whole, side)
        stack.layers = torch.nn.ModuleList(stack.layers[i] for i in indices)
    case = lengths_case()
    assert_close(score(cut, *case), score(whole, *case))


@fairseqs_options
def test_properties_hold_with_fairseqs_options(options):
    model = build_strong(**options)
    assert_the_same_alone(model, 10)
    assert_steps_equal_a_full_pass(model, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("dtype,tolerance", [(torch.bfloat16, 0.3), (torch.float16, 0.05)])
def test_half_precision_follows_float32(dtype, tolerance):
    sources, prefixes = lengths_case(seed=12)
    model = build_strong(ea_skip=ALL).float()
    expected = score(model, sources, prefixes)
    for part in ("ea_alpha", "ea_beta"):  # shows more than rounding may hide
        without = score(build_strong(ea_skip=ALL, **{part: 0.0}).float(), sources, prefixes)
        assert (torch.cat(without) - torch.cat(expected)).abs().max() > 3 * tolerance
    for scores, wanted in zip(score(model.to(dtype), sources, prefixes), expected, strict=True):
        assert scores.dtype == dtype
        assert_close(scores.float(), wanted, atol=tolerance, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_automatic_mixed_precision_trains_and_decodes(variant):
    """As with --amp: parameters in float32, products in bfloat16, maps in float32 again."""
    options = next(options for _, options in settings_of(variant))
    model = build_strong(**options).float()
    if variant == "multi_token":  # sums of so many that rounding chose the maps
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.mul_(0.3 if ".transform." in name else 1.0)
    sources, prefixes = lengths_case(seed=12)
    expected = score(model, sources, prefixes)
    with torch.autocast("cpu", torch.bfloat16):
        found = score(model, sources, prefixes)
        assert_steps_equal_a_full_pass(model, atol=0.3, rtol=0)
        scores, _ = model(padded(sources, left=True), None, padded(prefixes))
        scores.float().log_softmax(-1)[..., EOS].sum().backward()
    assert_close([scores.float() for scores in found], expected, atol=0.3, rtol=0)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("kernel_size", [3, 5, 9])
@pytest.mark.parametrize("compiled", [True, False])
def test_targets_too_short_for_the_move_leave_gradients_of_zero(kernel_size, compiled):
    """Not none at all: torch's DDP would wait for them for ever."""
    model = build("ea_transformer_lite", ea_kernel_size=kernel_size).train()
    for length in range(1, kernel_size // 2 + 1):
        model.zero_grad()
        with contextlib.nullcontext() if compiled else torch_alone():
            sources, prefixes = sentences([4, 2], 1, last=EOS), sentences([length] * 2, 2)
            scores, _ = model(padded(sources, left=True), None, padded(prefixes))
            scores.sum().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            if "decoder" in name and ".transform." in name:
                assert parameter.grad.eq(0).all(), name


def test_dropout_retained_while_decoding_reaches_every_attention():
    """As fairseq-generate --retain-dropout asks for, by the names of fairseq's own classes."""

    def names(model):
        dropouts = (m for m in model.modules() if isinstance(m, FairseqDropout))
        return [dropout.module_name for dropout in dropouts]

    assert names(build("ea_transformer_lite")) == names(build("transformer_lite"))
    model = build_strong(attention_dropout=0.5, dropout=0.0, activation_dropout=0.0)
    encoder_out = model.encoder(padded(sentences([5, 3], 1, last=EOS), left=True))
    prefix = padded(sentences([1, 1], 2))

    def step():
        torch.manual_seed(len(seen))
        seen.append(model.decoder(prefix, encoder_out=encoder_out, incremental_state={})[0])
        return seen[-1]

    seen = []
    assert torch.equal(step(), step())
    for attention in ("self_attn", "encoder_attn"):
        for module in model.decoder.modules():
            if isinstance(module, FairseqDropout):
                module.apply_during_inference = False
        for layer in model.decoder.layers:
            getattr(layer, attention).dropout_module.apply_during_inference = True
        assert not torch.equal(step(), step()), attention


def test_attention_of_the_chosen_layer_and_heads_is_returned():
    model = build_strong()
    sources, prefixes = lengths_case(seed=13)
    layers = list(model.decoder.layers)
    probs, outputs = {}, {}
    for index, layer in enumerate(layers):
        layer.encoder_attn.register_forward_hook(
            lambda _, __, result, i=index: probs.update({i: result[1]})
        )
        layer.register_forward_hook(lambda _, __, result, i=index: outputs.update({i: result[0]}))
    with torch.no_grad():
        for layer, heads in ((None, None), (0, 2), (2, 1)):
            _, extra = model(
                padded(sources, left=True),
                None,
                padded(prefixes),
                alignment_layer=layer,
                alignment_heads=heads,
            )
            attn = extra["attn"][0]
            assert attn.shape == (5, 9, 8)
            expected = probs[2 if layer is None else layer][:heads].mean(dim=0)
            assert_close(attn, expected)
            real = padded(prefixes) != PAD
            assert_close(attn.sum(-1)[real], torch.ones_like(attn.sum(-1)[real]))
    embedded, *states = extra["inner_states"]
    assert embedded.shape == (9, 5, 16) and len(states) == 3
    assert all(torch.equal(state, outputs[i]) for i, state in enumerate(states))


def test_the_encoder_returns_each_layers_output_and_takes_other_embeddings():
    model = build_strong()
    encoder, outputs = model.encoder, []
    for layer in encoder.layers:
        layer.register_forward_hook(lambda _, __, result: outputs.append(result[0]))
    tokens = padded(lengths_case(seed=13)[0], left=True)
    with torch.no_grad():
        found = encoder(tokens, return_all_hiddens=True)
        embedded, *states = found["encoder_states"]
        assert len(states) == 3 and all(map(torch.equal, states, outputs))
        assert torch.equal(embedded.transpose(0, 1)[tokens == PAD], embedded.new_zeros(17, 16))
        others = encoder.embed_tokens(tokens)
        again = encoder(tokens, token_embeddings=others)["encoder_out"][0]
        assert torch.equal(again, found["encoder_out"][0])
        changed = encoder(tokens, token_embeddings=2 * others)["encoder_out"][0]
        assert not torch.isclose(changed, again).all()


# Checkpoints.


def test_a_plain_transformers_checkpoint_continues_with_fresh_convolutions(caplog):
    plain = build("transformer_lite")
    model = build("ea_transformer_lite")
    fresh = {n: p.clone() for n, p in model.state_dict().items() if ".transform." in n}
    with caplog.at_level(logging.INFO):
        model.load_state_dict(plain.state_dict(), strict=True)
    assert "start fresh" in caplog.text
    loaded = model.state_dict()
    assert fresh and all(torch.equal(loaded[name], value) for name, value in fresh.items())
    assert all(torch.equal(loaded[name], value) for name, value in plain.state_dict().items())
    for lacks in ("encoder.layers.0.self_attn.k_proj.weight", "decoder.layers.2.fc1.bias"):
        rest = {name: value for name, value in plain.state_dict().items() if name != lacks}
        with pytest.raises(RuntimeError, match=f'Missing key.*"{lacks}"'):
            build("ea_transformer_lite").load_state_dict(rest, strict=True)


def test_nothing_is_said_to_start_fresh_where_nothing_does(caplog):
    """fairseq's --store-ema loads its weights after each update, without the marker."""
    model = build("ea_transformer_lite", ea_convolution="none")
    weights = {name: value for name, value in model.state_dict().items() if "version" not in name}
    with caplog.at_level(logging.INFO):
        model.load_state_dict(weights, strict=True)
    assert not caplog.text


def test_an_ea_checkpoint_never_gets_fresh_convolutions(caplog):
    without = build("ea_transformer_lite", ea_convolution="none")
    model = build("ea_transformer_lite")
    with pytest.raises(RuntimeError, match="transform.convolution"):
        model.load_state_dict(without.state_dict(), strict=True)
    some = {n: p for n, p in model.state_dict().items() if "layers.0.self_attn.transform" not in n}
    unmarked = {n: p for n, p in some.items() if n != "ea_version"}
    for weights in (some, unmarked):
        with pytest.raises(RuntimeError, match="transform.convolution"):
            model.load_state_dict(weights, strict=True)
    with pytest.raises(RuntimeError, match="size mismatch"):
        model.load_state_dict(build("ea_transformer_lite", ea_kernel_size=5).state_dict())


def test_an_option_that_came_later_is_stored_only_where_it_is_used():
    """A checkpoint without it is read by the version before, which knows these options alone."""
    names = ["ea_alpha", "ea_beta", "ea_convolution", "ea_kernel_size", "ea_skip", "ea_variant"]

    def stored(**options):
        settings = vars(build("ea_transformer_lite", **options).args)
        return sorted(name for name in settings if name.startswith("ea_"))

    assert stored() == stored(ea_learned_mixing=False) == names
    assert stored(ea_learned_mixing=True) == sorted([*names, "ea_learned_mixing"])


def test_a_checkpoint_has_options_without_effect():
    """It has all of them, used or not; and fairseq has the architecture complete them twice."""
    everything = {"ea_alpha": 0.1, "ea_beta": 0.1, "ea_kernel_size": 3, "ea_skip": "encoder"}
    everything |= {"ea_convolution": "encoder,decoder", "ea_variant": "evolving"}
    chain = {"ea_variant": "encoder=plain,decoder=evolving"}
    for options in (
        {"ea_skip": "none", "ea_alpha": 0.3},
        {"ea_convolution": "none", "ea_beta": 0.3},
        {**chain, "ea_alpha": 0.3},
        {**chain, "ea_convolution": "encoder"},
        {"ea_skip": "none", "ea_convolution": "none", "ea_learned_mixing": True},
    ):
        build("ea_transformer_lite", **everything | options)
    args = argparse.Namespace(**TINY, ea_variant="encoder=residual,encoder-decoder=evolving")
    for _ in range(2):
        ARCH_CONFIG_REGISTRY["ea_transformer_lite"](args)


def test_options_without_effect_are_told_of_where_somebody_gives_all_of_them(caplog):
    """Which looks like a checkpoint's: a plain Transformer was trained as a residual one."""
    options = {"ea_variant": "encoder=residual", "ea_skip": "decoder"}
    build("ea_transformer_lite", **options)
    (message,) = {m for m in caplog.messages if "no effect" in m}
    assert message.startswith("--ea-skip decoder has no effect: ")
    caplog.clear()
    build("ea_transformer_lite", **options | {"ea_skip": "encoder"})
    build("ea_transformer_lite", ea_variant="encoder=plain,decoder=evolving", ea_skip="decoder")
    assert not [m for m in caplog.messages if "no effect" in m]


def test_a_chain_may_say_alpha_for_all_its_variants():
    chain = "encoder=predictive,decoder=evolving,encoder-decoder=evolving"
    model = build("ea_transformer_base", ea_variant=chain, ea_alpha=0.3)
    assert model.encoder.layers[1].self_attn.transform.alpha == 0.3
