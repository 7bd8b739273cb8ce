"""Which weights no model can use: NaN, infinite in the type in use, or no plain real numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def unusable_weight(weights: Mapping[str, Any], dtype: torch.dtype = torch.float32) -> str | None:
    """The first of a model's weights that it could not use, and why.

    Args:
        weights: tensors by name; what is no tensor is left alone
        dtype: the type in which they are used, into which they are converted

    Returns:
        ``"NAME has values that are NaN or infinite"``, say; None where all are of use
    """
    for name, value in weights.items():
        if torch.is_tensor(value) and (reason := _reason(value, dtype)):
            return f"{name} {reason}"
    return None


def _reason(value: Tensor, dtype: torch.dtype) -> str | None:
    if value.is_nested or value.layout is not torch.strided or value.is_quantized:
        kind = "quantized" if value.is_quantized else "nested" if value.is_nested else "sparse"
        return f"is a {kind} tensor: expected a plain one"
    if value.is_complex():
        return f"has complex numbers ({value.dtype}): expected real ones"
    if value.is_meta:
        return "has no values"
    if not value.is_floating_point():
        return None
    try:
        if _is_finite(value, dtype):
            return None
        finite = _is_finite(value, torch.float64)
    except (RuntimeError, NotImplementedError):  # of types that torch can only store
        return f"has numbers of type {value.dtype}, which torch does not convert"
    if finite:
        return f"has values beyond {torch.finfo(dtype).max:.3g}, the largest number of {dtype}"
    return "has values that are NaN or infinite"


def _is_finite(value: Tensor, dtype: torch.dtype) -> bool:
    return bool(value.to(dtype).isfinite().all())
