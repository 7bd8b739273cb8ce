"""Evolving attention as one differentiable function that keeps no maps for its gradient."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .backend import chosen_backend
from .cpp.library import (
    Heads,
    address,
    call,
    check_types,
    fields,
    first_gradient,
    heads_of,
    visible_rows,
    with_rows,
)

if TYPE_CHECKING:
    from ..attention.contract import AttentionArgs


@dataclass(frozen=True)
class Evolution:
    """The constants of ``EvolvingLogits`` and of its convolution."""

    alpha: float
    beta: float
    move: tuple[int, int]
    lower_triangular: bool


def fused_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    args: AttentionArgs,
    kernel: Tensor,
    offsets: Tensor,
    evolution: Evolution,
    need_carry: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """softmax(Z) V with Z of equation (4) of arXiv 2102.12895.

    Equal, to rounding, to ``EvolvingLogits``, a masked softmax, dropout and a product one after
    the other. Only ``queries``, ``keys``, ``values`` and ``carry`` are kept for the gradient, from
    which the maps are computed again. By C++ or by Triton, see :mod:`.backend`; on a GPU dropout
    draws other numbers than torch's.

    Args:
        queries: (batch, heads, tgt_len, head_dim), not yet scaled
        keys: (batch, heads, src_len, head_dim)
        values: (batch, heads, src_len, head_dim)
        args: the rest, without logits and bias; that they are causal is for Triton's kernels, C++
            finds out by itself
        kernel: (heads, heads, kernel_size, kernel_size)
        offsets: the convolution's bias, (heads,)
        evolution: alpha, beta and the convolution's move
        need_carry: whether to return Z

    Returns:
        output (batch, heads, tgt_len, head_dim), Z and the probabilities before dropout, both
        (batch, heads, tgt_len, src_len) or None
    """
    bsz, _, tgt_len, _ = queries.shape
    visible = visible_rows(args.visible, bsz, tgt_len, keys.size(2))
    queries, keys, values = map(with_rows, (queries, keys, values))
    carry = None if args.carry is None else args.carry.contiguous()
    inputs = queries, keys, values, visible, carry
    settings = args.scaling, args.dropout, need_carry, args.need_probs
    if chosen_backend(queries, keys.size(2), kernel.size(-1)) == "triton":
        from .triton.attention import attention

        weights = kernel.contiguous(), offsets.contiguous()
        return attention(*inputs, *weights, evolution, args.causal, *settings)
    check_types(queries, keys=keys, values=values, carry=carry)
    # As torch's convolution does it: in automatic mixed precision a module may make others.
    weights = (one.to(queries.dtype).contiguous() for one in (kernel, offsets))
    return _FusedAttention.apply(*inputs, *weights, evolution, *settings)


class _FusedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx,
        queries,
        keys,
        values,
        visible,
        carry,
        kernel,
        bias,
        evolution,
        scaling,
        dropout,
        need_carry,
        need_probs,
    ):
        shape = (*queries.shape[:3], keys.size(2))
        noise = torch.dropout(queries.new_ones(shape), dropout, True) if dropout > 0 else None
        evolved = queries.new_empty(shape) if need_carry else None
        probs = queries.new_empty(shape) if need_probs else None
        output = torch.empty_like(queries)
        inputs = queries, keys, values, visible, carry, kernel, bias, noise
        results = _Results(heads_of(output), address(evolved), address(probs))
        _call("forward", inputs, evolution, scaling, results)
        ctx.save_for_backward(*inputs)
        ctx.evolution, ctx.scaling = evolution, scaling
        ctx.set_materialize_grads(False)
        return output, evolved, probs

    @staticmethod
    @first_gradient
    def backward(ctx, grad_output, grad_evolved, grad_probs):
        inputs = ctx.saved_tensors
        queries, keys, values, _, carry, kernel, bias, _ = inputs
        grad_output = torch.zeros_like(queries) if grad_output is None else with_rows(grad_output)
        grad_maps = [
            None if grad is None else grad.contiguous() for grad in (grad_evolved, grad_probs)
        ]
        grad_inputs = [torch.empty_like(tensor) for tensor in (queries, keys, values)]
        others = [
            None if tensor is None else torch.empty_like(tensor) for tensor in (carry, kernel, bias)
        ]
        gradients = _Gradients(
            heads_of(grad_output),
            *map(address, grad_maps),
            *map(heads_of, grad_inputs),
            *map(address, others),
        )
        _call("backward", inputs, ctx.evolution, ctx.scaling, gradients)
        return *grad_inputs, None, *others, None, None, None, None, None


def _call(
    name: str, inputs: tuple, evolution: Evolution, scaling: float, results: ctypes.Structure
) -> None:
    """Runs the library's function: ``results`` says where it writes."""
    queries, keys, values, visible, carry, kernel, bias, noise = inputs
    bsz, heads, tgt_len, head_dim = queries.shape
    arguments = _Attention(
        *(bsz, heads, tgt_len, keys.size(2), head_dim),
        *(kernel.size(-1), *evolution.move, evolution.lower_triangular),
        min(torch.get_num_threads(), bsz),
        *(evolution.alpha, evolution.beta, scaling),
        *map(heads_of, (queries, keys, values)),
        address(visible),
        *((0, 0) if visible is None else (visible.stride(0), visible.stride(2))),
        *map(address, (kernel, bias, carry, noise)),
    )
    size = ctypes.c_int64()
    call("scratch_size", ctypes.byref(arguments), ctypes.byref(size), dtype=queries.dtype)
    scratch = queries.new_empty(size.value)
    arguments.scratch = address(scratch)
    call(name, ctypes.byref(arguments), ctypes.byref(results), dtype=queries.dtype)


# The structures of attention.cpp, field by field.
class _Attention(ctypes.Structure):
    _fields_ = [
        *fields(ctypes.c_int64, "batch heads tgt_len src_len head_dim"),
        *fields(ctypes.c_int64, "kernel_size down right lower_triangular threads"),
        *fields(ctypes.c_double, "alpha beta scaling"),
        *fields(Heads, "queries keys values"),
        *fields(ctypes.c_void_p, "visible"),
        *fields(ctypes.c_int64, "visible_batch_stride visible_row_stride"),
        *fields(ctypes.c_void_p, "weight bias carry noise scratch"),
    ]


class _Results(ctypes.Structure):
    _fields_ = [("output", Heads), *fields(ctypes.c_void_p, "evolved probs")]


class _Gradients(ctypes.Structure):
    _fields_ = [
        ("output", Heads),
        *fields(ctypes.c_void_p, "evolved probs"),
        *fields(Heads, "queries keys values"),
        *fields(ctypes.c_void_p, "carry weight bias"),
    ]
