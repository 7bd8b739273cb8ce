"""Residual attention logits, the closest relative of evolving attention."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ..contract import LogitTransform, Place, Projected, zero_hidden
from ..options import ATTENTIONS, VariantOptions, as_text, option, some_attentions
from ..registry import Architecture, Variant, register


@dataclass(frozen=True)
class ResidualOptions(VariantOptions):
    """Options of residual attention."""

    skip: tuple[str, ...] = option(
        ",".join(ATTENTIONS),
        some_attentions,
        "WHERE",
        "attentions with a skip connection between layers: comma-separated, of encoder, decoder, "
        "encoder-decoder; or none",
    )

    def without_effect(self, attentions: Sequence[str]) -> dict[str, str]:
        if not self.skip or set(self.skip) & set(attentions):
            return {}
        return {"skip": f"{as_text(self.skip)} has no such connection in this model"}


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
        self,
        logits: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        projected: Projected | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """See :meth:`LogitTransform.forward`."""
        if self.uses_carry and carry is not None:
            logits = logits + carry
        return zero_hidden(logits, visible), visible


def _build(options: ResidualOptions, place: Place) -> ResidualLogits:
    return ResidualLogits(skip=place.attention in options.skip)


register(
    Variant(
        name="residual",
        summary="each layer adds the logits of the layer below (RealFormer, arXiv 2012.11747)",
        options=ResidualOptions,
        build=_build,
        architectures=(Architecture("realformer_lite", "lite"),),
        cases=({}, {"skip": "encoder"}),
        neutral={"skip": "none"},
    )
)
