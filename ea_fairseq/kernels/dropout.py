"""residual + dropout(x) in one pass, with the random numbers that torch's dropout draws."""

import ctypes

import torch
import torch.nn.functional as F
from torch import Tensor

from .cpp.library import call, first_gradient, is_available


def dropout_add(x: Tensor, residual: Tensor, p: float) -> Tensor:
    """residual + dropout(x), where dropout zeroes with probability ``p`` and scales the others.

    With the same random state, equal to torch's to rounding. torch draws whole numbers and turns
    them into floating-point ones in several passes; here they are used as they are, and a byte of
    each is kept for the gradient.

    Args:
        x: any shape
        residual: same shape and type
        p: in [0, 1]; 0 where nothing is dropped (in evaluation)
    """
    if p == 0:
        return residual + x
    same = x.shape == residual.shape and x.dtype == residual.dtype
    if p == 1 or not same or not is_available(x):
        return residual + F.dropout(x, p)
    return _DropoutAdd.apply(x.contiguous(), residual.contiguous(), p)


class _DropoutAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, p):
        drawn = x.new_empty(x.shape, dtype=torch.int32).bernoulli_(1 - p)
        kept = x.new_empty(x.shape, dtype=torch.uint8)
        result = torch.empty_like(x)
        ctx.scale = 1 / (1 - p)
        _call("dropout_add", x, residual, drawn, kept, result, scale=ctx.scale)
        ctx.save_for_backward(kept)
        return result

    @staticmethod
    @first_gradient
    def backward(ctx, grad):
        grad_x = torch.empty_like(grad, memory_format=torch.contiguous_format)
        _call("dropout_gradient", grad.contiguous(), *ctx.saved_tensors, grad_x, scale=ctx.scale)
        return grad_x, grad, None


def _call(name: str, *tensors: Tensor, scale: float) -> None:
    call(
        name,
        *(ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors),
        ctypes.c_double(scale),
        ctypes.c_int64(tensors[0].numel()),
        ctypes.c_int64(torch.get_num_threads()),
        dtype=tensors[0].dtype,
    )
