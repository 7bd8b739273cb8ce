"""Evolving attention as one differentiable function that keeps no maps for its gradient."""

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from .library import is_switched_off, load_library

# Maps are worked on a few sentences at a time, so that they stay in the processor's cache between
# the matrix products and the sweeps over them.
CHUNK_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Evolution:
    """The constants of :class:`~ea_fairseq.logits.evolving.EvolvingLogits` and its convolution."""

    alpha: float
    beta: float
    move: tuple[int, int]
    lower_triangular: bool


def is_available(queries: Tensor) -> bool:
    """Whether :func:`fused_attention` can work on these tensors on this machine."""
    return (
        queries.device.type == "cpu"
        and queries.dtype in (torch.float32, torch.float64)
        and not is_switched_off()
        and load_library() is not None
    )


def fused_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    visible: Tensor | None,
    carry: Tensor | None,
    kernel: Tensor,
    bias: Tensor,
    evolution: Evolution,
    dropout: float = 0.0,
    need_carry: bool = False,
    need_probs: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """softmax(Z) V with Z of equation (4) of arXiv 2102.12895.

    Equal, to rounding, to ``EvolvingLogits``, a masked softmax, dropout and a product one after
    the other. Only ``queries``, ``keys``, ``values`` and ``carry`` are kept for the gradient, from
    which the maps are computed again.

    Args:
        queries: (batch, heads, tgt_len, head_dim), scaled
        keys: (batch, heads, src_len, head_dim)
        values: (batch, heads, src_len, head_dim)
        visible: bool, broadcastable to (batch, 1, tgt_len, src_len), or None
        carry: (batch, heads, tgt_len, src_len), or None in the first layer
        kernel: (heads, heads, kernel_size, kernel_size)
        bias: (heads,)
        evolution: alpha, beta and the convolution's move
        dropout: of the probabilities
        need_carry: whether to return Z
        need_probs: whether to return the probabilities

    Returns:
        output (batch, heads, tgt_len, head_dim), Z and the probabilities before dropout, both
        (batch, heads, tgt_len, src_len) or None
    """
    bsz, _, tgt_len, _ = queries.shape
    if visible is not None:
        visible = visible.expand(bsz, 1, tgt_len, keys.size(2))
        if visible.stride(3) != 1:
            visible = visible.contiguous()
    return _FusedAttention.apply(
        queries,
        keys,
        values,
        visible,
        carry,
        kernel.contiguous(),
        bias.contiguous(),
        evolution,
        dropout,
        need_carry,
        need_probs,
    )


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
        dropout,
        need_carry,
        need_probs,
    ):
        bsz, heads, tgt_len, _ = queries.shape
        src_len = keys.size(2)
        carry = None if carry is None else carry.contiguous()
        evolved = queries.new_empty(bsz, heads, tgt_len, src_len) if need_carry else None
        probs = queries.new_empty(bsz, heads, tgt_len, src_len) if need_probs else None
        noise = None
        if dropout > 0:
            noise = torch.dropout(queries.new_ones(bsz, heads, tgt_len, src_len), dropout, True)
        output = torch.empty_like(queries)
        for part in _chunks(queries, src_len):
            maps = queries[part] @ keys[part].transpose(2, 3)
            work = _Maps(maps, visible, carry, evolved, kernel, bias, evolution, part)
            work.forward()
            if probs is not None:
                probs[part] = maps
            if noise is not None:
                maps = maps * noise[part]
            output[part] = maps @ values[part]
        ctx.save_for_backward(queries, keys, values, visible, carry, kernel, bias, noise)
        ctx.evolution = evolution
        ctx.set_materialize_grads(False)
        return output, evolved, probs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output, grad_evolved, grad_probs):
        queries, keys, values, visible, carry, kernel, bias, noise = ctx.saved_tensors
        src_len = keys.size(2)
        if grad_evolved is not None:
            grad_evolved = grad_evolved.contiguous()
        grads = [torch.empty_like(tensor) for tensor in (queries, keys, values)]
        grad_queries, grad_keys, grad_values = grads
        grad_carry = None if carry is None else torch.empty_like(carry)
        grad_kernel, grad_bias = torch.zeros_like(kernel), torch.zeros_like(bias)
        for part in _chunks(queries, src_len):
            maps = queries[part] @ keys[part].transpose(2, 3)
            if grad_output is None:
                grad_maps = torch.zeros_like(maps)
            else:
                grad_maps = grad_output[part] @ values[part].transpose(2, 3)
            if noise is not None:
                grad_maps *= noise[part]
            if grad_probs is not None:
                grad_maps += grad_probs[part]
            work = _Maps(maps, visible, carry, None, kernel, bias, ctx.evolution, part)
            added = work.backward(grad_maps, grad_evolved, grad_carry)
            grad_kernel += added[0]
            grad_bias += added[1]
            grad_queries[part] = grad_maps @ keys[part]
            grad_keys[part] = grad_maps.transpose(2, 3) @ queries[part]
            if noise is not None:
                maps *= noise[part]
            if grad_output is None:
                grad_values[part] = 0
            else:
                grad_values[part] = maps.transpose(2, 3) @ grad_output[part]
        return (
            grad_queries,
            grad_keys,
            grad_values,
            None,
            grad_carry,
            grad_kernel,
            grad_bias,
            *(None,) * 4,
        )


def _chunks(queries: Tensor, src_len: int) -> list[slice]:
    """Consecutive parts of the batch whose maps have about CHUNK_BYTES."""
    bsz, heads, tgt_len, _ = queries.shape
    sentence = max(1, heads * tgt_len * src_len * queries.element_size())
    size = max(1, CHUNK_BYTES // sentence)
    return [slice(start, min(start + size, bsz)) for start in range(0, bsz, size)]


class _Maps:
    """One call of the library: the arguments of its C structures, for one part of the batch.

    ``maps`` comes with products of queries and keys and becomes the probabilities.
    """

    def __init__(self, maps, visible, carry, evolved, kernel, bias, evolution, part):
        bsz, heads, tgt_len, src_len = maps.shape
        self.suffix = "float" if maps.dtype == torch.float32 else "double"
        self.part = part
        self.like = kernel, bias
        if visible is not None:
            visible = visible[part]
        self.arguments = _MapArguments(
            *(bsz, heads, tgt_len, src_len),
            *(kernel.size(-1), *evolution.move, evolution.lower_triangular),
            *(evolution.alpha, evolution.beta),
            _address(visible),
            *((0, 0) if visible is None else (visible.stride(0), visible.stride(2))),
            *(_address(kernel), _address(bias)),
            *(_address(carry, part), _address(maps), _address(evolved, part)),
            None,
            torch.get_num_threads(),
        )
        self.padded = self._scratch(maps)
        self.arguments.padded = _address(self.padded)
        self.maps = maps

    def _call(self, name, *arguments):
        function = getattr(load_library(), f"{name}_{self.suffix}")
        function.restype = ctypes.c_int64 if name == "padded_size" else None
        return function(ctypes.byref(self.arguments), *arguments)

    def _scratch(self, maps: Tensor) -> Tensor:
        return maps.new_empty(self._call("padded_size"))

    def forward(self) -> None:
        self._call("forward")

    def backward(self, grad_maps, grad_evolved, grad_carry) -> tuple[Tensor, Tensor]:
        """``grad_maps`` comes as the probabilities' and becomes that of the products; writes
        ``grad_carry``; returns those of kernel and bias."""
        results = tuple(torch.empty_like(tensor) for tensor in self.like)
        padded = self._scratch(grad_maps)
        gradients = _GradientArguments(
            _address(grad_maps),
            _address(grad_evolved, self.part),
            _address(grad_carry, self.part),
            *map(_address, results),
            _address(padded),
        )
        self._call("backward", ctypes.byref(gradients))
        return results


def _address(tensor: Tensor | None, part: slice | None = None) -> int | None:
    if tensor is None:
        return None
    return (tensor if part is None else tensor[part]).data_ptr()


def _structure(**types: str) -> type[ctypes.Structure]:
    """A C structure: field names by C type."""
    kinds = {"integers": ctypes.c_int64, "numbers": ctypes.c_double, "pointers": ctypes.c_void_p}
    fields = [
        (name, kinds[kind.rstrip("0123456789")])
        for kind, names in types.items()
        for name in names.split()
    ]
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


_MapArguments = _structure(
    integers1="batch heads tgt_len src_len kernel_size down right lower_triangular",
    numbers="alpha beta",
    pointers1="visible",
    integers2="visible_batch_stride visible_row_stride",
    pointers2="weight bias carry logits evolved padded",
    integers3="threads",
)
_GradientArguments = _structure(pointers="probs evolved carry weight bias padded")
