"""fairseq's Transformer layers, taking and returning the carry of their attentions."""

from typing import Any

from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from torch import Tensor, nn

from ..attention.configuration import EAOptions
from ..attention.variants import Place
from ..errors import UserError
from ..kernels.dropout import dropout_add
from .branches import KERNEL_SIZES, BranchedAttention, ConvolutionBranch
from .multihead_attention import IncrementalState, TransformedAttention, rate_in_use


def _build_attention(
    attention: str, cfg: Any, layer: int, embed_dim: int, **kwargs: Any
) -> TransformedAttention:
    """The attention of one kind ("encoder", "decoder", "encoder-decoder"), ``embed_dim`` wide."""
    side = cfg.encoder if attention == "encoder" else cfg.decoder
    heads = side.attention_heads
    is_cut = bool(side.layers_to_keep)
    place = Place(attention, heads, embed_dim // heads, layer, side.layers, is_cut)
    longest = cfg.max_source_positions if attention == "encoder" else cfg.max_target_positions
    options = EAOptions.from_namespace(cfg)
    return TransformedAttention(
        embed_dim,
        heads,
        options.transform(place),
        options.score_function(place, longest),
        dropout=cfg.attention_dropout,
        q_noise=cfg.quant_noise.pq,
        qn_block_size=cfg.quant_noise.pq_block_size,
        **kwargs,
    )


def _build_self_attention(
    attention: str, cfg: Any, layer: int
) -> TransformedAttention | BranchedAttention:
    """Self-attention, or two branches.

    Raises:
        UserError: where two branches do not fit the width, or the stack was cut
    """
    side = cfg.encoder if attention == "encoder" else cfg.decoder
    width, heads = side.embed_dim, side.attention_heads
    if EAOptions.from_namespace(cfg).model.branch == "none":
        return _build_attention(attention, cfg, layer, width, self_attention=True)
    if width % (2 * heads):
        raise UserError(
            f"--ea-branch convolution: --{attention}-embed-dim {width} must be divisible by twice "
            f"--{attention}-attention-heads {heads}: each head has its part of one half"
        )
    if side.layers_to_keep:
        raise UserError(
            f"--{attention}-layers-to-keep {side.layers_to_keep} cannot be combined with "
            "--ea-branch convolution: a layer's place in its stack decides its kernel's size"
        )
    return BranchedAttention(
        _build_attention(attention, cfg, layer, width // 2, self_attention=True),
        ConvolutionBranch(
            width // 2,
            heads,
            KERNEL_SIZES[min(layer, len(KERNEL_SIZES) - 1)],
            causal=attention == "decoder",
            q_noise=cfg.quant_noise.pq,
            qn_block_size=cfg.quant_noise.pq_block_size,
        ),
    )


def _add_to_residual(layer: nn.Module, x: Tensor, residual: Tensor) -> Tensor:
    """residual + dropout(x), with the layer's dropout."""
    return dropout_add(x, residual, rate_in_use(layer.dropout_module))


class EATransformerEncoderLayer(TransformerEncoderLayerBase):
    """fairseq's encoder layer with a transformed self-attention.

    Args:
        cfg: fairseq's configuration of the model
        index: of the layer in its stack, from 0
        return_fc: whether to return the feed-forward network's output too
    """

    def __init__(self, cfg: Any, index: int, return_fc: bool = False):
        self.index = index  # fairseq builds the attention inside of its __init__
        super().__init__(cfg, return_fc)

    def build_self_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        return _build_self_attention("encoder", cfg, self.index)

    def forward(
        self, x: Tensor, visible: Tensor | None, carry: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Runs the layer.

        Args:
            x: (src_len, batch, embed_dim)
            visible: bool, broadcastable to (batch, 1, src_len, src_len), or None
            carry: (batch, heads, src_len, src_len) from the layer below, or None

        Returns:
            output (src_len, batch, embed_dim), the carry for the layer above or None, and with
            ``return_fc`` the feed-forward network's output, else None
        """
        residual = x
        if self.normalize_before:
            x = self.self_attn_layer_norm(x)
        x, _, carry = self.self_attn(x, x, visible, carry)
        x = _add_to_residual(self, x, residual)
        if not self.normalize_before:
            x = self.self_attn_layer_norm(x)

        residual = x
        if self.normalize_before:
            x = self.final_layer_norm(x)
        x = self.activation_dropout_module(self.activation_fn(self.fc1(x)))
        fc_result = x = self.fc2(x)
        x = _add_to_residual(self, x, residual)
        if not self.normalize_before:
            x = self.final_layer_norm(x)
        return x, carry, fc_result if self.return_fc else None


class EATransformerDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer with transformed self- and encoder-decoder attentions.

    Args:
        cfg: fairseq's configuration of the model
        index: of the layer in its stack, from 0
        no_encoder_attn: whether the layer has no encoder-decoder attention
    """

    def __init__(self, cfg: Any, index: int, no_encoder_attn: bool = False):
        self.index = index
        super().__init__(cfg, no_encoder_attn)

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> nn.Module:
        # Extra keys (add_bias_kv, add_zero_attn) have no place in the map; no fairseq option of
        # the translation models sets them.
        assert not add_bias_kv and not add_zero_attn
        return _build_self_attention("decoder", cfg, self.index)

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> TransformedAttention:
        return _build_attention(
            "encoder-decoder",
            cfg,
            self.index,
            embed_dim,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            encoder_decoder_attention=True,
        )

    def forward(
        self,
        x: Tensor,
        encoder_out: Tensor | None,
        visible: Tensor | None,
        encoder_visible: Tensor | None,
        carry: Tensor | None,
        encoder_carry: Tensor | None,
        incremental_state: IncrementalState | None = None,
        need_attn: bool = False,
        causal: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Runs the layer.

        Args:
            x: (tgt_len, batch, embed_dim)
            encoder_out: (src_len, batch, embed_dim), or None without encoder-decoder attention
            visible: bool, broadcastable to (batch, 1, tgt_len, keys), of self-attention, or None
            encoder_visible: bool, broadcastable to (batch, 1, tgt_len, src_len), or None
            carry: (batch, heads, tgt_len, keys), self-attention's from the layer below, or None
            encoder_carry: (batch, heads, tgt_len, src_len), encoder-decoder attention's, or None
            incremental_state: fairseq's cache, or None
            need_attn: whether to return the probabilities of encoder-decoder attention
            causal: whether ``visible`` hides all later keys, of whole maps

        Returns:
            output (tgt_len, batch, embed_dim), both carries for the layer above or None, and
            probabilities (heads, batch, tgt_len, src_len) or None
        """
        residual = x
        if self.normalize_before:
            x = self.self_attn_layer_norm(x)
        x, _, carry = self.self_attn(x, x, visible, carry, incremental_state, causal=causal)
        if self.c_attn is not None:
            x = (x.unflatten(-1, (self.nh, self.head_dim)) * self.c_attn.view(-1, 1)).flatten(-2)
        if self.attn_ln is not None:
            x = self.attn_ln(x)
        x = _add_to_residual(self, x, residual)
        if not self.normalize_before:
            x = self.self_attn_layer_norm(x)

        probs = None
        if self.encoder_attn is not None and encoder_out is not None:
            residual = x
            if self.normalize_before:
                x = self.encoder_attn_layer_norm(x)
            x, probs, encoder_carry = self.encoder_attn(
                x,
                encoder_out,
                encoder_visible,
                encoder_carry,
                incremental_state,
                need_weights=need_attn or (not self.training and self.need_attn),
            )
            x = _add_to_residual(self, x, residual)
            if not self.normalize_before:
                x = self.encoder_attn_layer_norm(x)

        residual = x
        if self.normalize_before:
            x = self.final_layer_norm(x)
        x = self.activation_dropout_module(self.activation_fn(self.fc1(x)))
        if self.ffn_layernorm is not None:
            x = self.ffn_layernorm(x)
        x = self.fc2(x)
        if self.w_resid is not None:
            residual = self.w_resid * residual
        x = _add_to_residual(self, x, residual)
        if not self.normalize_before:
            x = self.final_layer_norm(x)
        return x, carry, encoder_carry, probs
