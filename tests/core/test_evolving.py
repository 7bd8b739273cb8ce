"""Convolutions against loops; of evolving attention what its contract (test_variants.py) leaves."""

import contextlib

import numpy as np
import pytest
import torch
from reference import REGIONS
from references.evolving import convolve_map
from torch.nn.utils import prune

from ea_fairseq.attention import attend, attend_step, build_transform
from ea_fairseq.attention.convolution import MAP_CONVOLUTIONS
from ea_fairseq.attention.variants import VARIANTS, Place
from ea_fairseq.errors import UserError
from ea_fairseq.kernels.cpp.library import torch_alone

HEADS = 3
SIZES = [(1, 1), (1, 4), (4, 1), (2, 2), (3, 7), (7, 3), (6, 6)]
CAUSAL = ("decoder", "encoder-decoder")


CASES = [
    (region, kernel_size, size)
    for region in REGIONS
    for kernel_size in (1, 3, 5)
    for size in SIZES
    if size[0] == size[1] or region == "encoder-decoder"  # self-attention's maps are square
]


def random_visible(region, size, padding):
    """Visibility of 3 sentences: causal in the decoder; padded left, right or not at all.

    Returns bool (3, 1, tgt_len, src_len).
    """
    tgt_len, src_len = size
    columns = torch.ones(3, src_len, dtype=torch.bool)
    if padding != "none":
        columns = torch.arange(src_len) >= torch.randint(src_len, (3, 1))
    if padding == "right":
        columns = columns.flip(1)
    crossing = region == "encoder-decoder"
    rows = torch.ones(3, tgt_len, dtype=torch.bool) if crossing else columns
    visible = rows[:, None, :, None] & columns[:, None, None, :]
    if region == "decoder":
        visible = visible & torch.ones(tgt_len, src_len, dtype=torch.bool).tril()
    return visible


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("region,kernel_size,size", CASES)
def test_convolution_equals_loops(region, kernel_size, size, padding):
    visible = random_visible(region, size, padding)
    image = torch.randn(3, HEADS, *size, dtype=torch.float64).masked_fill(~visible, 0)
    convolution = MAP_CONVOLUTIONS[region](HEADS, kernel_size).double()
    for parameter in convolution.parameters():
        torch.nn.init.normal_(parameter)
    result = convolution(image, visible)
    for sentence in range(3):
        expected = convolve_map(
            image[sentence].numpy(),
            visible[sentence, 0].numpy(),
            convolution.weight.detach().numpy(),
            convolution.bias.detach().numpy(),
            region,
        )
        np.testing.assert_allclose(result[sentence].detach().numpy(), expected, atol=1e-12)
    if padding == "none" and region != "decoder":
        assert torch.equal(convolution(image, None), result)


def built(region, layer=1, **options):
    """Evolving attention's transform of one of two layers, the second unless told otherwise."""
    variant = VARIANTS["evolving"]
    return variant.build(variant.options(**options), Place(region, HEADS, 2, layer, 2))


@pytest.mark.parametrize("kernel_size", [1, 3, 5, 9])
@pytest.mark.parametrize("region", CAUSAL)
def test_kept_state_is_bounded_by_the_kernel(region, kernel_size):
    transform = built(region, skip=region, kernel_size=kernel_size).double()
    state, bsz = {}, 2
    for t in range(40):
        src_len = t + 1 if region == "decoder" else 7
        row = torch.randn(bsz, HEADS, 1, src_len, dtype=torch.float64)
        _, _, state = transform.step(row, None, None, state)
        kept = sum(value.numel() for value in state.values())
        assert kept <= bsz * (kernel_size - 1) * (HEADS * (src_len + kernel_size - 1) + 1)


@pytest.mark.parametrize("region", REGIONS)
def test_learned_mixing_starts_at_the_fixed_numbers(region):
    visible = random_visible(region, (5, 5), "left")
    logits, carry = torch.randn(2, 3, HEADS, 5, 5, dtype=torch.float64)
    options = {"alpha": 0.3, "beta": 0.6, "skip": region}
    fixed = built(region, **options).double()
    learned = built(region, learned_mixing=True, **options).double()
    learned.load_state_dict(fixed.state_dict(), strict=False)
    torch.testing.assert_close(
        learned(logits, visible, carry)[0], fixed(logits, visible, carry)[0], atol=1e-6, rtol=1e-6
    )


def learned_numbers(*place, **options):
    transform = built(*place, learned_mixing=True, **options)
    return {n: len(p) for n, p in transform.named_parameters() if n.startswith("learned")}


def test_there_is_a_learned_number_for_each_head_where_there_is_something_to_weigh():
    alpha, beta = {"learned_alpha": HEADS}, {"learned_beta": HEADS}
    assert learned_numbers("encoder", 1) == alpha | beta
    assert learned_numbers("encoder", 0) == beta
    assert learned_numbers("decoder", 1) == beta  # no skip connection there
    assert learned_numbers("encoder", 1, convolution="none") == alpha


def test_predictive_attention_reads_nothing_hidden_of_the_layer_below():
    """Which may have hidden less."""
    transform = build_transform("predictive", HEADS, 8, layer=1, num_layers=2, alpha=0.5)
    queries, keys, values = torch.randn(3, 1, HEADS, 5, 8)
    carry = torch.randn(1, HEADS, 5, 5)
    visible = random_visible("encoder", (5, 5), "none")[:1].clone()
    visible[..., 3:] = visible[..., 3:, :] = False
    found = [
        attend(transform, queries, keys, values, visible=visible, carry=given).output
        for given in (carry, carry.masked_fill(~visible, 0))
    ]
    assert torch.equal(*found)


def test_what_makes_weights_in_a_hook_is_asked_for_them():
    """The compiled path read those of the call before; its weights are the hook's in steps too."""
    transform = build_transform("evolving", HEADS, 8, "decoder", beta=0.9)
    prune.l1_unstructured(transform.convolution, "weight", amount=0.5)
    queries, keys, values = torch.randn(3, 1, HEADS, 4, 8)
    with torch.no_grad():
        for change in (0.0, 1.0):
            transform.convolution.weight_orig.add_(change)
            rows, state = [], {}
            for t in range(4):
                row, state = attend_step(
                    *(transform, queries[:, :, t : t + 1]),
                    *(keys[:, :, : t + 1], values[:, :, : t + 1], state),
                )
                rows.append(row.output)
            whole = attend(transform, queries, keys, values, causal=True).output
            with torch_alone():
                expected = attend(transform, queries, keys, values, causal=True).output
            torch.testing.assert_close(torch.cat(rows, 2), expected)
            torch.testing.assert_close(whole, expected)


def test_a_learned_scaling_gets_a_gradient():
    transform = build_transform("evolving", HEADS, 8, beta=0.5)
    queries, keys, values = torch.randn(3, 2, HEADS, 5, 8)
    found = []
    for context in (contextlib.nullcontext, torch_alone):
        scaling = torch.tensor(0.3, requires_grad=True)
        with context():
            attend(transform, queries, keys, values, scaling=scaling).output.pow(2).sum().backward()
        found.append(scaling.grad)
    assert found[0] is not None and torch.equal(*found)


def test_even_kernels_are_refused():
    with pytest.raises(UserError, match="kernel_size must be odd, not 2"):
        MAP_CONVOLUTIONS["encoder"](HEADS, 2)
