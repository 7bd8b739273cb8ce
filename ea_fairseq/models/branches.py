"""Attention on one half of the width, a convolution over positions on the other."""

import torch
import torch.nn.functional as F
from fairseq.modules.lightweight_convolution import LightweightConv1dTBC
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from .multihead_attention import IncrementalState, TransformedAttention

#: Sizes of the kernels by layer; layers above have the last one.
KERNEL_SIZES = (3, 7, 15, 31, 31, 31)


class ConvolutionBranch(nn.Module):
    """Linear, GLU, lightweight convolution, linear: Wu et al. (arXiv 2004.11886), section 4.

    The lightweight convolution is fairseq's (Wu et al., arXiv 1901.10430), with kernels normalised
    by a softmax: one for each of ``num_heads`` groups of neighbouring channels.

    Args:
        width: channels
        num_heads: of the convolution; divides ``width``
        kernel_size: odd
        causal: whether a position sees itself and earlier ones only, or as many on both sides
        q_noise: share of blocks of the linear layers' weights that training leaves out
            (--quant-noise-pq)
        qn_block_size: of such a block
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        kernel_size: int,
        causal: bool,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ):
        super().__init__()
        self.gated = quant_noise(nn.Linear(width, 2 * width), q_noise, qn_block_size)
        self.convolution = LightweightConv1dTBC(
            width,
            kernel_size,
            padding_l=kernel_size - 1 if causal else kernel_size // 2,
            num_heads=num_heads,
            weight_softmax=True,
        )
        self.out_proj = quant_noise(nn.Linear(width, width), q_noise, qn_block_size)
        for linear in (self.gated, self.out_proj):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(
        self, x: Tensor, visible: Tensor | None, incremental_state: IncrementalState | None
    ) -> Tensor:
        """Convolves.

        Args:
            x: (length, batch, width); length = 1 with an incremental state
            visible: as self-attention has it; a position that sees nothing is padding, 0 to others
            incremental_state: where the convolution keeps the last positions while decoding

        Returns:
            (length, batch, width)
        """
        x = F.glu(self.gated(x), dim=-1)
        if visible is not None:
            padding = ~visible.any(dim=-1)[:, 0].t()  # (length, batch or 1)
            x = x.masked_fill(padding.unsqueeze(-1), 0.0)
        return self.out_proj(self.convolution(x, incremental_state))


class BranchedAttention(nn.Module):
    """Self-attention of the Conv-Transformer and its relatives (PA-Transformer, ICLR 2021
    submission, Figure 4 and appendix B.1): both halves of the width, side by side.

    Stands where a :class:`TransformedAttention` stands. The paper does not say what each branch
    reads: here its own half of the input, as in Wu et al. (arXiv 2004.11886).

    Args:
        attention: of the first half
        convolution: of the second half, as wide
    """

    def __init__(self, attention: TransformedAttention, convolution: ConvolutionBranch):
        super().__init__()
        self.attention = attention
        self.convolution = convolution
        # What fairseq's decoder layer asks of its self-attention, of the whole width.
        self.num_heads, self.head_dim = attention.num_heads, 2 * attention.head_dim

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        visible: Tensor | None,
        carry: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = False,
        causal: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """See :meth:`TransformedAttention.forward`; ``key`` is the query itself."""
        attended, convolved = query.chunk(2, dim=-1)
        output, probs, carry = self.attention(
            *(attended, attended, visible, carry, incremental_state),
            need_weights=need_weights,
            causal=causal,
        )
        convolved = self.convolution(convolved, visible, incremental_state)
        return torch.cat([output, convolved], dim=-1), probs, carry
