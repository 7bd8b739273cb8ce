"""The decoder's self-attention without its diagonal, or with a weaker or stronger one."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import UserError
from ..contract import AttentionArgs, LogitTransform, Place, Projected, zero_hidden
from ..options import VariantOptions, option
from ..registry import Variant, register
from .plain import PlainLogits

HIDDEN = "hidden"


def _hidden_or_factor(name: str, value: Any) -> str | float:
    """``hidden``, or a finite number."""
    try:
        factor = HIDDEN if value == HIDDEN else float(value)
    except (TypeError, ValueError):
        factor = math.nan
    if factor != HIDDEN and not math.isfinite(factor):
        raise UserError(f"{name} must be {HIDDEN} or a number, not {value!r}")
    return factor


@dataclass(frozen=True)
class DiagonalFreeOptions(VariantOptions):
    """Options of the diagonal; sections are those of "Bird-Eye Transformers"."""

    diagonal: str | float = option(
        HIDDEN,
        _hidden_or_factor,
        "HOW",
        "what becomes of each token's logit with itself: hidden, the first token's excepted "
        "(section 3.2), or a factor, 0.2 and 2 in section 4.3; 1 changes nothing",
    )


class DiagonalFreeLogits(PlainLogits):
    """Diagonal-free mask of "Bird-Eye Transformers for Text Generation Models", section 3.2.

    Z = L without its diagonal (t, t), which the residual connection gives to the next layer anyway;
    a sentence's first token has nothing else to attend to and keeps it. With a factor f, as in
    section 4.3, Z = L but for the diagonal, f L_tt.

    Args:
        diagonal: "hidden", or the factor
    """

    def __init__(self, diagonal: str | float):
        super().__init__()
        self.diagonal = diagonal

    def forward(
        self,
        logits: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        projected: Projected | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """See :meth:`LogitTransform.forward`; of one new row, which is the last, too."""
        return change_diagonal(logits, visible, self.diagonal)

    def attend(
        self, queries: Tensor | None, keys: Tensor | None, values: Tensor, args: AttentionArgs
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """See :meth:`LogitTransform.attend`; torch's fused function where all is in the mask."""
        if self.diagonal != HIDDEN or args.logits is not None or args.bias is not None:
            return LogitTransform.attend(self, queries, keys, values, args)
        visible = hide_diagonal(args.visible, queries.size(2), keys.size(2), queries.device)
        return super().attend(queries, keys, values, args._replace(visible=visible))


def change_diagonal(
    logits: Tensor, visible: Tensor | None, diagonal: str | float
) -> tuple[Tensor, Tensor | None]:
    """Hides the diagonal of self-attention's maps, or multiplies it.

    Args:
        logits: (batch, heads, tgt_len, src_len), whose rows are the last ``tgt_len`` of ``src_len``
            positions: whole maps, or one new row
        visible: bool, broadcastable to (batch, 1, tgt_len, src_len), or None
        diagonal: "hidden", or a factor

    Returns:
        logits, 0 in hidden entries, and what of them is visible
    """
    tgt_len, src_len = logits.shape[2:]
    if diagonal == HIDDEN:
        visible = hide_diagonal(visible, tgt_len, src_len, logits.device)
    elif diagonal != 1:
        own = _own(tgt_len, src_len, logits.device)
        logits = torch.where(own, logits * diagonal, logits)
    return zero_hidden(logits, visible), visible


def hide_diagonal(
    visible: Tensor | None, tgt_len: int, src_len: int, device: torch.device
) -> Tensor:
    """Hides each position from itself, but the first of a sentence, which has no earlier one.

    Args:
        visible: bool, broadcastable to (batch, 1, tgt_len, src_len), or None

    Returns:
        bool, broadcastable to (batch, 1, tgt_len, src_len)
    """
    own = _own(tgt_len, src_len, device)
    earlier = own.cumsum(-1) == 0
    has_earlier = (earlier if visible is None else earlier & visible).any(dim=-1, keepdim=True)
    hidden = own & has_earlier
    return ~hidden if visible is None else visible & ~hidden


def _own(tgt_len: int, src_len: int, device: torch.device) -> Tensor:
    """True where a key is the query's own position: bool, (tgt_len, src_len)."""
    rows = torch.arange(src_len - tgt_len, src_len, device=device)
    return rows.unsqueeze(1) == torch.arange(src_len, device=device)


def _build(options: DiagonalFreeOptions, place: Place) -> LogitTransform:
    return DiagonalFreeLogits(options.diagonal)


register(
    Variant(
        name="diagonal_free",
        summary="the decoder's tokens do not attend to themselves (Bird-Eye Transformers, 3.2)",
        options=DiagonalFreeOptions,
        build=_build,
        serves=("decoder",),
        cases=({}, {"diagonal": 0.2}, {"diagonal": -2.0}),
        neutral={"diagonal": 1.0},
    )
)
