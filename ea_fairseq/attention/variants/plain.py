"""Plain attention: what serves where a variant leaves an attention as it was."""

import torch.nn.functional as F
from torch import Tensor

from ..contract import AttentionArgs, LogitTransform, Place
from ..options import VariantOptions
from ..registry import Architecture, Variant, register


class PlainLogits(LogitTransform):
    """Attention as in "Attention Is All You Need" (arXiv 1706.03762), equation (1): Z = L."""

    def attend(
        self, queries: Tensor | None, keys: Tensor | None, values: Tensor, args: AttentionArgs
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """See :meth:`LogitTransform.attend`; torch's fused function where no map is wanted."""
        if args.need_probs or args.logits is not None or args.bias is not None:
            return super().attend(queries, keys, values, args)
        blind, visible = None, args.visible
        if visible is not None:
            blind = ~visible.any(dim=-1, keepdim=True)  # torch's function would give NaN there
            visible = visible | blind
        output = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=visible, dropout_p=args.dropout, scale=args.scaling
        )
        return output if blind is None else output.masked_fill(blind, 0.0), None, None


def _build(options: VariantOptions, place: Place) -> PlainLogits:
    return PlainLogits()


register(
    Variant(
        name="plain",
        summary="fairseq's own attention; for the other attentions of a chain",
        options=VariantOptions,
        build=_build,
        # PA-Transformer, ICLR 2021 submission, sections 4.1.1 and B.1.
        architectures=(
            Architecture("conv_transformer_lite", "lite", model={"branch": "convolution"}),
        ),
        neutral={},
    )
)
