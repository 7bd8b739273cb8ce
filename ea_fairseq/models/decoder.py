"""fairseq's decoder, carrying attention maps from layer to layer."""

from typing import Any

import torch
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from .multihead_attention import IncrementalState
from .stack import next_layer, pairs_visible, wrap_layer
from .transformer_layer import EATransformerDecoderLayer


class EATransformerDecoder(TransformerDecoderBase):
    """fairseq's decoder with evolving attention: its loop carries logits from layer to layer."""

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        return wrap_layer(EATransformerDecoderLayer(cfg, next_layer(self), no_encoder_attn), cfg)

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None,
        incremental_state: IncrementalState | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """Decodes up to the output layer; what ``extract_features`` calls.

        Args:
            prev_output_tokens: (batch, tgt_len), long; with an incremental state the whole prefix,
                of which the last token is new
            encoder_out: what the encoder returned
            incremental_state: fairseq's cache for decoding step by step, or None
            full_context_alignment: whether self-attention sees later tokens too
            alignment_layer: layer whose attention is returned; default: the last
            alignment_heads: number of its heads to average; default: all

        Returns:
            features (batch, tgt_len, output_embed_dim), and a dictionary with "attn" (batch,
            tgt_len, src_len) and "inner_states"
        """
        if alignment_layer is None:
            alignment_layer = self.num_layers - 1
        source, source_padding = None, None
        if encoder_out is not None and encoder_out["encoder_out"]:
            source = encoder_out["encoder_out"][0]
            if encoder_out["encoder_padding_mask"]:
                source_padding = encoder_out["encoder_padding_mask"][0]
        one_step = incremental_state is not None
        if source is not None:
            # Hypotheses that share a sentence: attention knows that of its keys, step by step.
            together = prev_output_tokens.size(0) // source.size(1)
            if together > 1 and not one_step:
                source = source.repeat_interleave(together, dim=1)
            if together > 1 and source_padding is not None:
                source_padding = source_padding.repeat_interleave(together, dim=0)

        x = self._embed(prev_output_tokens, incremental_state).transpose(0, 1)
        visible, encoder_visible = self._visible(
            prev_output_tokens, source_padding, one_step, full_context_alignment
        )
        inner_states, attn, carry, encoder_carry = [x], None, None, None
        for index, layer in enumerate(self.layers):
            x, carry, encoder_carry, probs = layer(
                x,
                source,
                visible,
                encoder_visible,
                carry,
                encoder_carry,
                incremental_state=incremental_state,
                need_attn=index == alignment_layer,
                causal=not one_step and not full_context_alignment,
            )
            inner_states.append(x)
            if index == alignment_layer and probs is not None:
                attn = probs[:alignment_heads].to(x).mean(dim=0)

        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x.transpose(0, 1)  # (batch, tgt_len, embed_dim)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        return x, {"attn": [attn], "inner_states": inner_states}

    def _embed(self, prev_output_tokens: Tensor, incremental_state: Any) -> Tensor:
        """Embedded tokens and positions: (batch, tgt_len, embed_dim), of the last token alone with
        an incremental state."""
        positions = None
        if self.embed_positions is not None:
            positions = self.embed_positions(
                prev_output_tokens, incremental_state=incremental_state
            )
        if incremental_state is not None:
            prev_output_tokens = prev_output_tokens[:, -1:]
            positions = positions[:, -1:] if positions is not None else None

        x = self.embed_scale * self.embed_tokens(prev_output_tokens)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if positions is not None:
            x = x + positions
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)

    def _visible(
        self,
        prev_output_tokens: Tensor,
        source_padding: Tensor | None,
        one_step: bool,
        full_context: bool,
    ) -> tuple[Tensor | None, Tensor | None]:
        """What self- and encoder-decoder attention may see, once for all layers."""
        tgt_len = prev_output_tokens.size(1)
        keys_padding = prev_output_tokens.eq(self.padding_idx)
        if not keys_padding.any():
            keys_padding = None
        if source_padding is not None and not source_padding.any():
            source_padding = None

        queries_padding = keys_padding
        if one_step and keys_padding is not None:
            queries_padding = keys_padding[:, -1:]
        visible = pairs_visible(queries_padding, keys_padding)
        if not one_step and not full_context:
            past = torch.ones(
                tgt_len, tgt_len, dtype=torch.bool, device=prev_output_tokens.device
            ).tril()
            visible = past[None, None] if visible is None else visible & past
        return visible, pairs_visible(queries_padding, source_padding)
