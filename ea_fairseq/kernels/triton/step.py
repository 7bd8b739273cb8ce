"""One step of decoding with evolving attention on a GPU, as an operator that torch knows."""

import torch
import triton
from torch import Tensor

from . import step_kernels as kernels
from .launches import on_device_of, registers


def step(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: Tensor | None,
    visible: Tensor | None,
    carry: Tensor | None,
    pending: Tensor | None,
    rows_visible: Tensor | None,
    kernel: Tensor,
    bias: Tensor,
    alpha: float,
    beta: float,
    scaling: float,
    right: int,
    lower_triangular: bool,
    hypotheses: int,
    need_probs: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The operator behind :func:`~.fused_step.fused_step`, in 3 launches.

    Args:
        queries: (batch, heads, 1, head_dim), last stride 1
        keys, values: (positions, rows, embed_dim), last stride 1
        rows: long, (batch, src_len), contiguous, or None, where ``hypotheses`` neighbours share a
            row and src_len is the number of positions
        visible: bool, (batch, 1, 1, src_len), last stride 1, or None
        carry: float32, (batch, heads, 1, src_len), contiguous, or None
        pending, rows_visible: the state of ``MapConvolution.step``, contiguous, or None
        kernel, bias: float32, contiguous
        alpha, beta, scaling, right, lower_triangular: see ``Evolution``; a kernel above its
            diagonal is not read where it is lower triangular
        need_probs: whether to return the probabilities

    Returns:
        output, Z (float32), probabilities (float32, empty where not needed) and the new state
    """
    batch, heads, _, head_dim = queries.shape
    output, evolved, probs, new_pending, new_rows_visible = _results(
        queries, keys, rows, kernel, right, need_probs
    )
    src_len, size = evolved.size(3), kernel.size(-1)
    mixed = torch.empty_like(evolved)
    flags, owners_visible, new_owners_visible = (
        None if tensor is None else tensor.view(torch.uint8)
        for tensor in (visible, rows_visible, new_rows_visible)
    )
    visible_batch = 0 if visible is None else visible.stride(0)
    columns, channels = block(head_dim), triton.next_power_of_2(heads)
    held = 0 if pending is None else pending.size(3)
    with on_device_of(queries):
        kernels.mix_step[batch * heads, triton.cdiv(src_len, columns["COLUMNS"])](
            *(queries, keys, rows, carry, flags, mixed),
            *(heads, src_len, head_dim, hypotheses, alpha, scaling),
            *(*queries.stride()[:2], *keys.stride()[:2], visible_batch),
            **columns,
        )
        kernels.evolve_step[batch, triton.cdiv(src_len + 2 * right, WIDTH)](
            *(mixed, kernel, bias, flags, pending, owners_visible, evolved, new_pending),
            *(heads, src_len, held, right, beta, visible_batch),
            SIZE=size,
            LOWER=lower_triangular,
            CHANNELS=channels,
            COLUMNS=WIDTH,
            **registers(channels),
        )
        kernels.attend_step[(batch * heads,)](
            *(evolved, values, rows, flags, owners_visible, output),
            *(probs if need_probs else None, new_owners_visible),
            *(heads, src_len, head_dim, hypotheses, *values.stride()[:2], visible_batch),
            SIZE=size,
            **columns,
        )
    return output, evolved, probs, new_pending, new_rows_visible


evolving_attention_step = torch.library.custom_op(
    "ea_fairseq::evolving_attention_step", step, mutates_args=()
)


@evolving_attention_step.register_fake
def _(queries, keys, values, rows, *others):
    kernel, right, need_probs = others[4], others[-4], others[-1]
    return _results(queries, keys, rows, kernel, right, need_probs)


def _results(queries, keys, rows, kernel, right, need_probs) -> tuple[Tensor, ...]:
    batch, heads, _, head_dim = queries.shape
    src_len = keys.size(0) if rows is None else rows.size(1)
    waiting = kernel.size(-1) - 1
    shapes = {
        "evolved": (batch, heads, 1, src_len),
        "probs": (batch, heads, 1, src_len) if need_probs else (0,),
        "pending": (batch, waiting, heads, src_len + 2 * right),
    }
    return (
        queries.new_empty(batch, heads, 1, head_dim),
        *(queries.new_empty(shape, dtype=torch.float32) for shape in shapes.values()),
        queries.new_empty((batch, waiting // 2), dtype=torch.bool),
    )


# ---- Constants of the compiled forms

WIDTH = 64  # columns of a block of the convolution


def block(head_dim: int) -> dict:
    """Constants of products with keys and values."""
    return {"COLUMNS": 32, "DEPTH": max(16, triton.next_power_of_2(head_dim))}
