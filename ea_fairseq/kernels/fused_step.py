"""One step of decoding with evolving attention, for all hypotheses at once."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import UserError
from .backend import chosen_backend
from .cpp.library import (
    Heads,
    address,
    call,
    check_types,
    fields,
    heads_of,
    visible_rows,
    with_rows,
)
from .fused_attention import Evolution

if TYPE_CHECKING:
    from ..attention.cached_heads import CachedHeads
    from ..attention.contract import AttentionArgs

State = dict[str, Tensor]


def fused_step(
    queries: Tensor,
    cached: CachedHeads,
    args: AttentionArgs,
    state: State,
    kernel: Tensor,
    offsets: Tensor,
    evolution: Evolution,
    need_carry: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None, State]:
    """One row of :func:`~.fused_attention.fused_attention`; without gradients.

    Equal, to rounding, to ``EvolvingLogits.attend_step`` on torch, with the same state.

    Args:
        queries: (batch, heads, 1, head_dim), not yet scaled
        cached: keys and values
        args: the rest, without logits, bias and dropout
        state: that of ``MapConvolution.step``
        kernel, offsets, evolution: as in ``fused_attention``
        need_carry: whether to return Z

    Returns:
        output (batch, heads, 1, head_dim), Z and probabilities (batch, heads, 1, src_len) or None,
        and the new state
    """
    bsz, heads, _, head_dim = queries.shape
    src_len = cached.keys.size(0) if cached.rows is None else cached.rows.size(1)
    reach = (kernel.size(-1) - 1) // 2
    right = evolution.move[1]
    queries = with_rows(queries)
    visible = visible_rows(args.visible, bsz, 1, src_len)
    carry = None if args.carry is None else args.carry.contiguous()
    kernel, bias, need_probs = kernel.contiguous(), offsets.contiguous(), args.need_probs
    # torch's own steps leave views of larger tensors.
    pending, rows_visible = (
        state[name].contiguous() if name in state else None for name in ("pending", "rows_visible")
    )
    rows = None if cached.rows is None else cached.rows.contiguous()
    keys, values = with_rows(cached.keys), with_rows(cached.values)
    if chosen_backend(queries, src_len, kernel.size(-1), keys.numel()) == "triton":
        from .triton.step import evolving_attention_step

        output, evolved, probs, pending, rows_visible = evolving_attention_step(
            *(queries, keys, values, rows, visible, None if carry is None else carry.float()),
            *(pending, rows_visible, kernel.float(), bias.float()),
            *(evolution.alpha, evolution.beta, args.scaling, right),
            *(evolution.lower_triangular, cached.hypotheses, need_probs),
        )
        state = {"pending": pending, "rows_visible": rows_visible}
        return output, evolved if need_carry else None, probs if need_probs else None, state
    check_types(queries, keys=keys, values=values, carry=carry, pending=pending)
    kernel, bias = kernel.to(queries.dtype), bias.to(queries.dtype)
    _check_rows(bsz, src_len, cached)
    columns = src_len + 2 * right
    if state:
        _check_state(pending, rows_visible, (bsz, 2 * reach, heads, columns))
    output = queries.new_empty(bsz, heads, 1, head_dim)
    evolved = queries.new_empty(bsz, heads, 1, src_len) if need_carry else None
    probs = queries.new_empty(bsz, heads, 1, src_len) if need_probs else None
    new_pending = queries.new_empty(bsz, 2 * reach, heads, columns)
    new_rows_visible = queries.new_empty(bsz, reach, dtype=torch.bool)
    step = _Step(
        *(bsz, heads, src_len, head_dim, kernel.size(-1), right),
        min(torch.get_num_threads(), bsz),
        *(evolution.alpha, evolution.beta, args.scaling),
        *(heads_of(queries), heads_of(output)),
        *(_positions(kept, heads) for kept in (keys, values)),
        address(rows),
        cached.hypotheses,
        address(visible),
        0 if visible is None else visible.stride(0),
        *map(address, (kernel, bias, carry, pending)),
        0 if pending is None else pending.size(3),
        *map(address, (rows_visible, new_pending, new_rows_visible, evolved, probs)),
    )
    call("step", ctypes.byref(step), dtype=queries.dtype)
    return output, evolved, probs, {"pending": new_pending, "rows_visible": new_rows_visible}


def _check_rows(bsz: int, src_len: int, cached: CachedHeads) -> None:
    if cached.rows is None:
        held = cached.values.size(1) * cached.hypotheses
    else:
        held = len(cached.rows)
    if held != bsz or cached.values.size(0) < src_len:
        raise UserError(f"keys and values are of {held} hypotheses, queries of {bsz}")


def _check_state(
    pending: Tensor | None, rows_visible: Tensor | None, shape: tuple[int, int, int, int]
) -> None:
    """``shape``: that which pending is to have, with the most columns."""
    bsz, rows, heads, columns = shape
    if pending is None or pending.dim() != 4 or pending.shape[:3] != shape[:3]:
        fits = False
    else:
        fits = pending.size(3) <= columns
    if not fits:
        found = None if pending is None else tuple(pending.shape)
        raise UserError(f"state: pending must be ({bsz}, {rows}, {heads}, columns), not {found}")
    if (
        rows_visible is None
        or rows_visible.shape != (bsz, rows // 2)
        or rows_visible.dtype != torch.bool
    ):
        found = None if rows_visible is None else (rows_visible.dtype, tuple(rows_visible.shape))
        raise UserError(f"state: rows_visible must be bool, ({bsz}, {rows // 2}), not {found}")


def _positions(kept: Tensor, num_heads: int) -> Heads:
    """Where the heads of (positions, rows, embed_dim) lie."""
    position, row, _ = kept.stride()
    return Heads(kept.data_ptr(), row, kept.size(2) // num_heads, position)


class _Step(ctypes.Structure):
    """The structure of step.cpp, field by field."""

    _fields_ = [
        *fields(ctypes.c_int64, "batch heads src_len head_dim kernel_size right threads"),
        *fields(ctypes.c_double, "alpha beta scaling"),
        *fields(Heads, "queries output keys values"),
        *fields(ctypes.c_void_p, "rows"),
        *fields(ctypes.c_int64, "hypotheses"),
        *fields(ctypes.c_void_p, "visible"),
        *fields(ctypes.c_int64, "visible_stride"),
        *fields(ctypes.c_void_p, "weight bias carry pending"),
        *fields(ctypes.c_int64, "columns"),
        *fields(ctypes.c_void_p, "rows_visible new_pending new_rows_visible evolved probs"),
    ]
