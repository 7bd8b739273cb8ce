"""fairseq's encoder, carrying attention maps from layer to layer."""

from typing import Any

import torch
from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from ..attention.cached_heads import share
from .stack import next_layer, pairs_visible, wrap_layer
from .transformer_layer import EATransformerEncoderLayer


class EATransformerEncoder(TransformerEncoderBase):
    """fairseq's encoder with evolving attention: its loop carries logits from layer to layer."""

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        return wrap_layer(EATransformerEncoderLayer(cfg, next_layer(self), self.return_fc), cfg)

    def forward_scriptable(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """Encodes; what ``forward`` calls.

        Args:
            src_tokens: (batch, src_len), long
            src_lengths: unused, as in fairseq
            return_all_hiddens: whether to return each layer's output
            token_embeddings: (batch, src_len, embed_dim), instead of looking them up

        Returns:
            fairseq's dictionary of encoder outputs
        """
        padding = src_tokens.eq(self.padding_idx)
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)
        visible = None
        if padding.any():
            x = x.masked_fill(padding.unsqueeze(-1), 0.0)
            visible = pairs_visible(padding, padding)

        x = x.transpose(0, 1)  # (src_len, batch, embed_dim)
        hiddens = [x] if return_all_hiddens else []
        fc_results = []
        carry = None
        for layer in self.layers:
            x, carry, fc_result = layer(x, visible, carry)
            if return_all_hiddens:
                hiddens.append(x)
                fc_results.append(fc_result)
        if self.layer_norm is not None:
            x = self.layer_norm(x)

        lengths = (~padding).sum(dim=1, dtype=torch.int32).unsqueeze(1)
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [embedding],
            "encoder_states": hiddens,
            "fc_results": fc_results,
            "src_tokens": [],
            "src_lengths": [lengths],
        }

    def reorder_encoder_out(
        self, encoder_out: dict[str, list[Tensor]], new_order: Tensor
    ) -> dict[str, list[Tensor]]:
        """The outputs of the hypotheses that beam search goes on with.

        Neighbouring hypotheses of a sentence share its output, which is stored once: then
        ``encoder_out["hypotheses"]`` says how many, and a reorder within sentences copies nothing.

        Args:
            encoder_out: what ``forward`` or this method returned
            new_order: long, old place of each new hypothesis
        """
        together = encoder_out.get("hypotheses")
        hypotheses = int(together[0]) if together else 1
        sentences = encoder_out["encoder_padding_mask"][0].size(0)
        order, hypotheses = share(new_order, sentences, hypotheses)
        if order is not None:
            encoder_out = super().reorder_encoder_out(encoder_out, order)
        return {**encoder_out, "hypotheses": [torch.tensor(hypotheses, device="cpu")]}
