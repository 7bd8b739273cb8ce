"""Talking heads: learned mixtures of the heads' maps before and after the softmax."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..contract import LogitTransform, Place, Projected, mix_heads, zero_hidden
from ..options import VariantOptions, option, some_of
from ..registry import Architecture, Variant, register

_SIDES = ("before", "after")


@dataclass(frozen=True)
class TalkingHeadsOptions(VariantOptions):
    """Options of talking heads."""

    head_mixing: tuple[str, ...] = option(
        ",".join(_SIDES),
        some_of(*_SIDES),
        "WHEN",
        "where heads are mixed: before the softmax, after it, both separated by a comma, or none",
    )


class TalkingHeads(LogitTransform):
    """Talking-heads attention (arXiv 2003.02436), for every row t and key s, over heads g:

    Z_hts = sum_g before_hg L_gts
    P_hts = sum_g after_hg softmax(Z_g)_ts

    Both matrices start as the identity.

    Differs from the paper: there the numbers of heads of keys, maps and values may differ; here
    they are one, so that the rest of the attention is fairseq's.

    Args:
        num_heads: of the attention
        mixing: of "before" and "after" the softmax
    """

    def __init__(self, num_heads: int, mixing: tuple[str, ...]):
        super().__init__()
        self.before, self.after = (
            nn.Parameter(torch.eye(num_heads)) if side in mixing else None for side in _SIDES
        )

    def forward(
        self,
        logits: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        projected: Projected | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """See :meth:`LogitTransform.forward`."""
        if self.before is not None:
            logits = mix_heads(logits, self.before)
        return zero_hidden(logits, visible), visible

    def mix_probs(self, probs: Tensor, visible: Tensor | None) -> Tensor:
        """See :meth:`LogitTransform.mix_probs`."""
        return probs if self.after is None else mix_heads(probs, self.after)


def _build(options: TalkingHeadsOptions, place: Place) -> TalkingHeads:
    return TalkingHeads(place.num_heads, options.head_mixing)


register(
    Variant(
        name="talking_heads",
        summary="heads mixed before and after the softmax (arXiv 2003.02436)",
        options=TalkingHeadsOptions,
        build=_build,
        architectures=(Architecture("talking_heads_transformer_lite", "lite"),),
        cases=({}, {"head_mixing": "before"}, {"head_mixing": "after"}),
        neutral={},
    )
)
