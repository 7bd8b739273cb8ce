"""Convolutions and evolving attention, part by part, against loops over the equations."""

import numpy as np
import pytest
import torch
from reference import REGIONS
from references.evolving import convolve_map, evolve_map

from ea_fairseq.attention.convolution import MAP_CONVOLUTIONS
from ea_fairseq.attention.variants import VARIANTS, Place

HEADS = 3
SIZES = [(1, 1), (1, 4), (4, 1), (2, 2), (3, 7), (7, 3), (6, 6)]
CAUSAL = ("decoder", "encoder-decoder")


def square(sizes, region):
    """Self-attention's maps are square."""
    return [(t, s) for t, s in sizes if t == s or region == "encoder-decoder"]


CASES = [
    (region, kernel_size, size)
    for region in REGIONS
    for kernel_size in (1, 3, 5)
    for size in square(SIZES, region)
]


def random_visible(region, size, generator, padding):
    """Visibility of 3 sentences: causal in the decoder; padded left, right or not at all.

    Returns bool (3, 1, tgt_len, src_len).
    """
    tgt_len, src_len = size
    rows = torch.ones(3, tgt_len, dtype=torch.bool)
    columns = torch.ones(3, src_len, dtype=torch.bool)
    if padding != "none":
        for sentence in range(3):
            for side in [columns] if region == "encoder-decoder" else [rows, columns]:
                length = side.size(1)
                pads = int(torch.randint(0, length, (1,), generator=generator))
                side[sentence] = torch.arange(length) >= pads
                if padding == "right":
                    side[sentence] = side[sentence].flip(0)
            if region != "encoder-decoder":
                rows[sentence] = columns[sentence]
    visible = rows[:, None, :, None] & columns[:, None, None, :]
    if region == "decoder":
        visible = visible & torch.ones(tgt_len, src_len, dtype=torch.bool).tril()
    return visible


def strong_(module):
    """Weights that no tolerance hides."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module.double()


def random_case(region, kernel_size, size, padding):
    generator = torch.Generator().manual_seed(hash_of(region, kernel_size, size, padding))
    torch.manual_seed(generator.initial_seed())
    image = torch.randn(3, HEADS, *size, dtype=torch.float64, generator=generator)
    return image, random_visible(region, size, generator, padding), generator


def hash_of(*parts):
    """A seed that is the same in every process."""
    return sum(ord(letter) * (index + 1) for index, letter in enumerate(repr(parts)))


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("region,kernel_size,size", CASES)
def test_convolution_equals_loops(region, kernel_size, size, padding):
    image, visible, _ = random_case(region, kernel_size, size, padding)
    image = image.masked_fill(~visible, 0)
    convolution = strong_(MAP_CONVOLUTIONS[region](HEADS, kernel_size))
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


def evolving(region, kernel_size=3, alpha=0.3, beta=0.6, **changes):
    settings = {"alpha": alpha, "beta": beta, "kernel_size": kernel_size, "skip": ",".join(REGIONS)}
    return strong_(built(region, **{**settings, **changes}))


@pytest.mark.parametrize("with_carry", [False, True])
@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("region", REGIONS)
def test_evolving_logits_equal_loops(region, padding, with_carry):
    logits, visible, generator = random_case(region, 3, (5, 5), padding)
    carry = torch.randn(logits.shape, dtype=torch.float64, generator=generator)
    transform = evolving(region)
    result, _ = transform(logits, visible, carry if with_carry else None)
    for sentence in range(3):
        expected = evolve_map(
            logits[sentence].numpy(),
            carry[sentence].numpy() if with_carry else None,
            visible[sentence, 0].numpy(),
            transform.convolution.weight.detach().numpy(),
            transform.convolution.bias.detach().numpy(),
            region,
            alpha=0.3,
            beta=0.6,
        )
        np.testing.assert_allclose(result[sentence].detach().numpy(), expected, atol=1e-12)


def test_each_part_can_be_switched_off():
    logits, visible, generator = random_case("encoder", 3, (4, 4), "left")
    carry = torch.randn(logits.shape, dtype=torch.float64, generator=generator)
    hidden_zero = logits.masked_fill(~visible, 0)
    no_skip = built("encoder", skip="none").double()
    no_convolution = built("encoder", alpha=0.3, convolution="decoder")
    assert not no_skip.uses_carry
    assert torch.equal(no_skip(logits, visible, carry)[0], no_skip(logits, visible, None)[0])
    assert no_convolution.convolution is None
    expected = (0.7 * logits + 0.3 * carry).masked_fill(~visible, 0)
    torch.testing.assert_close(no_convolution(logits, visible, carry)[0], expected)
    assert torch.equal(no_convolution(logits, visible, None)[0], hidden_zero)


@pytest.mark.parametrize("kernel_size", [1, 3, 5, 9])
@pytest.mark.parametrize("region", CAUSAL)
def test_kept_state_is_bounded_by_the_kernel(region, kernel_size):
    transform, state, bsz = evolving(region, kernel_size), {}, 2
    for t in range(40):
        src_len = t + 1 if region == "decoder" else 7
        row = torch.randn(bsz, HEADS, 1, src_len, dtype=torch.float64)
        _, _, state = transform.step(row, None, None, state)
        kept = sum(value.numel() for value in state.values())
        assert kept <= bsz * (kernel_size - 1) * (HEADS * (src_len + kernel_size - 1) + 1)


@pytest.mark.parametrize("region", REGIONS)
def test_alpha_and_beta_zero_change_nothing(region):
    logits, visible, generator = random_case(region, 3, (5, 5), "right")
    carry = torch.randn(logits.shape, dtype=torch.float64, generator=generator)
    transform = evolving(region, alpha=0.0, beta=0.0)
    result, _ = transform(logits, visible, carry)
    assert torch.equal(result, logits.masked_fill(~visible, 0))


@pytest.mark.parametrize("region", REGIONS)
def test_learned_mixing_starts_at_the_fixed_numbers(region):
    logits, visible, generator = random_case(region, 3, (5, 5), "left")
    carry = torch.randn(logits.shape, dtype=torch.float64, generator=generator)
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
    assert learned_numbers("encoder", 1) == {"learned_alpha": HEADS, "learned_beta": HEADS}
    assert learned_numbers("encoder", 0) == {"learned_beta": HEADS}
    assert learned_numbers("decoder", 1) == {"learned_beta": HEADS}  # no skip connection there
    assert learned_numbers("encoder", 1, convolution="none") == {"learned_alpha": HEADS}
