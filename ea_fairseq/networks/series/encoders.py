"""Encoders of series: DC-Transformer with its evolving forms, and the baselines of the paper."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import UserError
from .layers import DCLayer, StepBatchNorm, StepConvolution, zero_padded


class DCTransformer(nn.Module):
    """DC-Transformer and EA-DC-Transformer (arXiv 2212.08330, section 3.3).

    Linear projection, learned positions, ``num_blocks`` blocks of two layers each
    (:class:`~ea_fairseq.networks.series.layers.DCLayer`); the carry goes through all of them. The
    projection's output is multiplied by sqrt(d) and positions begin uniform in [-0.02, 0.02], as in
    the Time-Series Transformer.

    With ``variant="plain"``: p = 1 is the Time-Series Transformer, p = 0 the dilated convolution.

    Args:
        channels: of the series
        max_len: steps of the longest series
        embed_dim: d
        num_blocks: n, of two layers each
        dropout: in training
        num_heads: divides embed_dim
        p: part of the width that attention makes; the rest is the dilated convolution's
        variant: what happens to the logits, one of ``ea_fairseq.attention.VARIANTS``
        options: the variant's own, such as ``alpha=0.1``

    Attributes:
        width: of what it returns
        readout: what a classifier reads of it: "flatten" (all steps), "last" or "mean"

    Raises:
        UserError: naming the argument, its value and the choices
    """

    readout = "flatten"

    def __init__(
        self,
        channels: int,
        max_len: int,
        embed_dim: int,
        num_blocks: int,
        dropout: float,
        *,
        num_heads: int = 8,
        p: float = 0.25,
        variant: str = "evolving",
        **options: Any,
    ):
        super().__init__()
        self.width = embed_dim
        self.projection = nn.Linear(channels, embed_dim)
        self.positions = nn.Parameter(torch.empty(max_len, embed_dim).uniform_(-0.02, 0.02))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            DCLayer(*(embed_dim, num_heads, p, layer, 2 * num_blocks, dropout, variant), **options)
            for layer in range(2 * num_blocks)
        )

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """Encodes.

        Args:
            x: (batch, time, channels); time is at most max_len
            padding: bool, (batch, time), True where a step is padding, at the end; or None

        Returns:
            (batch, time, width); what stands at padded steps means nothing
        """
        return self._run(x, padding, False)[0]

    @torch.no_grad()
    def attention_maps(self, x: Tensor, padding: Tensor | None = None) -> list[Tensor]:
        """The probabilities of each layer, (batch, heads, time, time); none where p = 0."""
        return [probs for probs in self._run(x, padding, True)[1] if probs is not None]

    def _run(
        self, x: Tensor, padding: Tensor | None, need_probs: bool
    ) -> tuple[Tensor, list[Tensor | None]]:
        x = self.projection(x) * self.width**0.5 + self.positions[: x.size(1)]
        x, carry, maps = self.dropout(x), None, []
        for layer in self.layers:
            x, carry, probs = layer(x, padding, carry, need_probs)
            maps.append(probs)
        return x, maps


class Recurrent(nn.Module):
    """An LSTM or a GRU, torch's own; its last unpadded step is read. Args: see `DCTransformer`.

    Args:
        kind: ``nn.LSTM`` or ``nn.GRU``
        num_blocks: its layers
    """

    readout = "last"

    def __init__(
        self,
        kind: type[nn.LSTM] | type[nn.GRU],
        channels: int,
        embed_dim: int,
        num_blocks: int,
        dropout: float,
    ):
        super().__init__()
        self.width = embed_dim
        between = dropout if num_blocks > 1 else 0.0  # torch warns of one that has no place
        self.cells = kind(channels, embed_dim, num_blocks, batch_first=True, dropout=between)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """See :meth:`DCTransformer.forward`. Padding comes after what is read: no step sees it."""
        return self.cells(x)[0]


class ResidualBlock(nn.Module):
    """Three convolutions of kernel 3 with batch norm and ReLU, and a shortcut around them.

    The block of Wang et al. (arXiv 1611.06455), whose kernels are 8, 5 and 3; here 3 each, as
    arXiv 2212.08330, section 4.1, says.
    """

    def __init__(self, width: int, new_width: int):
        super().__init__()
        widths = [width, new_width, new_width, new_width]
        pairs = list(zip(widths[:-1], widths[1:], strict=True))
        self.convolutions = nn.ModuleList(StepConvolution(*pair, 3, bias=False) for pair in pairs)
        self.norms = nn.ModuleList(StepBatchNorm(new_width) for _ in pairs)
        self.shortcut = nn.Linear(width, new_width, bias=False) if width != new_width else None
        self.shortcut_norm = StepBatchNorm(new_width)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """(batch, time, width) to (batch, time, new_width)."""
        shortcut = x if self.shortcut is None else self.shortcut(x)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            last = norm is self.norms[-1]
            x = norm(convolution(x, padding), padding)
            x = x if last else F.relu(x)
        return F.relu(x + self.shortcut_norm(shortcut, padding))


class ResNet(nn.Module):
    """Residual convolutions whose mean over steps is read (Wang et al., arXiv 1611.06455).

    Widths are d in the first block and 2 d in the others. Args: see :class:`DCTransformer`; dropout
    is for what is read alone.
    """

    readout = "mean"

    def __init__(self, channels: int, embed_dim: int, num_blocks: int):
        super().__init__()
        self.width = 2 * embed_dim if num_blocks > 1 else embed_dim
        widths = [channels, embed_dim] + [2 * embed_dim] * (num_blocks - 1)
        self.blocks = nn.ModuleList(
            ResidualBlock(*pair) for pair in zip(widths[:-1], widths[1:], strict=True)
        )

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """See :meth:`DCTransformer.forward`."""
        for block in self.blocks:
            x = block(x, padding)
        return x


#: Kinds of encoders.
ENCODERS = ("dc", "lstm", "gru", "resnet")


def build_encoder(
    kind: str,
    channels: int,
    max_len: int,
    embed_dim: int,
    num_blocks: int,
    dropout: float,
    **attention: Any,
) -> nn.Module:
    """An encoder by name.

    Args:
        kind: "dc" (:class:`DCTransformer`), "lstm", "gru" or "resnet"
        channels, max_len, embed_dim, num_blocks, dropout: see :class:`DCTransformer`
        attention: num_heads, p, variant and its options, of "dc" alone

    Raises:
        UserError: naming the argument, its value and the choices
    """
    if kind not in ENCODERS:
        raise UserError(f"encoder must be one of {', '.join(ENCODERS)}, not {kind!r}")
    if kind == "dc":
        return DCTransformer(channels, max_len, embed_dim, num_blocks, dropout, **attention)
    if attention:
        raise UserError(f"{', '.join(attention)}: of encoder 'dc' alone, not {kind!r}")
    if kind == "resnet":
        return ResNet(channels, embed_dim, num_blocks)
    cells = nn.LSTM if kind == "lstm" else nn.GRU
    return Recurrent(cells, channels, embed_dim, num_blocks, dropout)


def read_out(states: Tensor, padding: Tensor | None, readout: str, max_len: int) -> Tensor:
    """What a classifier reads of an encoder's output.

    Args:
        states: (batch, time, width)
        padding: bool, (batch, time), True where a step is padding, at the end; or None
        readout: "flatten": GELU, then all steps side by side, 0 where there are none, as the
            Time-Series Transformer has it; "last" or "mean" of the unpadded steps
        max_len: steps of the longest series

    Returns:
        (batch, max_len * width) for "flatten", otherwise (batch, width)
    """
    if readout == "flatten":
        states = zero_padded(F.gelu(states), padding)
        return F.pad(states, (0, 0, 0, max_len - states.size(1))).flatten(1)
    if padding is None:
        return states[:, -1] if readout == "last" else states.mean(1)
    lengths = (~padding).sum(1)
    if readout == "last":
        return states[torch.arange(len(states), device=states.device), lengths - 1]
    return zero_padded(states, padding).sum(1) / lengths[:, None]
