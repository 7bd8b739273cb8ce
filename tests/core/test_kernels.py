"""The compiled attention maps: equal to the equations on torch, never required."""

import ctypes
import itertools
from functools import partial
from unittest import mock

import pytest
import torch
from attention_cases import (
    attention_inputs,
    gradients_of_each,
    largest_kept,
    results,
    steps_in_turn,
)
from compiled import assert_second_derivatives_are_refused, needs_compiler

from ea_fairseq.attention.cached_heads import CachedHeads
from ea_fairseq.attention.contract import AttentionArgs
from ea_fairseq.attention.variants import evolving
from ea_fairseq.kernels import fused_encoder, fused_step, transformer_parts
from ea_fairseq.kernels.cpp import library
from ea_fairseq.kernels.dropout import dropout_add


def assert_equal_to_torch(transform, tensors, visible, dropout=0.0):
    compiled = results(transform, tensors, visible, dropout)
    with library.torch_alone():
        expected = results(transform, tensors, visible, dropout)
    single = tensors[0].dtype == torch.float32
    for ours, theirs in zip(compiled, expected, strict=True):
        scale = 1 + theirs.abs().max().item()
        # A bias' gradient is a sum over the whole map: each width of vectors has its own order.
        torch.testing.assert_close(ours, theirs, rtol=0, atol=scale * (1e-5 if single else 1e-14))


@needs_compiler
@pytest.mark.parametrize("attention", ["encoder", "decoder", "encoder-decoder"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_equal_those_of_the_equations(attention, dtype):
    lengths = [(1, 1, 1), (2, 5, 7), (3, 17, 16), (2, 33, 40)]
    cases = itertools.product((1, 3, 4, 8), lengths, (1, 3, 5), (False, True))
    for num_heads, shape, kernel_size, hide in cases:
        inputs = attention_inputs(attention, num_heads, shape, kernel_size, dtype, hide)
        assert_equal_to_torch(*inputs)


@needs_compiler
def test_without_skip_there_is_no_carry():
    transform, tensors, visible = attention_inputs(
        "encoder", 4, (2, 9, 9), 3, torch.float64, True, skip=False
    )
    assert transform.attend(*tensors[:3], AttentionArgs(0.7, visible, tensors[3]))[1] is None
    assert_equal_to_torch(transform, tensors, visible)


@needs_compiler
def test_dropout_draws_the_numbers_that_torch_draws():
    inputs = attention_inputs("encoder-decoder", 4, (3, 8, 11), 3, torch.float64, True)
    assert_equal_to_torch(*inputs, dropout=0.4)
    assert not torch.equal(results(*inputs, dropout=0.4)[0], results(*inputs)[0])


def a_step_or_dropout(what, transform):
    torch.manual_seed(4)
    if what == "step":
        queries = torch.randn(5, 4, 1, 5)
        with torch.no_grad():
            found = decoding_step(transform, queries, torch.randn(2, 9, 5, 20), {})
        return [found[0], *found[-1].values()]
    x, residual = torch.randn(2, 3, 50, 70).requires_grad_().unbind()
    result = dropout_add(x, residual, 0.3)
    return [result, *torch.autograd.grad(result.square().sum(), [x, residual])]


@needs_compiler
@pytest.mark.parametrize("what", ["attention", "step", "dropout_add"])
def test_any_number_of_threads_gives_the_same(what):
    if what == "attention":
        once = partial(
            results, *attention_inputs("encoder", 4, (3, 21, 21), 3, torch.float64, True)
        )
    else:
        transform = attention_inputs("encoder-decoder", 4, (1, 2, 2), 3, torch.float32, 0)[0]
        once = partial(a_step_or_dropout, what, transform)
    threads, found = torch.get_num_threads(), []
    try:
        for number in (1, 3, 3):
            torch.set_num_threads(number)
            found.append(once())
    finally:
        torch.set_num_threads(threads)
    for single, several, again in zip(*found, strict=True):
        # The sums over a batch have an order of their own with each number of threads.
        torch.testing.assert_close(several, single, rtol=0, atol=1e-14 * (what == "attention"))
        assert torch.equal(several, again)


@needs_compiler
def test_extreme_logits_stay_finite_and_exact():
    """On any processor: the order of sums differs, and each rounds to digits of the largest."""
    transform, tensors, visible = attention_inputs("encoder", 4, (2, 9, 9), 3, torch.float32, True)
    with torch.no_grad():
        tensors[0] *= 1e4
    outputs = transform.attend(
        *tensors[:3], AttentionArgs(0.7, visible, tensors[3], need_probs=True)
    )
    with library.torch_alone():
        tensors = [tensor.double() for tensor in tensors]
        expected = transform.double().attend(
            *tensors[:3], AttentionArgs(0.7, visible, tensors[3], need_probs=True)
        )
    assert expected[1].abs().max() > 1e4
    for ours, exact in zip(outputs, expected, strict=True):
        assert ours.isfinite().all()
        largest = max(1.0, exact.abs().max().item())
        atol = 4 * torch.finfo(torch.float32).eps * largest
        torch.testing.assert_close(ours.double(), exact, rtol=0, atol=atol)


@needs_compiler
def test_gradients_of_what_is_used_alone():
    inputs = attention_inputs("encoder", 4, (2, 6, 6), 3, torch.float64, True)
    compiled = gradients_of_each(*inputs)
    with library.torch_alone():
        expected = gradients_of_each(*inputs)
    for ours, theirs in zip(compiled, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@needs_compiler
def test_second_derivatives_are_an_error_that_torch_alone_mends():
    transform, tensors, visible = attention_inputs("decoder", 2, (1, 3, 3), 3, torch.float64, False)
    transform.requires_grad_(False)
    assert_second_derivatives_are_refused(transform, tensors, visible)

    def output(*inputs):
        return transform.attend(*inputs[:3], AttentionArgs(0.7, visible, inputs[3]))[0]

    with library.torch_alone():
        assert torch.autograd.gradgradcheck(output, tensors)


@needs_compiler
def test_keeps_no_map_for_the_gradient():
    inputs = attention_inputs("decoder", 4, (2, 40, 40), 3, torch.float32, 0)
    assert 0 < largest_kept(*inputs) < 2 * 4 * 40 * 40


@needs_compiler
@pytest.mark.parametrize("attention", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_steps_equal_those_of_the_equations(attention, dtype, kernel_size):
    for num_heads, hide in itertools.product((1, 4), (False, True)):
        assert_steps_equal_torchs(attention, num_heads, kernel_size, dtype, hide)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("head_dim", [7, 8, 9, 15, 16, 17, 24, 40])
def test_steps_read_heads_that_are_no_whole_vectors(dtype, head_dim):
    """More steps than positions are read at once or asked for ahead."""
    case = "decoder", 3, 3, dtype, True
    assert_steps_equal_torchs(*case, steps=22, head_dim=head_dim)


def assert_steps_equal_torchs(*case, **more):
    with torch.no_grad():
        with mock.patch.object(evolving, "fused_step", wraps=evolving.fused_step) as fused:
            compiled = steps_in_turn(*case, **more)
            assert fused.called
            fused.reset_mock()
            with library.torch_alone():
                expected = steps_in_turn(*case, **more)
        assert not fused.called
    tolerance = 3e-6 if compiled[0].dtype == torch.float32 else 1e-14
    for ours, theirs in zip(compiled, expected, strict=True):
        scale = 1 + theirs.abs().max().item()
        torch.testing.assert_close(ours, theirs, rtol=0, atol=scale * tolerance)


def decoding_step(transform, queries, source, state):
    """A step over two sentences' keys and values, everything visible."""
    cached = CachedHeads(*source, transform.convolution.out_channels, hypotheses=1)
    return transform.attend_step(queries, cached, AttentionArgs(0.7), state)


@needs_compiler
@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_steps_may_change_their_way_within_a_sentence(kernel_size):
    """Some with gradients, so on torch, then some without: the state is the same for both."""
    shape = (1, 2, 2), kernel_size, torch.float64, 0
    transform = attention_inputs("encoder-decoder", 4, *shape)[0]
    source = torch.randn(2, 9, 2, 20, dtype=torch.float64)
    rows = torch.randn(8, 2, 4, 1, 5, dtype=torch.float64, requires_grad=True)

    def outputs(with_gradients):
        state, found = {}, []
        for t, queries in enumerate(rows):
            with torch.set_grad_enabled(with_gradients(t)):
                output, _, _, state = decoding_step(transform, queries, source, state)
            found.append(output.detach())
        return torch.cat(found)

    with library.torch_alone():
        expected = outputs(lambda t: False)
    for change in (lambda t: t < 4, lambda t: t % 2 == 0, lambda t: t >= 4, lambda t: True):
        torch.testing.assert_close(outputs(change), expected, rtol=0, atol=1e-13)


@needs_compiler
def test_a_step_over_keys_in_any_layout_equals_torchs():
    transform = attention_inputs("encoder-decoder", 4, (1, 2, 2), 3, torch.float64, 0)[0]
    queries = torch.randn(2, 4, 1, 5, dtype=torch.float64)
    turned = torch.randn(2, 20, 2, 9, dtype=torch.float64).permute(0, 3, 2, 1)
    rows = torch.randint(2, (9, 2)).t()
    with torch.no_grad():
        for cached in (CachedHeads(*turned, 4), CachedHeads(*turned, 4, rows)):
            compiled = transform.attend_step(queries, cached, AttentionArgs(0.7), {})[0]
            with library.torch_alone():
                expected = transform.attend_step(queries, cached, AttentionArgs(0.7), {})[0]
            torch.testing.assert_close(compiled, expected, rtol=0, atol=1e-13)


@needs_compiler
@pytest.mark.parametrize("of", ["queries", "keys and values", "parameters", "state", "nothing"])
def test_steps_keep_the_gradient_of_whatever_needs_one(of):
    transform = attention_inputs("encoder-decoder", 4, (1, 2, 2), 3, torch.float64, 0)[0]
    transform.requires_grad_(of == "parameters")
    queries = torch.randn(2, 2, 4, 1, 5, dtype=torch.float64, requires_grad=of == "queries")
    source = torch.randn(2, 9, 2, 20, dtype=torch.float64, requires_grad=of == "keys and values")
    state = decoding_step(transform, queries[0], source, {})[-1]
    if of == "state":
        state["pending"].requires_grad_()
    output = decoding_step(transform, queries[1], source, state)[0]
    assert output.requires_grad == (of != "nothing")
    if of == "nothing":
        return
    given = {"queries": queries, "keys and values": source, "state": state["pending"]}
    inputs = list(transform.parameters()) if of == "parameters" else [given[of]]
    for gradient in torch.autograd.grad(output.square().sum(), inputs):
        assert gradient.ne(0).any()


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.0, 0.2, 0.9])
def test_dropout_add_equals_torchs_dropout_with_the_same_seed(dtype, p):
    def run():
        torch.manual_seed(1)
        x, residual = (torch.randn(7, 11, 13, dtype=dtype, requires_grad=True) for _ in range(2))
        result = dropout_add(x, residual, p)
        grads = torch.autograd.grad((result * torch.randn_like(result)).sum(), [x, residual])
        return result, *grads, torch.rand(3)  # the random state moves on equally

    compiled = run()
    with library.torch_alone():
        expected = run()
    for ours, theirs in zip(compiled, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    dropped = (compiled[1] == 0).double().mean().item()
    assert dropped == pytest.approx(p, abs=0.05)


def test_half_precision_runs_on_torch():
    assert not library.is_available(torch.zeros(1, dtype=torch.bfloat16))


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2])
def test_memory_that_is_not_there_is_an_error_and_not_the_end_of_the_process(threads):
    """Thrown in the threads that work, which share out the hypotheses."""
    step = fused_step._Step(batch=2, heads=1, src_len=2**50, head_dim=4, hypotheses=1)
    step.kernel_size, step.threads = 3, threads
    with pytest.raises(MemoryError, match="step_float: not enough memory"):
        library.call("step", ctypes.byref(step), dtype=torch.float32)


@needs_compiler
def test_what_cannot_be_computed_is_an_error_too():
    empty = fused_encoder._Encoder(stack=transformer_parts.Stack(width=8, heads=0))
    with pytest.raises(RuntimeError, match="encoder_new: an attention needs one head or more"):
        library.call("encoder_new", ctypes.byref(empty), ctypes.byref(ctypes.c_void_p()))
