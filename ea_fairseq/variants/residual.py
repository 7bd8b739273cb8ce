"""Residual attention logits, the closest relative of evolving attention."""

from torch import Tensor

from .base import LogitTransform, zero_hidden


class ResidualLogits(LogitTransform):
    """RealFormer (arXiv 2012.11747), section 3: each layer adds the logits of the layer below.

    Z = carry + logits    (logits alone in the first layer)

    Args:
        skip: whether the carry is added; without it, Z = logits
    """

    def __init__(self, skip: bool):
        super().__init__()
        self.uses_carry = skip

    def forward(
        self, logits: Tensor, visible: Tensor | None, carry: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See :meth:`LogitTransform.forward`."""
        if self.uses_carry and carry is not None:
            logits = logits + carry
        return zero_hidden(logits, visible), visible
