"""Bird-eye attention, free of syntax: the decoder weighs its own history anew."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..contract import (
    AttentionArgs,
    LogitTransform,
    Place,
    Projected,
    State,
    at_least_float32,
    masked_softmax,
)
from ..registry import Architecture, Variant, register
from .diagonal_free import HIDDEN, DiagonalFreeOptions, change_diagonal, hide_diagonal
from .plain import PlainLogits


@dataclass(frozen=True)
class BirdEyeOptions(DiagonalFreeOptions):
    """Options of bird-eye attention: those of its diagonal."""


class BirdEyeLogits(PlainLogits):
    """BET(SF) of "Bird-Eye Transformers for Text Generation Models", equations (6) to (10).

    H    = softmax(L) V                            each head's own attention
    R_j  = sigmoid(w . [H_j ; K_j])                how important position j is
    Z_tj = 2 R_j L_tj                              then the diagonal-free mask

    Differs from the paper: the factor 2, so that w = 0, where w starts, is plain attention; and a w
    for each head, of twice its width, since the paper writes its equations for one head.

    Args:
        num_heads: heads of the attention
        head_dim: width of each head
        diagonal: "hidden" for the diagonal-free mask, or a factor; 1 for neither
    """

    uses_keys = True

    def __init__(self, num_heads: int, head_dim: int, diagonal: str | float):
        super().__init__()
        self.diagonal = diagonal
        self.weight = nn.Parameter(torch.zeros(num_heads, 2 * head_dim))

    def _importance(self, collected: Tensor, keys: Tensor) -> Tensor:
        """2 R, float32 at least: (batch, heads, length) of H and K (batch, heads, length,
        head_dim)."""
        features = at_least_float32(torch.cat([collected, keys], dim=-1))
        with torch.autocast(features.device.type, enabled=False):
            weight = self.weight.to(features.dtype)
            return 2 * torch.einsum("bhtd,hd->bht", features, weight).sigmoid()

    def forward(
        self,
        logits: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        projected: Projected | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """See :meth:`LogitTransform.forward`."""
        collected = _collect(logits, visible, projected.values)
        importance = self._importance(collected, projected.keys)
        return change_diagonal(logits * importance.unsqueeze(2), visible, self.diagonal)

    def step(
        self,
        logits: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        state: State,
        projected: Projected | None = None,
    ) -> tuple[Tensor, Tensor | None, State]:
        """See :meth:`LogitTransform.step`.

        Position j's importance needs row j alone. Kept:
            importance: (batch, heads, positions so far)
        """
        collected = _collect(logits, visible, projected.values)
        importance = self._importance(collected, projected.keys[:, :, -1:])
        if state:
            importance = torch.cat([state["importance"], importance], dim=2)
        logits = logits * importance.unsqueeze(2)
        return *change_diagonal(logits, visible, self.diagonal), {"importance": importance}

    def attend(
        self, queries: Tensor | None, keys: Tensor | None, values: Tensor, args: AttentionArgs
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """See :meth:`LogitTransform.attend`; twice torch's fused function where no map is wanted.

        2 R_j L_tj is the product of query t with 2 R_j K_j.
        """
        maps = args.need_probs or args.logits is not None or args.bias is not None
        if maps or self.diagonal not in (HIDDEN, 1):
            return LogitTransform.attend(self, queries, keys, values, args)
        plain = super().attend
        collected, _, _ = plain(queries, keys, values, args._replace(dropout=0.0))
        importance = self._importance(collected, keys).unsqueeze(-1)
        if self.diagonal == HIDDEN:
            lengths = queries.size(2), keys.size(2)
            args = args._replace(visible=hide_diagonal(args.visible, *lengths, queries.device))
        keys = (keys * importance).to(keys.dtype)
        return plain(queries, keys, values, args)


def _collect(logits: Tensor, visible: Tensor | None, values: Tensor) -> Tensor:
    """What plain attention collects: (batch, heads, tgt_len, head_dim)."""
    return masked_softmax(logits, visible).to(values.dtype) @ values


def _build(options: BirdEyeOptions, place: Place) -> BirdEyeLogits:
    return BirdEyeLogits(place.num_heads, place.head_dim, options.diagonal)


register(
    Variant(
        name="bird_eye",
        summary="the decoder's logits times the learned importance of each token (BET(SF))",
        options=BirdEyeOptions,
        build=_build,
        # Section 4.1: in the decoder.
        serves=("decoder",),
        architectures=(Architecture("bet_transformer_lite", "lite"),),
        cases=({}, {"diagonal": 1.0}, {"diagonal": 0.2}),
        neutral={"diagonal": 1.0},
    )
)
