"""Layers over series: attention beside a dilated convolution, batch norm over unpadded steps."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...attention import Attention
from ...errors import UserError
from ...kernels.dropout import dropout_add
from .settings import is_number


def zero_padded(x: Tensor, padding: Tensor | None) -> Tensor:
    """Sets padded steps to 0, as whatever mixes steps must see them.

    Args:
        x: (batch, time, width)
        padding: bool, (batch, time), True where a step is padding; or None
    """
    return x if padding is None else x.masked_fill(padding[..., None], 0.0)


class StepBatchNorm(nn.BatchNorm1d):
    """``torch.nn.BatchNorm1d`` whose statistics are those of the unpadded steps alone.

    Parameters and buffers carry that class's names.
    """

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """Normalises.

        Args:
            x: (batch, time, width)
            padding: bool, (batch, time), True where a step is padding; or None

        Returns:
            as ``x``; what stands at padded steps means nothing
        """
        if padding is None or not self.training:
            return super().forward(x.flatten(0, 1)).view_as(x)
        count = (~padding).sum()
        mean = zero_padded(x, padding).sum((0, 1)) / count
        centred = zero_padded(x - mean, padding)
        variance = centred.square().sum((0, 1)) / count
        with torch.no_grad():
            unbiased = variance * count / (count - 1).clamp(min=1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
            self.num_batches_tracked.add_(1)
        return centred * (variance + self.eps).rsqrt() * self.weight + self.bias


class StepConvolution(nn.Conv1d):
    """``torch.nn.Conv1d`` over time with "same" length, which reads padded steps as 0.

    Args:
        width, new_width: channels in and out
        kernel_size: odd
        dilation: steps between the kernel's entries
    """

    def __init__(
        self, width: int, new_width: int, kernel_size: int, dilation: int = 1, bias: bool = True
    ):
        super().__init__(
            *(width, new_width, kernel_size), padding="same", dilation=dilation, bias=bias
        )

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """Convolves (batch, time, width) to (batch, time, new_width)."""
        return super().forward(zero_padded(x, padding).transpose(1, 2)).transpose(1, 2)


class DCLayer(nn.Module):
    """A layer of the DC-Transformer (arXiv 2212.08330, equation 6).

    Attention of p d dimensions beside a dilated convolution of (1 - p) d, concatenated; residual
    connection, batch norm, feed-forward network, residual connection, batch norm, as the
    Time-Series Transformer (Zerveas et al. 2020, arXiv 2010.02803) has them. p = 0 is a dilated
    convolution alone, p = 1 a Transformer's layer.

    Args:
        embed_dim: d
        num_heads: of the attention, which is over all of the width
        p: part of the width that the attention makes, in [0, 1]; p d is a whole number
        layer: index of the layer in its stack, from 0: the dilation is 2 to the power of it
        num_layers: of that stack
        dropout: of probabilities, activations and residual connections, in training
        variant: what happens to the logits, one of ``ea_fairseq.attention.VARIANTS``
        options: the variant's own, such as ``alpha=0.1``

    Raises:
        UserError: naming the argument, its value and the choices
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        p: float,
        layer: int,
        num_layers: int,
        dropout: float,
        variant: str,
        **options: Any,
    ):
        super().__init__()
        attended = attended_width(embed_dim, p)
        self.attention = self.convolution = None
        if attended:
            self.attention = Attention(
                *(embed_dim, num_heads, "encoder", variant, layer, num_layers),
                dropout=dropout,
                output_dim=attended,
                **options,
            )
        if attended < embed_dim:
            self.convolution = StepConvolution(embed_dim, embed_dim - attended, 3, 2**layer)
        self.linear1 = nn.Linear(embed_dim, 4 * embed_dim)
        self.linear2 = nn.Linear(4 * embed_dim, embed_dim)
        self.norm1, self.norm2 = StepBatchNorm(embed_dim), StepBatchNorm(embed_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        padding: Tensor | None = None,
        carry: Tensor | None = None,
        need_probs: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Runs the layer.

        Args:
            x: (batch, time, embed_dim)
            padding: bool, (batch, time), True where a step is padding; or None
            carry: (batch, heads, time, time), that the layer below returned; or None
            need_probs: whether to return the attention's probabilities

        Returns:
            output as ``x``, the carry of the layer above, and the probabilities before dropout
            (batch, heads, time, time); None each where there is none
        """
        parts, probs = [], None
        if self.attention is not None:
            attended, carry, *rest = self.attention(x, None, padding, carry, need_probs=need_probs)
            parts.append(attended)
            probs = rest[0] if rest else None
        if self.convolution is not None:
            parts.append(self.convolution(x, padding))
        rate = self.dropout.p if self.training else 0.0
        x = self.norm1(dropout_add(torch.cat(parts, dim=-1), x, rate), padding)
        hidden = self.linear2(self.dropout(F.relu(self.linear1(x))))
        return self.norm2(dropout_add(hidden, x, rate), padding), carry, probs


def attended_width(embed_dim: int, p: float) -> int:
    """The dimensions that the attention makes, p d.

    Raises:
        UserError: they are no whole number from 0 to d
    """
    exact = p * embed_dim if is_number(p) and math.isfinite(p) else -1.0
    width = round(exact)
    if not 0 <= width <= embed_dim or abs(width - exact) > 1e-6:
        raise UserError(
            f"p must be in [0, 1], and p times embed_dim {embed_dim} a whole number, not {p!r}"
        )
    return width
