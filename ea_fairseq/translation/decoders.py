"""One model's decoder, step by step, for a search: fairseq's on torch, or compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.models import FairseqEncoderDecoderModel, FairseqIncrementalDecoder
from fairseq.models.transformer import TransformerDecoder, TransformerDecoderBase
from fairseq.modules import FairseqDropout, MultiheadAttention
from fairseq.modules.transformer_layer import TransformerDecoderLayer, TransformerDecoderLayerBase
from torch import Tensor, nn

from ..kernels.fused_decoder import (
    AttentionParts,
    DecoderParts,
    FusedDecoder,
    LayerParts,
    MapStep,
    Rules,
)
from ..kernels.library import is_available
from ..models.ea_transformer import EATransformerDecoder
from ..modules.multihead_attention import TransformedAttention
from ..modules.transformer_layer import EATransformerDecoderLayer
from ..scores import ScoreFunction
from ..variants.evolving import EvolvingLogits
from ..variants.plain import PlainLogits

_DECODERS = (EATransformerDecoder, TransformerDecoder, TransformerDecoderBase)
_LAYERS = (EATransformerDecoderLayer, TransformerDecoderLayer, TransformerDecoderLayerBase)


class TorchDecoder:
    """A decoder of fairseq's, any of them, over encoded sources."""

    def __init__(self, model: FairseqEncoderDecoderModel, encoded: Any):
        self.model, self.encoded = model, encoded
        incremental = isinstance(model.decoder, FairseqIncrementalDecoder)
        self.state = {} if incremental else None
        # An adaptive softmax has no scores but log-probabilities.
        self.normalized = getattr(model.decoder, "adaptive_softmax", None) is not None
        modules = model.decoder.modules()
        self.with_state = [m for m in modules if hasattr(m, "reorder_incremental_state")]

    def step(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Scores of the token after these, (rows, vocabulary), and attention (rows, src_len) or
        None. The scores are logits, or where `normalized` log-probabilities."""
        if self.state is None:
            output = self.model.decoder(tokens, encoder_out=self.encoded)
        else:
            output = self.model.decoder(
                tokens, encoder_out=self.encoded, incremental_state=self.state
            )
        if self.normalized:
            scores = self.model.get_normalized_probs(output, log_probs=True)
        else:
            scores = output[0]
        scores = scores[:, -1]
        attention = output[1].get("attn") if isinstance(output[1], dict) else output[1]
        if isinstance(attention, list):
            attention = attention[0]
        return scores.float(), None if attention is None else attention[:, -1]

    def reorder(self, order: Tensor) -> None:
        """Goes on with other rows."""
        if self.state is not None:
            for module in self.with_state:
                kept = module.reorder_incremental_state(self.state, order)
                self.state = self.state if kept is None else kept
        self.encoded = self.model.encoder.reorder_encoder_out(self.encoded, order)


class CompiledDecoder:
    """A decoder that chooses tokens itself, over encoded sources.

    Args:
        decoder: of `compiled_decoder`
        encoded: (longest, sentences, embed_dim), sentences at the right end
        lengths: of the sentences
        rules: which tokens may be chosen
    """

    def __init__(
        self, decoder: FusedDecoder, encoded: Tensor, lengths: Sequence[int], rules: Rules
    ):
        self._decoding = decoder.begin(encoded, lengths)
        self._rules = rules
        self._parents: Tensor | None = None

    def best(
        self, tokens: Tensor, sentences: Tensor, most: int, no_end: bool, last: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities (rows, most) of each row's best next tokens, and these.

        Args:
            tokens: (rows, length) so far, of which the last is new
            sentences: long, (rows), whose they are
            most: how many
            no_end: whether no row may end
            last: bool, (rows), which rows must end
        """
        newest, parents = tokens[:, -1], self._parents
        self._parents = torch.arange(len(tokens))
        return self._decoding.step(newest, sentences, parents, most, self._rules, no_end, last)

    def reorder(self, order: Tensor) -> None:
        """Goes on with other rows."""
        self._parents = order


def compiled_decoder(model: FairseqEncoderDecoderModel) -> FusedDecoder | None:
    """A model's decoder for the compiled library, or None where that does not compute it."""
    decoder = model.decoder
    if type(decoder) not in _DECODERS or model.training or not is_available_for(model):
        return None
    layers = [_layer_parts(layer) for layer in decoder.layers]
    heads = {layer.self_attn.num_heads for layer in decoder.layers}
    heads |= {layer.encoder_attn.num_heads for layer in decoder.layers if layer.encoder_attn}
    first = {layer.normalize_before for layer in decoder.layers}
    unusual = (decoder.project_in_dim, decoder.project_out_dim, decoder.adaptive_softmax)
    if None in layers or len(heads) != 1 or len(first) != 1 or any(unusual):
        return None
    if decoder.quant_noise is not None or type(decoder.embed_tokens) is not nn.Embedding:
        return None
    norms = decoder.layernorm_embedding, decoder.layer_norm
    if type(decoder.output_projection) is not nn.Linear or not all(map(_is_norm, norms)):
        return None
    if any(_drops(module) for module in decoder.modules()):
        return None
    positions = None
    if decoder.embed_positions is not None:
        words = torch.full((1, decoder.max_positions()), decoder.dictionary.eos())
        positions = decoder.embed_positions(words)[0].detach()
    return FusedDecoder(
        DecoderParts(
            layers,
            *(heads.pop(), first.pop(), decoder.embed_tokens.weight, decoder.embed_scale),
            *(positions, *norms, decoder.output_projection),
        )
    )


def is_available_for(model: FairseqEncoderDecoderModel) -> bool:
    """Whether the compiled library is there, and a model is where it works: in float32 on the
    CPU."""
    parameters = list(model.decoder.parameters())
    return is_available(parameters[0]) and {p.dtype for p in parameters} == {torch.float32}


def _layer_parts(layer: nn.Module) -> LayerParts | None:
    if type(layer) not in _LAYERS or layer.encoder_attn is None:
        return None
    extras = (layer.c_attn, layer.attn_ln, layer.ffn_layernorm, layer.w_resid)
    norms = layer.self_attn_layer_norm, layer.encoder_attn_layer_norm, layer.final_layer_norm
    networks = layer.fc1, layer.fc2
    if any(extra is not None for extra in extras) or layer.activation_fn is not F.relu:
        return None
    if not all(map(_is_norm, norms)) or any(type(fc) is not nn.Linear for fc in networks):
        return None
    attentions = (layer.self_attn, layer.encoder_attn)
    parts = [_attention_parts(a, n) for a, n in zip(attentions, norms, strict=False)]
    return None if None in parts else LayerParts(*parts, *networks, norms[2])


def _attention_parts(attention: nn.Module, norm: nn.LayerNorm) -> AttentionParts | None:
    if type(attention) not in (TransformedAttention, MultiheadAttention):
        return None
    layers = attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj
    if any(type(layer) is not nn.Linear for layer in layers):
        return None
    if attention.bias_k is not None or attention.add_zero_attn or attention.use_xformers:
        return None
    step = _map_step(attention)
    return None if step is None else AttentionParts(*layers, norm, step)


def _map_step(attention: nn.Module) -> MapStep | None:
    if type(attention) is MultiheadAttention:
        return MapStep()
    transform = attention.transform
    if type(attention.scores) is not ScoreFunction:
        return None
    if type(transform) is PlainLogits:
        return MapStep()
    if type(transform) is not EvolvingLogits or transform.learned_mixing:
        return None
    mixing = transform.alpha, transform.beta, transform.uses_carry
    convolution = transform.convolution
    if convolution is None:
        return MapStep(*mixing)
    right = convolution.move[1]
    return MapStep(*mixing, convolution.kernel(), convolution.bias, right)


def _is_norm(norm: nn.Module | None) -> bool:
    return norm is None or type(norm) is nn.LayerNorm


def _drops(module: nn.Module) -> bool:
    return isinstance(module, FairseqDropout) and module.apply_during_inference
