"""Evolving attention on a GPU, as operators that torch knows: 3 launches forward, 5 backward.

Nothing is kept for the gradient but inputs, output and a number per row; maps are computed again.
"""

import torch
import triton
from torch import Tensor

from ..cpp.library import first_gradient
from . import attention_kernels as kernels
from .launches import exact, on_device_of, registers


def attention(
    queries,
    keys,
    values,
    visible,
    carry,
    kernel,
    bias,
    evolution,
    causal,
    scaling,
    dropout,
    need_carry,
    need_probs,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """:func:`~.fused_attention.fused_attention` on contiguous tensors, by Triton."""
    queries, keys, values = map(_near, (queries, keys, values))
    seed = torch.randint(2**62, (1,), device=queries.device) if dropout > 0 else None
    output, evolved, probs, _ = evolving_attention(
        *(queries, keys, values, visible, None if carry is None else carry.float()),
        *(kernel.float(), bias.float(), seed),
        *(evolution.alpha, evolution.beta, scaling, *evolution.move),
        *(evolution.lower_triangular, causal, dropout, need_carry, need_probs),
    )
    return output, evolved if need_carry else None, probs if need_probs else None


def _near(tensor: Tensor) -> Tensor:
    """(batch, heads, length, head_dim) such that a head's positions are within 32 bits."""
    return tensor if tensor.size(2) * tensor.stride(2) < 2**31 else tensor.contiguous()


def forward(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    visible: Tensor | None,
    carry: Tensor | None,
    kernel: Tensor,
    bias: Tensor,
    seed: Tensor | None,
    alpha: float,
    beta: float,
    scaling: float,
    down: int,
    right: int,
    lower_triangular: bool,
    causal: bool,
    dropout: float,
    need_carry: bool,
    need_probs: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What :func:`attention` computes, with what its gradient needs.

    Args:
        queries, keys, values: (batch, heads, length, head_dim), last stride 1
        visible: bool, (batch, 1, tgt_len, src_len), last stride 1, or None
        carry: float32, (batch, heads, tgt_len, src_len), contiguous, or None
        kernel, bias: float32, contiguous
        seed: long, (1,), of dropout; None without
        alpha, beta, scaling, down, right, lower_triangular: see ``Evolution``
        causal, dropout, need_carry, need_probs: see ``fused_attention``

    Returns:
        output like ``queries``; Z and probabilities (float32, empty where not needed); normalizers
        (float32, (batch, heads, tgt_len)), each row's logarithm of the sum of exponentials
    """
    m = _Attention(
        queries, keys, values, visible, kernel, bias, down, right, lower_triangular, causal
    )
    mixed, evolved = m.new_map(), m.new_map()
    output, normalizers = torch.empty_like(queries), m.new_rows()
    probs = m.new_map() if need_probs else None
    with on_device_of(queries):
        m.mix(mixed, carry, alpha, scaling)
        m.evolve(mixed, evolved, None, beta, whole=need_carry)
        m.attend(evolved, seed, dropout, output, normalizers, probs)
    nothing = normalizers.new_empty(0)
    evolved = evolved if need_carry else nothing
    return output, evolved, nothing.clone() if probs is None else probs, normalizers


evolving_attention = torch.library.custom_op(
    "ea_fairseq::evolving_attention", forward, mutates_args=()
)


@evolving_attention.register_fake
def _(queries, keys, values, *others):
    need_carry, need_probs = others[-2:]
    shape = (*queries.shape[:3], keys.size(2))
    evolved, probs = (
        queries.new_empty(shape if needed else 0, dtype=torch.float32)
        for needed in (need_carry, need_probs)
    )
    normalizers = queries.new_empty(shape[:3], dtype=torch.float32)
    return torch.empty_like(queries), evolved, probs, normalizers


def backward(
    grad_output: Tensor,
    grad_evolved: Tensor | None,
    grad_probs: Tensor | None,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    visible: Tensor | None,
    carry: Tensor | None,
    kernel: Tensor,
    bias: Tensor,
    seed: Tensor | None,
    output: Tensor,
    normalizers: Tensor,
    correction: Tensor | None,
    alpha: float,
    beta: float,
    scaling: float,
    down: int,
    right: int,
    lower_triangular: bool,
    causal: bool,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values, carry (empty where there is none), kernel and bias.

    Args:
        grad_output: like ``output``, last stride 1
        grad_evolved, grad_probs: maps, contiguous, or None
        correction: (batch, heads, tgt_len), each row's sum of grad_probs times probabilities
        others: see :func:`forward`
    """
    (queries, grad_queries), (keys, grad_keys), (values, grad_values) = map(
        _with_gradient, (queries, keys, values)
    )
    grad_kernel, grad_bias = torch.empty_like(kernel), torch.empty_like(bias)
    m = _Attention(
        queries, keys, values, visible, kernel, bias, down, right, lower_triangular, causal
    )
    mixed, evolved, active = m.new_map(), m.new_map(), m.new_active()
    grad_mixed, parts = m.new_map(), m.new_parts()
    above = grad_output, grad_evolved, grad_probs, correction
    grads = grad_queries, grad_keys, grad_kernel, grad_bias
    # One map serves two gradients, which differ by a factor.
    weight = alpha if carry is not None and alpha > 0 else 1.0
    rest = 1 - alpha if carry is not None else 1.0
    with on_device_of(queries):
        m.mix(mixed, carry, alpha, scaling)
        m.evolve(mixed, evolved, active, beta, whole=False)
        m.attend_gradient(evolved, seed, dropout, output, normalizers, above, grad_values)
        whole = carry is not None
        m.evolve_gradient(evolved, active, mixed, grad_mixed, parts, beta, weight, whole)
        m.products_gradient(grad_mixed, parts, *grads, beta, rest / weight, scaling)
    if carry is None:
        grad_mixed = grad_mixed.new_empty(0)
    elif alpha == 0:
        grad_mixed.zero_()
    return grad_queries, grad_keys, grad_values, grad_mixed, grad_kernel, grad_bias


def _with_gradient(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The tensor and a place for its gradient, which lie alike: a part of a wider tensor, or one
    that repeats itself, is copied."""
    grad = torch.empty_like(tensor)
    if grad.stride() != tensor.stride():
        tensor = torch.empty_like(tensor).copy_(tensor)
    return tensor, grad


evolving_attention_gradient = torch.library.custom_op(
    "ea_fairseq::evolving_attention_gradient", backward, mutates_args=()
)


@evolving_attention_gradient.register_fake
def _(grad_output, grad_evolved, grad_probs, queries, keys, values, visible, carry, *others):
    kernel, bias = others[:2]
    grad_carry = kernel.new_empty(0) if carry is None else torch.empty_like(carry)
    grads = (torch.empty_like(tensor) for tensor in (queries, keys, values))
    return *grads, grad_carry, torch.empty_like(kernel), torch.empty_like(bias)


def _keep(ctx, inputs, output):
    *tensors, alpha, beta, scaling, down, right, lower, causal, dropout, _, need_probs = inputs
    result, _, probs, normalizers = output
    ctx.save_for_backward(*tensors, result, normalizers, probs if need_probs else None)
    ctx.constants = alpha, beta, scaling, down, right, lower, causal, dropout
    ctx.set_materialize_grads(False)


@first_gradient
def _differentiate(ctx, grad_output, grad_evolved, grad_probs, _):
    *inputs, output, normalizers, probs = ctx.saved_tensors
    carry = inputs[4]
    if grad_output is None:
        grad_output = torch.zeros_like(output)
    grad_output = _near(grad_output if grad_output.stride(-1) == 1 else grad_output.contiguous())
    grad_evolved = None if grad_evolved is None or not grad_evolved.numel() else grad_evolved
    correction = None
    if probs is None:
        grad_probs = None
    elif grad_probs is not None:
        correction = (grad_probs * probs).sum(dim=-1)
    grad_maps = (None if g is None else g.contiguous() for g in (grad_evolved, grad_probs))
    grads = evolving_attention_gradient(
        grad_output, *grad_maps, *inputs, output, normalizers, correction, *ctx.constants
    )
    queries, keys, values, grad_carry, kernel, bias = grads
    grad_carry = None if carry is None else grad_carry
    return queries, keys, values, None, grad_carry, kernel, bias, *[None] * 11


evolving_attention.register_autograd(_differentiate, setup_context=_keep)


class _Attention:
    """The launches over one attention's maps, with the block sizes that suit its sizes."""

    def __init__(
        self, queries, keys, values, visible, kernel, bias, down, right, lower_triangular, causal
    ):
        self.queries, self.keys, self.values, self.visible = queries, keys, values, visible
        self.kernel, self.bias = kernel, bias
        self.batch, self.heads, self.tgt_len, self.head_dim = queries.shape
        self.src_len = keys.size(2)
        self.size = kernel.size(-1)
        self.move = down, right
        self.lower = lower_triangular and self.size > 1
        # A convolution that reads above the diagonal wants zeros there.
        self.causal = causal and lower_triangular and down == right and self.tgt_len == self.src_len
        area = (
            self.tgt_len * (self.tgt_len + 1) // 2 if self.causal else self.tgt_len * self.src_len
        )
        self.total = self.batch * area
        self.lengths = self.heads, self.tgt_len, self.src_len
        self.seen = (0, 0) if visible is None else (visible.stride(0), visible.stride(2))
        self.flags = None if visible is None else visible.view(torch.uint8)
        self.blocks = blocks(queries.dtype, self.head_dim, self.causal)
        self.convolution = convolution(self.heads, self.size, self.lower, self.causal)
        self.sums = weight_sums(self.heads, self.size)

    def new_map(self) -> Tensor:
        shape = (self.batch, self.heads, self.tgt_len, self.src_len)
        return self.queries.new_empty(shape, dtype=torch.float32)

    def new_rows(self) -> Tensor:
        return self.queries.new_empty(self.queries.shape[:3], dtype=torch.float32)

    def new_active(self) -> Tensor:
        shape = (self.batch, self.tgt_len, self.src_len)
        return self.queries.new_empty(shape, dtype=torch.int16)

    def new_parts(self) -> Tensor:
        shape = (weight_parts(self.total), self.heads, self.sums["GROUPS"] * self.sums["TAPS"])
        return self.queries.new_empty(shape, dtype=torch.float32)

    def mix(self, mixed, carry, alpha, scaling):
        row_blocks, column_blocks = self._map_blocks()
        kernels.mix[self.batch * self.heads, row_blocks, column_blocks](
            *(self.queries, self.keys, carry, self.flags, mixed),
            *(*self.lengths, self.head_dim, alpha, scaling),
            *(*self.queries.stride()[:3], *self.keys.stride()[:3], *self.seen),
            **self.blocks,
        )

    def evolve(self, mixed, evolved, active, beta, whole):
        kernels.evolve[(triton.cdiv(self.total, self.convolution["PIXELS"]),)](
            *(mixed, self.kernel, self.bias, self.flags, evolved, active),
            *(self.total, *self.lengths, *self.move, beta, *self.seen),
            WHOLE=self.causal and whole,
            **self.convolution,
        )

    def attend(self, evolved, seed, dropout, output, normalizers, probs):
        kernels.attend[self.batch * self.heads, self._map_blocks()[0]](
            *(evolved, self.values, self.flags, seed, output, normalizers, probs),
            *(*self.lengths, self.head_dim, dropout, scale_of(dropout)),
            *(*self.values.stride()[:3], *output.stride()[:3], *self.seen),
            **self.blocks,
        )

    def attend_gradient(self, evolved, seed, dropout, output, normalizers, grads, grad_values):
        kernels.attend_gradient[self.batch * self.heads, self._map_blocks()[1]](
            *(evolved, self.values, self.flags, seed, output, normalizers, *grads, grad_values),
            *(*self.lengths, self.head_dim, dropout, scale_of(dropout)),
            *(*self.values.stride()[:3], *output.stride()[:3], *grads[0].stride()[:3], *self.seen),
            **self.blocks,
        )

    def evolve_gradient(self, grad, active, mixed, grad_mixed, sums, beta, factor, whole):
        images = triton.cdiv(self.total, self.convolution["PIXELS"])
        parts = sums.size(0)
        kernels.evolve_gradient[(images + parts * self.sums["GROUPS"],)](
            *(grad, active, mixed, self.kernel, self.flags, grad_mixed, sums),
            *(self.total, *self.lengths, *self.move, beta, factor, *self.seen, images, parts),
            WHOLE=self.causal and whole,
            **self.convolution,
            **self.sums,
            PRECISION=exact(),
        )

    def products_gradient(
        self, grad_mixed, sums, grad_queries, grad_keys, grad_kernel, grad_bias, beta, factor,
        scaling,
    ):  # fmt: skip
        row_blocks, column_blocks = self._map_blocks()
        maps = self.batch * self.heads
        parts, _, width = sums.shape
        parameters = triton.cdiv(self.heads * width, ENTRIES)
        kernels.products_gradient[(maps * (row_blocks + column_blocks) + parameters,)](
            *(grad_mixed, self.queries, self.keys, sums),
            *(grad_queries, grad_keys, grad_kernel, grad_bias),
            *(*self.lengths, self.head_dim, beta, factor, scaling),
            *(*self.queries.stride()[:3], *self.keys.stride()[:3]),
            *(row_blocks, column_blocks, maps, parts),
            SIZE=self.size,
            WIDTH=width,
            TOGETHER=TOGETHER,
            ENTRIES=ENTRIES,
            **self.blocks,
        )

    def _map_blocks(self) -> tuple[int, int]:
        rows, columns = self.blocks["ROWS"], self.blocks["COLUMNS"]
        return triton.cdiv(self.tgt_len, rows), triton.cdiv(self.src_len, columns)


# ---- Constants of the compiled forms: all that a launcher can choose

TOGETHER, ENTRIES = 64, 32  # parts and parameters that a program adds up at a time


def blocks(dtype: torch.dtype, head_dim: int, causal: bool = False) -> dict:
    """Constants of products, softmax and their gradients."""
    single = dtype == torch.float32
    # Registers decide. Were DEPTH 16, Triton would give a thread one column of 8 rows; were DEEP
    # more, or the threads of float32 fewer, the gradient of the softmax would spill.
    depth = max(32, triton.next_power_of_2(head_dim))
    fast = single and _tf32_allowed()
    return {
        "CAUSAL": causal,
        "ROWS": 32,
        "COLUMNS": 32,
        "DEPTH": depth,
        "DEEP": depth // 2 if single else 32,
        "PRECISION": "tf32" if fast else exact(),
        "num_warps": 8 if single else 4,
        "num_stages": 2,
    }


def _tf32_allowed() -> bool:
    """Whether the user lets products of float32 be cut to TensorFloat-32, by either way to say so:
    once the newer one was used, torch refuses to answer the older question."""
    precision = getattr(torch.backends.cuda.matmul, "fp32_precision", None)  # from torch 2.9 on
    if precision is None:
        return torch.get_float32_matmul_precision() != "highest"
    return precision == "tf32"


def convolution(heads: int, size: int, lower: bool, causal: bool) -> dict:
    """Constants of the convolution and of its image's gradient."""
    channels = triton.next_power_of_2(heads)
    pixels = 256 if channels == 16 else 512
    if causal and channels == 16:  # their rows and columns take registers, which are short there
        pixels = 128
    return {
        "CAUSAL": causal,
        "SIZE": size,
        "LOWER": lower,
        "CHANNELS": channels,
        "PIXELS": pixels,
        "num_warps": 4,
        "num_stages": 1,
        **registers(channels),
    }


def weight_sums(heads: int, size: int) -> dict:
    """Constants of the parameters' gradient; columns are the taps of all heads, and the bias."""
    columns = heads * size * size + 1
    taps = min(128, max(16, triton.next_power_of_2(columns)))
    return {"OUT": 16, "TAPS": taps, "GROUPS": triton.cdiv(columns, taps), "BLOCK": 16}


def weight_parts(total: int) -> int:
    """Programs that share the pixels; depends on nothing but their number, so that sums do not
    depend on the device."""
    return max(1, min(1024, total // 1024))


def scale_of(dropout: float) -> float:
    """What remains is scaled by that."""
    return 1 / (1 - dropout) if dropout < 1 else 0.0
