"""The attention library without fairseq: Attention, Encoder, attend, steps, what they refuse."""

import contextlib
import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from reference import attention as reference_attention
from torch import nn
from torch.utils.checkpoint import checkpoint

from ea_fairseq.attention import (
    VARIANTS,
    Attention,
    AttentionCache,
    Encoder,
    attend,
    attend_step,
    build_transform,
    visible_pairs,
)
from ea_fairseq.attention.contract import Place
from ea_fairseq.attention.functional import _without_overlap
from ea_fairseq.errors import UserError
from ea_fairseq.kernels.cpp.library import torch_alone

WIDTH, HEADS, LENGTHS = 12, 4, (6, 4, 1, 3, 6)
STRONG = {"beta": 0.6, "kernel_size": 3}
KINDS = ("encoder", "decoder", "encoder-decoder")


def padding_of(lengths, left=False, longest=None):
    longest = longest or max(lengths)
    places = torch.arange(longest)
    lengths = torch.tensor(lengths)[:, None]
    return places < longest - lengths if left else places >= lengths


def strong(module):
    """Parameters of the maps drawn large, so that nothing is lost in rounding."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "transform" in name or "scores" in name:
                parameter.normal_()
    return module.double().eval()


def attention(kind, layer=0, **options):
    torch.manual_seed(layer)
    return strong(Attention(WIDTH, HEADS, kind, layer=layer, num_layers=2, **STRONG, **options))


def two_layers(kind, **options):
    return [attention(kind, layer, **options) for layer in range(2)]


def skipping(kind):
    return {"skip": kind, "alpha": 0.4}


def run_two(layers, query, key=None, padding=None, query_padding=None, bias=None):
    """Output, carry and probabilities of each of two layers, one on top of the other."""
    carry, results = None, []
    for layer in layers:
        query, carry, probs = layer(
            query, key, padding, carry, query_padding=query_padding, bias=bias, need_probs=True
        )
        results.append((query, carry, probs))
    return results


def by_loops(layer, options, query, key, carry, bias):
    """One sentence through one attention: equation (4) of arXiv 2102.12895 in loops."""
    named = {name: p.detach().numpy() for name, p in layer.named_parameters()}
    project = {
        one: x.numpy() @ named[f"{one}_proj.weight"].T + named[f"{one}_proj.bias"]
        for one, x in (("q", query), ("k", key), ("v", key))
    }
    heads = {n: x.reshape(len(x), HEADS, -1).transpose(1, 0, 2) for n, x in project.items()}
    logits = np.einsum("htd,hsd->hts", heads["q"], heads["k"]) / np.sqrt(WIDTH // HEADS)
    visible = np.ones(logits.shape[1:], dtype=bool)
    if layer.kind == "decoder":
        visible = np.tril(visible)
    carry, probs, output = reference_attention(
        "evolving",
        (logits + bias) * visible,
        carry,
        visible,
        {name.removeprefix("transform."): p for name, p in named.items() if "transform" in name},
        Place(layer.kind, HEADS, WIDTH // HEADS, 0 if carry is None else 1, 2),
        options,
        (heads["q"], heads["k"], heads["v"]),
    )
    output = output.transpose(1, 0, 2).reshape(len(query), WIDTH)
    return output @ named["out_proj.weight"].T + named["out_proj.bias"], carry, probs


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_loops_and_sentences_alone(kind, left):
    layers = two_layers(kind, **skipping(kind))
    torch.manual_seed(5)
    query = torch.randn(len(LENGTHS), max(LENGTHS), WIDTH, dtype=torch.float64)
    key, src_lengths = None, LENGTHS
    if kind == "encoder-decoder":
        src_lengths = (3, 5, 2, 1, 4)
        key = torch.randn(len(LENGTHS), max(src_lengths), WIDTH, dtype=torch.float64)
    bias = torch.randn(1, HEADS, max(LENGTHS), max(src_lengths), dtype=torch.float64)
    padding, query_padding = padding_of(src_lengths, left), padding_of(LENGTHS, left)
    query[query_padding] = 1e3
    chosen = VARIANTS["evolving"].options(**STRONG, **skipping(kind))
    given = (query_padding,) if key is not None else (None,)
    with torch.no_grad():
        batch = run_two(layers, query, key, padding, *given, bias)
        for sentence in range(len(LENGTHS)):
            rows, columns = ~query_padding[sentence], ~padding[sentence]
            x = query[sentence, rows]
            y = None if key is None else key[sentence, columns]
            added = bias[:, :, rows][:, :, :, columns]
            alone = run_two(layers, x[None], None if y is None else y[None], bias=added)
            carry = None
            for layer, (outputs, carries, maps), ours in zip(layers, batch, alone, strict=True):
                expected, carry, probs = by_loops(
                    layer, chosen, x, x if y is None else y, carry, added[0].numpy()
                )
                where = np.ix_(range(HEADS), rows.numpy(), columns.numpy())
                for found in (
                    (outputs[sentence, rows], carries[sentence].numpy()[where], maps[sentence]),
                    (ours[0][0], ours[1][0].numpy(), ours[2][0]),
                ):
                    np.testing.assert_allclose(found[0], expected, atol=1e-10)
                    np.testing.assert_allclose(found[1], carry, atol=1e-10)
                np.testing.assert_allclose(maps[sentence].numpy()[where], probs, atol=1e-10)
                x = torch.from_numpy(expected)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_steps_equal_the_full_pass_while_hypotheses_move(kind, batch_first):
    layers = two_layers(kind, batch_first=batch_first, **skipping(kind))
    torch.manual_seed(6)
    bsz, tgt_len, src_len = 7, 5, 4
    turn = (lambda x: x) if batch_first else (lambda x: x.transpose(0, 1))
    query = torch.randn(bsz, tgt_len, WIDTH, dtype=torch.float64)
    key, padding = None, padding_of((5, 3, 1, 5, 4, 2, 5), left=True)
    query_padding = None
    if kind == "encoder-decoder":
        key = torch.randn(bsz, src_len, WIDTH, dtype=torch.float64)
        query_padding, padding = padding, padding_of((4, 2, 1, 3, 4, 4, 2))
    bias = torch.randn(1, HEADS, tgt_len, src_len if key is not None else tgt_len)
    orders = {1: [2, 0, 0, 5, 6, 1, 3], 2: [6, 2, 1, 4, 0], 4: [3, 1, 1]}
    with torch.no_grad():
        turned = None if key is None else turn(key)
        full = run_two(layers, turn(query), turned, padding, query_padding, bias)
        caches, sentences = [AttentionCache() for _ in layers], torch.arange(bsz)
        for t in range(tgt_len):
            if t in orders:
                order = torch.tensor(orders[t])
                sentences = sentences[order]
                for cache in caches:
                    cache.reorder(order)
            x, carry = turn(query[sentences, t : t + 1]), None
            columns = src_len if key is not None else t + 1
            for layer, cache, (outputs, carries, maps) in zip(layers, caches, full, strict=True):
                if key is None:
                    more = {"padding": padding[sentences, t : t + 1]}
                else:
                    more = {"query_padding": query_padding[sentences, t : t + 1]}
                    if t == 0:
                        more |= {"key": turned, "padding": padding}
                x, carry, probs = layer.step(
                    x,
                    cache,
                    carry=carry,
                    bias=bias[:, :, t : t + 1, :columns],
                    need_probs=True,
                    **more,
                )
                for found, expected in (
                    (turn(x)[:, 0], turn(outputs)[sentences, t]),
                    (carry[:, :, 0], carries[sentences, :, t, :columns]),
                    (probs[:, :, 0], maps[sentences, :, t, :columns]),
                ):
                    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


def test_hypotheses_of_a_sentence_may_share_its_keys():
    layer = attention("encoder-decoder")
    query, key = torch.randn(6, 1, WIDTH).double(), torch.randn(2, 3, WIDTH).double()
    shared, apart = AttentionCache(), AttentionCache()
    with torch.no_grad():
        one = layer.step(query, shared, key)[0]
        other = layer.step(query, apart, key.repeat_interleave(3, dim=0))[0]
        torch.testing.assert_close(one, other)
        for cache in (shared, apart):
            cache.reorder(torch.tensor([1, 0, 2, 5, 5, 3]))
        torch.testing.assert_close(layer.step(query, shared)[0], layer.step(query, apart)[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scores", ["additive", "dense_synthesizer", "random_synthesizer"])
def test_other_scores_and_variants(kind, scores):
    """Every parameter gets a gradient; what nobody reads is not projected."""
    for variant in ("evolving", "residual", "plain"):
        layer = Attention(WIDTH, HEADS, kind, variant, scores=scores, max_positions=9)
        key = torch.randn(2, 5, WIDTH) if kind == "encoder-decoder" else None
        layer(torch.randn(2, 5, WIDTH), key)[0].square().sum().backward()
        for name, parameter in layer.named_parameters():
            # A bias of all keys alike moves no softmax.
            assert parameter.grad is not None, f"{variant}: {name}"


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("with_carry", [True, False])
def test_a_bias_is_added_before_the_transform(compiled, with_carry):
    """Values and gradients, compiled and not: to the equations written out."""
    torch.manual_seed(2)
    layer = int(with_carry)
    transform = build_transform("evolving", HEADS, 3, layer=layer, num_layers=2, **STRONG).double()
    padding = padding_of((5, 3), left=True)
    visible = visible_pairs(padding, padding)
    inputs = [torch.randn(2, HEADS, 5, 3).double().requires_grad_() for _ in range(3)]
    inputs.append(torch.randn(1, HEADS, 5, 5).double().requires_grad_())
    if with_carry:
        inputs.append(torch.randn(2, HEADS, 5, 5).double().requires_grad_())
    queries, keys, values, bias = inputs[:4]
    carry = inputs[4].masked_fill(~visible, 0) if with_carry else None

    logits = 3**-0.5 * queries @ keys.transpose(2, 3) + bias
    z, _ = transform(logits, visible, carry)
    probs = z.masked_fill(~visible, -1e300).softmax(-1) * visible
    wanted = probs @ values, z, probs
    with contextlib.nullcontext() if compiled else torch_alone():
        found = attend(
            transform, *inputs[:3], visible=visible, carry=carry, bias=bias, need_probs=True
        )
    parameters = [*inputs, *transform.parameters()]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)
    grads = [
        torch.autograd.grad(sum(one.pow(2).sum() for one in result), parameters, retain_graph=True)
        for result in (found, wanted)
    ]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_neutral_encoder_is_torchs(norm_first):
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 20, activation="gelu", batch_first=True, norm_first=norm_first
    )
    plain = nn.TransformerEncoder(layer, 3, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
    for parameter in plain.parameters():
        nn.init.normal_(parameter, std=0.5)
    given = dict(norm_first=norm_first, activation="gelu", norm=True)
    encoder = Encoder(3, WIDTH, HEADS, 20, alpha=0.0, beta=0.0, **given)
    loaded = encoder.load_state_dict(plain.state_dict(), strict=False)
    assert loaded.unexpected_keys == []
    assert all(".transform.convolution." in name for name in loaded.missing_keys)
    assert len(loaded.missing_keys) == 2 * 3
    x, padding = torch.randn(5, 6, WIDTH), padding_of(LENGTHS, left=True)
    expected = plain.eval()(x, src_key_padding_mask=padding)
    found = encoder.eval()(x, padding)
    torch.testing.assert_close(found[~padding], expected[~padding], atol=1e-5, rtol=1e-5)
    evolved = Encoder(3, WIDTH, HEADS, 20, alpha=0.4, beta=0.4, **given)
    evolved.load_state_dict(encoder.state_dict())
    assert (evolved.eval()(x, padding) - expected)[~padding].abs().max() > 1e-2


def test_torchs_attention_with_other_widths_loads():
    plain = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, kdim=10, vdim=10)
    layer = Attention(WIDTH, HEADS, "encoder-decoder", kdim=10, beta=0.0)
    loaded = layer.load_state_dict(plain.state_dict(), strict=False)
    assert not loaded.unexpected_keys
    assert all("transform" in name for name in loaded.missing_keys)
    query, key, padding = torch.randn(2, 4, WIDTH), torch.randn(2, 5, 10), padding_of((5, 3))
    nn.init.normal_(layer.q_proj.bias)
    plain.load_state_dict(
        {"in_proj_bias": torch.cat([layer.q_proj.bias, torch.zeros(2 * WIDTH)])}, strict=False
    )
    expected = plain(query, key, key, key_padding_mask=padding)[0]
    torch.testing.assert_close(layer(query, key, padding)[0], expected, atol=1e-5, rtol=1e-5)


def test_an_encoder_begins_as_torchs():
    """Sizes of the weights drawn: what one trains from is no other model."""
    torch.manual_seed(0)
    ours = Encoder(1, 64, 4, 128).layers[0].self_attn
    plain = nn.MultiheadAttention(64, 4)
    for name, part in zip("qkv", plain.in_proj_weight.chunk(3), strict=True):
        drawn = getattr(ours, f"{name}_proj").weight
        assert abs(drawn.std() / part.std() - 1) < 0.05 and ours.q_proj.bias.eq(0).all()


class Separable(nn.Module):
    """Depthwise-separable: a kernel for each head, and a mixture of heads."""

    def __init__(self, num_heads, kernel_size):
        super().__init__()
        self.depthwise = nn.Parameter(torch.randn(num_heads, kernel_size, kernel_size))
        self.pointwise = nn.Parameter(torch.randn(num_heads, num_heads))
        self.bias = nn.Parameter(torch.randn(num_heads))

    def kernel(self):
        return self.pointwise[:, :, None, None] * self.depthwise


@pytest.mark.parametrize("kind", KINDS)
def test_a_convolution_can_be_given(kind):
    """It computes what the whole kernel does, cut to its region; and goes row by row."""
    given = Separable(HEADS, 3)
    layer = Attention(WIDTH, HEADS, kind, convolution=given, **STRONG).double()
    whole = Attention(WIDTH, HEADS, kind, **STRONG).double()
    whole.load_state_dict(layer.state_dict(), strict=False)
    with torch.no_grad():
        whole.transform.convolution.weight.copy_(given.kernel())
        whole.transform.convolution.bias.copy_(given.bias)
    query = torch.randn(2, 5, WIDTH).double()
    key = torch.randn(2, 4, WIDTH).double() if kind == "encoder-decoder" else None
    output = layer(query, key)[0]
    torch.testing.assert_close(output, whole(query, key)[0])
    output.square().sum().backward()
    assert all(p.grad is not None and p.grad.ne(0).any() for p in given.parameters())
    names = {name for name, _ in layer.transform.named_parameters()}
    assert names == {f"convolution.module.{n}" for n in ("depthwise", "pointwise", "bias")}
    if kind != "encoder":
        cache = AttentionCache()
        with torch.no_grad():
            rows = [
                layer.step(query[:, t : t + 1], cache, key if t == 0 else None)[0] for t in range(5)
            ]
        torch.testing.assert_close(torch.cat(rows, dim=1), output)


def test_an_encoder_makes_a_convolution_for_each_layer():
    encoder = Encoder(2, WIDTH, HEADS, 8, convolution=Separable)
    modules = [layer.self_attn.transform.convolution.module for layer in encoder.layers]
    assert modules[0] is not modules[1]


# What trains models in other people's programs.


def small_encoder():
    torch.manual_seed(3)
    encoder = Encoder(3, WIDTH, HEADS, 8, dropout=0.0, alpha=0.4, beta=0.5)
    return encoder, torch.randn(5, 6, WIDTH), padding_of(LENGTHS)


def gradients(encoder, output, padding):
    loss = output.masked_fill(padding.unsqueeze(-1), 0).pow(2).sum()
    return torch.autograd.grad(loss, list(encoder.parameters()))


def test_checkpointing_changes_no_gradient():
    encoder, x, padding = small_encoder()
    expected = gradients(encoder, encoder(x, padding), padding)
    output, carry = x, None
    for layer in encoder.layers:
        output, carry = checkpoint(layer, output, padding, carry, use_reentrant=False)
    for one, other in zip(gradients(encoder, output, padding), expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_other_numbers_go_through_and_autocast_keeps_maps_in_float32():
    encoder, x, padding = small_encoder()
    expected = encoder(x, padding)[~padding]
    with torch.autocast("cpu", torch.bfloat16):
        output, carry = encoder.layers[0](x, padding)
        apart = (encoder(x, padding)[~padding].float() - expected).abs().max()
    assert carry.dtype == torch.float32 and output.shape == x.shape
    assert 0 < apart < 0.2  # bfloat16 has three digits
    double = encoder.double()(x.double(), padding)[~padding]
    torch.testing.assert_close(double.float(), expected, atol=1e-5, rtol=1e-5)
    half = encoder.bfloat16()(x.bfloat16(), padding)[~padding]
    torch.testing.assert_close(half.float(), expected, atol=0.2, rtol=0.2)


@pytest.mark.thorough
def test_torch_compile_changes_nothing():
    encoder, x, padding = small_encoder()
    expected = encoder(x, padding)
    found = torch.compile(encoder, backend="aot_eager")(x, padding)
    torch.testing.assert_close(found[~padding], expected[~padding], atol=1e-5, rtol=1e-5)
    pairs = zip(
        gradients(encoder, found, padding), gradients(encoder, expected, padding), strict=True
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_distributed_training_waits_for_no_parameter(process_group):
    with process_group():
        for variant in VARIANTS:
            if "encoder" in VARIANTS[variant].serves:
                encoder = Encoder(2, WIDTH, HEADS, 8, dropout=0.0, variant=variant)
                model = nn.parallel.DistributedDataParallel(encoder)
                for _ in range(2):  # the second pass finds what the first has not reduced
                    model(torch.randn(2, 4, WIDTH)).pow(2).sum().backward()
        model = None  # the last to hold the group, it may hang


# What is refused.


def refused(words, call, *args, **more):
    with pytest.raises(UserError, match=words):
        call(*args, **more)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"alpha": 2}, r"^alpha must be a number in \[0, 1\], not 2"),
        ({"alpha": True}, r"^alpha must be a number in \[0, 1\], not True"),
        (
            {"beta": nn.Parameter(torch.tensor(0.1))},
            "^beta is a number; learned_mixing=True learns",
        ),
        ({"alfa": 0.1}, "^alfa is no option of evolving .*: perhaps you meant alpha"),
        ({"kernel_size": 4}, "^kernel_size must be"),
        ({"variant": "evolve"}, "^variant must be one of .*: perhaps you meant evolving"),
        ({"alpha": 0.1}, "^alpha would have no effect: num_layers=1 has no layer below"),
        ({"variant": "multi_token", "head_group": 3}, "^head_group must divide the 4 heads"),
        ({"kind": "cross"}, "^kind must be one of encoder, decoder, encoder-decoder, not 'cross'"),
        ({"kind": "decoder", "alpha": 0.1}, "^alpha would have no effect: skip encoder gives"),
        ({"variant": "bird_eye"}, "^bird_eye serves decoder attention, not kind='encoder'"),
        ({"num_heads": 5}, "^num_heads must divide embed_dim 12, not 5"),
        ({"num_heads": "4"}, "^num_heads must be a whole number from 1 on, not '4'"),
        ({"num_heads": True}, "^num_heads must be a whole number from 1 on, not True"),
        ({"scores": "addition"}, "^scores must be one of .*: perhaps you meant additive"),
        ({"kdim": 3}, "^kdim is for kind='encoder-decoder'"),
        ({"layer": 2, "num_layers": 2}, "^layer must be from 0 to 1 .* not 2"),
        ({"convolution": lambda heads, size: None}, "^convolution must make a module, not None"),
        (
            {"convolution": lambda heads, size: Separable(heads, size + 2)},
            r"kernel\(\) must be .* \(4, 4, 3, 3\)",
        ),
        (
            {"convolution": lambda heads, size: nn.Identity()},
            r"Identity: its kernel\(\) must be .* not NoneType",
        ),
        ({"variant": "residual", "convolution": Separable}, "residual has none here"),
    ],
)
def test_options_are_the_variants_own(given, words):
    refused(words, Attention, WIDTH, **{"num_heads": HEADS, **given})


def test_an_encoders_own_arguments_are_refused():
    for given, words in (
        ({"activation": "tanhh"}, "^activation must be one of relu, gelu"),
        ({"convolution": Separable(HEADS, 3)}, "a function of .* not one module for all"),
    ):
        refused(words, Encoder, 2, WIDTH, HEADS, 8, **given)


X, OTHER, PADDING = torch.zeros(2, 5, WIDTH), torch.zeros(2, 3, WIDTH), padding_of((5, 2))
ENCODER, CROSS = Attention(WIDTH, HEADS), Attention(WIDTH, HEADS, "encoder-decoder")
SECOND = Attention(WIDTH, HEADS, layer=1, num_layers=2)
SYNTHESIZER = Attention(WIDTH, HEADS, scores="random_synthesizer", max_positions=4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ENCODER(X, OTHER), "key is for kind='encoder-decoder'"),
        (lambda: ENCODER(X, None, PADDING.float()), r"padding must be torch.bool \(2, 5\)"),
        (lambda: ENCODER(X, None, PADDING.t()), r"padding must be .* \(2, 5\).* not .*\(5, 2\)"),
        (lambda: ENCODER(X, None, [5, 2]), "padding must be .* not a list"),
        (lambda: SECOND(X, carry=torch.zeros(2, 3, 5, 5)), r"carry must be \(2, 4, 5, 5\)"),
        (lambda: SECOND(X, carry=ENCODER(X)), r"carry must be \(2, 4, 5, 5\), not a tuple"),
        (lambda: SECOND(X, carry=torch.zeros(2, 4, 5, 5).double()), "^carry must be torch.float32"),
        (lambda: SECOND(X, carry=torch.zeros(2, 4, 5, 5).bool()), "^carry must be torch.float32"),
        (lambda: SYNTHESIZER(X), "^a sentence of 5 tokens is longer than max_positions 4, "),
        (lambda: ENCODER(X, bias=torch.zeros(4, 5, 4)), r"bias must be broadcastable to \(2, 4"),
        (lambda: ENCODER(X, query_padding=PADDING), "query_padding is for"),
        (lambda: ENCODER(X[0]), r"query and key have three dimensions, not \(5, 12\)"),
        (lambda: ENCODER.step(X, AttentionCache()), "kind='encoder' has no steps"),
        (lambda: CROSS(X), "kind='encoder-decoder' needs a key"),
        (lambda: CROSS(X, torch.randn(3, 3, WIDTH)), "key has 3 sentences for 2 of the query"),
        (lambda: CROSS(X, OTHER[:1]), "key has 1 sentences for 2 of the query"),
        (lambda: CROSS(X, OTHER[..., :5]), "key must be 12 wide, not 5"),
        (lambda: ENCODER(X[..., :5]), "query must be 12 wide, not 5"),
        (lambda: ENCODER(X, bias=torch.ones(1, 1, 5, 5).bool()), "bias must be floating-point"),
        (lambda: CROSS.step(X, AttentionCache(), OTHER), "query must be one position, not 5"),
        (lambda: CROSS.step(X[:1, :1].expand(3, -1, -1), AttentionCache(), OTHER), "2 sentences"),
    ],
)
def test_inputs_that_do_not_fit_are_named(call, words):
    refused(words, call)


def test_a_cache_serves_one_attention_and_one_batch():
    """Keys of one layer would be the other's; compiled code would read beyond what it holds."""
    for kind in ("decoder", "encoder-decoder"):
        step, other = two_layers(kind, **skipping(kind))
        cache, x = AttentionCache(), torch.randn(2, 1, WIDTH).double()
        key = torch.randn(2, 5, WIDTH).double() if kind == "encoder-decoder" else None
        with torch.no_grad():
            step.step(x, cache, key)
            refused("cache is another attention's", other.step, x, cache)
            for batch in (1, 64):
                more = torch.randn(batch, 1, WIDTH).double()
                refused(f"^query has {batch} hypotheses and the cache", step.step, more, cache)
            cache.state = {name: kept[:1] for name, kept in cache.state.items()}
            refused("^state: pending must be a tensor of 2 rows", step.step, x, cache)


def test_a_state_that_does_not_fit_is_refused():
    transform = strong(build_transform("evolving", HEADS, 3, "decoder"))
    row = torch.randn(2, HEADS, 1, 3).double()
    two = torch.cat([row, row], dim=2)
    with torch.no_grad():
        _, state = attend_step(transform, row, row, row, {})
        attend_step(transform, row, two, two, state)
        pending, rows_visible = state["pending"], state["rows_visible"]
        for given, words in (
            (state | {"pending": pending[:1]}, "pending must be a tensor of 2 rows"),
            (state | {"pending": pending[:, :, :1]}, r"pending must be \(2, 2, 4, columns\), not"),
            (state | {"pending": torch.cat([pending] * 3, 3)}, r"pending must be \(2, 2, 4, col"),
            (state | {"pending": pending.float()}, "pending must be torch.float64 on cpu, as the"),
            (state | {"rows_visible": rows_visible[:, :0]}, "rows_visible must be bool"),
            (state | {"rows_visible": rows_visible.to(torch.uint8)}, "rows_visible must be bool"),
            ({"pending": pending}, "rows_visible must be bool, .* not None"),
        ):
            refused(words, attend_step, transform, row, two, two, given)


class Product(nn.Module):
    """A kernel that automatic mixed precision makes in bfloat16."""

    def __init__(self, num_heads, kernel_size):
        super().__init__()
        self.shape = (num_heads, num_heads, kernel_size, kernel_size)
        self.left = nn.Parameter(torch.randn(num_heads**2, 2))
        self.right = nn.Parameter(torch.randn(2, kernel_size**2))
        self.bias = nn.Parameter(torch.randn(num_heads))

    def kernel(self):
        return (self.left @ self.right).view(self.shape)


def test_a_kernel_of_other_numbers_is_read_as_what_it_is():
    torch.manual_seed(1)
    transform = build_transform("evolving", HEADS, 3, beta=0.6, convolution=Product)
    queries, keys, values = torch.randn(3, 2, HEADS, 5, 3)
    with torch_alone():
        expected = attend(transform, queries, keys, values).output
    torch.testing.assert_close(attend(transform, queries, keys, values).output, expected)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(transform, queries, keys, values).output
    torch.testing.assert_close(found, expected, rtol=0, atol=0.05)
    found = attend(transform, *(one.double() for one in (queries, keys, values))).output
    torch.testing.assert_close(found.float(), expected)
    step = build_transform("evolving", HEADS, 3, "decoder", beta=0.6)
    with torch.no_grad():
        row = queries[:, :, :1]
        expected = attend_step(step, row, row, values[:, :, :1], {})[0].output
        found = attend_step(step, row.double(), row.double(), values[:, :, :1].double(), {})[0]
    torch.testing.assert_close(found.output.float(), expected)


def test_a_carry_goes_from_layer_to_layer():
    """Without one, maps would not evolve and nobody would see it; in steps and by hand as well."""
    x, maps, row = torch.randn(2, 1, WIDTH), torch.zeros(2, HEADS, 1, 1), heads(2, HEADS, 1, 3)
    skips = {"num_layers": 2, **skipping("decoder")}
    for layer, carry, words in (
        (0, maps, "carry is of the layer below, and this attention is layer=0 of its stack"),
        (1, None, "carry is missing: this attention is layer=1 and goes on from what layer 0"),
    ):
        attention = Attention(WIDTH, HEADS, "decoder", layer=layer, **skips)
        transform = build_transform("evolving", HEADS, 3, "decoder", layer=layer, **skips)
        refused(words, attention, x, carry=carry)
        refused(words, attention.step, x, AttentionCache(), carry=carry)
        refused(words, attend, transform, row, row, row, carry=carry)
        refused(words, attend_step, transform, row, row, row, {}, carry=carry)
    plain = build_transform("plain", HEADS, 3, layer=1, num_layers=2)
    assert attend(plain, row, row, row).carry is None  # which carries nothing


def test_visible_pairs_want_both_paddings_and_a_length():
    """Forgotten, what stands in padded rows would reach others; as a length True would be 1."""
    padding = padding_of((3, 2))
    with pytest.raises(TypeError, match="query_padding"):
        visible_pairs(padding)
    refused("^visible_pairs: padding must be bool, ", visible_pairs, padding.float(), None)
    refused("length of the map, not True", visible_pairs, padding, padding, causal=True)
    expected = torch.ones(3, 3).tril().bool() & ~padding[:, None, :, None] & ~padding[:, None, None]
    assert torch.equal(visible_pairs(padding, padding, causal=3), expected)


def heads(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


GOOD, LONGER = heads(2, HEADS, 5, 3), heads(2, HEADS, 6, 3)
TRANSFORMS = {
    kind: build_transform("evolving", HEADS, 3, kind, **STRONG) for kind in ("encoder", "decoder")
}


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ((heads(2, 5, 3), GOOD, GOOD), "queries must be .batch, heads"),
        ((heads(2, 0, 5, 3), GOOD, GOOD), "heads and head_dim not 0"),
        ((GOOD, heads(3, HEADS, 5, 3), GOOD), "keys must be"),
        ((GOOD, heads(2, HEADS, 5, 2), GOOD), "keys must be"),
        ((GOOD, heads(2, 2, 5, 3), GOOD), "keys must be"),
        ((GOOD, GOOD, LONGER), "values must be as keys"),
        ((GOOD, GOOD, heads(2, HEADS, 5, 4)), "values must be as keys"),
        ((heads(2, 2, 5, 3),) * 3, "queries have 2 heads, the transform is built for 4"),
        ((GOOD, GOOD.double(), GOOD), "keys must be torch.float32, not torch.float64"),
        ((GOOD.long(), GOOD.long(), GOOD.long()), "floating-point"),
        ((GOOD, GOOD.to("meta"), GOOD), "keys is on meta, queries on cpu"),
        ({"visible": torch.ones(2, 1, 5, 4, dtype=torch.bool)}, "visible must be broadcastable"),
        ({"visible": torch.ones(2, HEADS, 5, 5, dtype=torch.bool)}, r"to \(2, 1, 5, 5\)"),
        ({"visible": torch.ones(2, 1, 5, 5)}, "visible must be torch.bool"),
        ({"carry": heads(2, HEADS, 5, 6)}, r"carry must be \(2, 4, 5, 5\)"),
        ({"carry": heads(2, HEADS, 5, 5, dtype=torch.float64)}, "carry must be torch.float32"),
        ({"bias": heads(HEADS, 5, 5)}, "bias must be broadcastable .*four dimensions"),
        ({"dropout": 1.5}, r"dropout must be in \[0, 1\], not 1.5"),
        # An encoder's convolution looks ahead, whatever the softmax hides.
        ({"causal": True}, "causal=True wants a transform of kind='decoder'"),
    ],
)
def test_attend_checks_what_compiled_code_would_read(inputs, words):
    called, more = (inputs, {}) if isinstance(inputs, tuple) else ((GOOD,) * 3, inputs)
    refused(words, attend, TRANSFORMS["encoder"], *called, **more)


def test_decoders_and_steps_have_their_own_wants():
    row, one, (encoder, decoder) = GOOD[:, :, :1], heads(2, 1, 5, 3), TRANSFORMS.values()
    talking = build_transform("talking_heads", HEADS, 3)  # broadcast one head to all
    refused("kind='decoder' wants causal=True, or visible", attend, decoder, GOOD, GOOD, GOOD)
    refused("as many keys as queries", attend, decoder, GOOD, LONGER, LONGER, causal=True)
    refused("^attend: queries have 1 heads, the transform is", attend, talking, one, one, one)
    refused("queries must have one row, not 5", attend_step, encoder, GOOD, GOOD, GOOD, {})
    refused("^attend_step: .* of kind='decoder'", attend_step, encoder, row, row, row, {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_overlapping_views_are_read_as_what_they_show(dtype):
    """Windows over one tensor, as ``unfold`` makes them: their gradients add up."""
    transform = build_transform("evolving", HEADS, 3, **STRONG).to(dtype)
    line = torch.randn(2, HEADS, 9, dtype=dtype, requires_grad=True)
    window = line.unfold(2, 3, 1)  # (2, heads, 7, 3), each number in up to three places
    expected = attend(transform, *(window.clone() for _ in range(3))).output
    found = attend(transform, window, window, window).output
    torch.testing.assert_close(found, expected)
    one, other = (torch.autograd.grad(o.pow(2).sum(), line)[0] for o in (found, expected))
    torch.testing.assert_close(one, other)


def test_only_overlapping_views_are_copied():
    x = torch.randn(2, 3, 4, 5)
    for permuted in itertools.permutations(range(4)):
        assert _without_overlap(x.permute(permuted)).data_ptr() == x.data_ptr()
    assert _without_overlap(x[:, ::2, :, 1:]).data_ptr() == x[:, ::2, :, 1:].data_ptr()
    assert _without_overlap(x[:1].expand(4, -1, -1, -1)).is_contiguous()


def test_a_step_of_ones_own_projections_is_that_row():
    transform = build_transform("evolving", HEADS, 3, "decoder", **STRONG).double().eval()
    queries, keys, values = (heads(3, HEADS, 5, 3, dtype=torch.float64) for _ in range(3))
    bias = heads(1, HEADS, 5, 5, dtype=torch.float64)
    for added in (None, bias):
        with torch.no_grad():
            full = attend(transform, queries, keys, values, causal=True, bias=added)
            state = {}
            for t in range(5):
                seen = slice(None, t + 1)
                row, state = attend_step(
                    *(transform, queries[:, :, t : t + 1], keys[:, :, seen], values[:, :, seen]),
                    state,
                    bias=None if added is None else added[:, :, t : t + 1, seen],
                )
                torch.testing.assert_close(row.output[:, :, 0], full.output[:, :, t])


def test_it_is_there_without_fairseq():
    """With fairseq not to be found, and what its import takes."""
    code = (
        "import sys; sys.modules['fairseq'] = None\n"
        "import torch, time; start = time.process_time()\n"
        "from ea_fairseq.attention import Encoder\n"
        "taken = time.process_time() - start\n"
        "import ea_fairseq.testing\n"
        "Encoder(1, 8, 2, 8)(torch.randn(1, 3, 8))\n"
        "outside = ('hydra', 'omegaconf', 'sacrebleu', 'yaml', 'numpy.testing', 'fastapi')\n"
        "print(taken, [name for name in outside if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    taken, outside = done.stdout.split(maxsplit=1)
    assert outside.strip() == "[]"
    assert float(taken) < 0.3, f"importing it takes {taken} s beside torch"
