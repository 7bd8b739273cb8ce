"""Logit transforms against loops over the equations, and their contract, over the registry."""

import numpy as np
import pytest
import torch
from reference import REGIONS, convolve_map, evolve_map

from ea_fairseq.config import EAOptions
from ea_fairseq.variants import LOGIT_TRANSFORMS
from ea_fairseq.variants.conv import MAP_CONVOLUTIONS

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


def evolving(region, kernel_size=3, alpha=0.3, beta=0.6, **changes):
    options = EAOptions(
        alpha=alpha, beta=beta, kernel_size=kernel_size, skip=",".join(REGIONS), **changes
    )
    return strong_(LOGIT_TRANSFORMS["evolving"](options, region, HEADS))


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
    no_skip = LOGIT_TRANSFORMS["evolving"](EAOptions(skip="none"), "encoder", HEADS).double()
    no_convolution = LOGIT_TRANSFORMS["evolving"](
        EAOptions(alpha=0.3, convolution="decoder"), "encoder", HEADS
    )
    assert not no_skip.uses_carry
    assert torch.equal(no_skip(logits, visible, carry)[0], no_skip(logits, visible, None)[0])
    assert no_convolution.convolution is None
    expected = (0.7 * logits + 0.3 * carry).masked_fill(~visible, 0)
    torch.testing.assert_close(no_convolution(logits, visible, carry)[0], expected)
    assert torch.equal(no_convolution(logits, visible, None)[0], hidden_zero)


# The contract, for every transform of the registry.


def transforms(region):
    for name, builder in LOGIT_TRANSFORMS.items():
        for kernel_size in (1, 3, 5) if name == "evolving" else (3,):
            options = EAOptions(
                alpha=0.3, beta=0.6, kernel_size=kernel_size, skip=",".join(REGIONS)
            )
            torch.manual_seed(1)
            yield strong_(builder(options, region, HEADS))


@pytest.mark.parametrize("size", [(1, 1), (1, 4), (2, 2), (3, 5), (8, 8), (9, 4)])
@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("region", CAUSAL)
def test_row_by_row_equals_whole_map(region, padding, size):
    if not square([size], region):
        size = (size[0], size[0])
    logits, visible, generator = random_case(region, 3, size, padding)
    carry = torch.randn(logits.shape, dtype=torch.float64, generator=generator)
    for transform in transforms(region):
        expected, _ = transform(logits, visible, carry)
        state = {}
        for t in range(size[0]):
            columns = slice(0, t + 1 if region == "decoder" else size[1])
            row = (slice(None), slice(None), slice(t, t + 1), columns)
            seen = visible[row]
            if padding == "none":
                seen = None
            result, _, state = transform.step(logits[row], seen, carry[row], state)
            torch.testing.assert_close(result, expected[row], atol=1e-12, rtol=0)


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


@pytest.mark.parametrize("region", CAUSAL)
def test_no_row_reads_a_later_row(region):
    size = (7, 7)
    logits, visible, _ = random_case(region, 3, size, "none")
    for transform in transforms(region):
        before, _ = transform(logits, visible, logits)
        for t in range(1, size[0]):
            changed = logits.clone()
            changed[:, :, t:] += 10.0
            after, _ = transform(changed, visible, changed)
            assert torch.equal(after[:, :, :t], before[:, :, :t])
            assert not torch.equal(after[:, :, t:], before[:, :, t:])


@pytest.mark.parametrize("region", REGIONS)
def test_hidden_entries_are_never_read(region):
    for padding in ("left", "right"):
        logits, visible, generator = random_case(region, 3, (6, 6), padding)
        carry = torch.randn(logits.shape, dtype=torch.float64, generator=generator)
        noise = torch.randn(logits.shape, dtype=torch.float64, generator=generator)
        dirty = torch.where(visible, logits, 1e6 * noise)
        for transform in transforms(region):
            expected, _ = transform(logits, visible, carry)
            result, _ = transform(dirty, visible, torch.where(visible, carry, -1e6 * noise))
            assert torch.equal(result, expected)
            assert (result.masked_select(~visible) == 0).all()


@pytest.mark.parametrize("region", REGIONS)
def test_every_parameter_gets_a_gradient(region):
    logits, visible, _ = random_case(region, 3, (6, 6), "left")
    for transform in transforms(region):
        if not list(transform.parameters()):
            continue
        result, _ = transform(logits, visible, logits)
        weights = torch.randn(result.shape, dtype=result.dtype)
        (result * weights).sum().backward()
        for parameter in transform.parameters():
            assert parameter.grad.ne(0).any()


@pytest.mark.parametrize("region", REGIONS)
def test_alpha_and_beta_zero_change_nothing(region):
    logits, visible, generator = random_case(region, 3, (5, 5), "right")
    carry = torch.randn(logits.shape, dtype=torch.float64, generator=generator)
    transform = evolving(region, alpha=0.0, beta=0.0)
    result, _ = transform(logits, visible, carry)
    assert torch.equal(result, logits.masked_fill(~visible, 0))
