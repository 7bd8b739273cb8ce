"""Evolving attention: carry mixing and convolution mixing."""

import torch
from torch import Tensor

from ..kernels.fused_attention import Evolution, fused_attention
from ..kernels.fused_step import fused_step
from ..kernels.library import is_available
from .base import LogitTransform, State, zero_hidden
from .cached_heads import CachedHeads
from .conv import MAP_CONVOLUTIONS


class EvolvingLogits(LogitTransform):
    """Evolving attention (arXiv 2102.12895), equation (4), sections 3.2 to 3.5.

    A_in = alpha * carry + (1 - alpha) * logits    (logits alone in the first layer)
    Z    = beta * relu(conv(A_in)) + (1 - beta) * A_in

    Differs from the paper: hidden entries count as 0 wherever the convolution reads them, and in
    the carry; the paper does not say what its convolution sees there.

    Args:
        attention: "encoder", "decoder" or "encoder-decoder"
        num_heads: heads of the attention
        alpha: weight of the carry, in [0, 1]
        beta: weight of the convolution, in [0, 1]
        kernel_size: odd
        convolution: whether there is a convolution; without it, Z = A_in
        skip: whether the carry is mixed in; without it, A_in = logits
    """

    def __init__(
        self,
        attention: str,
        num_heads: int,
        alpha: float,
        beta: float,
        kernel_size: int,
        convolution: bool,
        skip: bool,
    ):
        super().__init__()
        self.alpha = alpha
        self.beta = beta
        self.uses_carry = skip
        self.convolution = (
            MAP_CONVOLUTIONS[attention](num_heads, kernel_size) if convolution else None
        )

    def _mix_carry(self, logits: Tensor, visible: Tensor | None, carry: Tensor | None) -> Tensor:
        if self.uses_carry and carry is not None:
            logits = logits.lerp(carry, self.alpha)
        return zero_hidden(logits, visible)

    def forward(
        self, logits: Tensor, visible: Tensor | None, carry: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See :meth:`LogitTransform.forward`."""
        a_in = self._mix_carry(logits, visible, carry)
        if self.convolution is None:
            return a_in, visible
        return a_in.lerp(self.convolution(a_in, visible), self.beta), visible

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        scaling: float,
        visible: Tensor | None,
        carry: Tensor | None,
        dropout: float = 0.0,
        need_probs: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """See :meth:`LogitTransform.attend`; compiled where that is possible."""
        if self.convolution is None or not is_available(queries):
            return super().attend(
                queries, keys, values, scaling, visible, carry, dropout, need_probs
            )
        return fused_attention(
            queries,
            keys,
            values,
            visible,
            carry if self.uses_carry else None,
            self.convolution.kernel(),
            self.convolution.bias,
            self._evolution(scaling),
            dropout,
            need_carry=self.uses_carry,
            need_probs=need_probs,
        )

    def attend_step(
        self,
        queries: Tensor,
        cached: CachedHeads,
        scaling: float,
        visible: Tensor | None,
        carry: Tensor | None,
        state: State,
        dropout: float = 0.0,
        need_probs: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, State]:
        """See :meth:`LogitTransform.attend_step`; compiled where that is possible."""
        compiled = self.convolution is not None and dropout == 0 and is_available(queries)
        if not compiled or torch.is_grad_enabled() and queries.requires_grad:
            return super().attend_step(
                queries, cached, scaling, visible, carry, state, dropout, need_probs
            )
        return fused_step(
            queries,
            cached,
            visible,
            carry if self.uses_carry else None,
            state,
            self.convolution.kernel(),
            self.convolution.bias,
            self._evolution(scaling),
            need_carry=self.uses_carry,
            need_probs=need_probs,
        )

    def _evolution(self, scaling: float) -> Evolution:
        convolution = self.convolution
        return Evolution(
            self.alpha, self.beta, scaling, convolution.move, convolution.lower_triangular
        )

    def step(
        self, logits: Tensor, visible: Tensor | None, carry: Tensor | None, state: State
    ) -> tuple[Tensor, Tensor | None, State]:
        """See :meth:`LogitTransform.step`; the state is the convolution's."""
        a_in = self._mix_carry(logits, visible, carry)
        if self.convolution is None:
            return a_in, visible, state
        term, state = self.convolution.step(a_in, visible, state)
        return a_in.lerp(term, self.beta), visible, state
