"""Which models the compiled library translates with, and their weights as it takes them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.models.transformer import (
    TransformerDecoder,
    TransformerDecoderBase,
    TransformerEncoder,
    TransformerEncoderBase,
)
from fairseq.modules import FairseqDropout, MultiheadAttention
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayer,
    TransformerDecoderLayerBase,
    TransformerEncoderLayer,
    TransformerEncoderLayerBase,
)
from torch import Tensor, nn

from ..attention.scores import ScoreFunction
from ..attention.variants.evolving import EvolvingLogits
from ..attention.variants.plain import PlainLogits
from ..kernels.cpp.library import is_available
from ..kernels.fused_decoder import DecoderLayerParts, DecoderParts, FusedDecoder
from ..kernels.fused_encoder import EncoderLayerParts, FusedEncoder
from ..kernels.transformer_parts import (
    LARGEST_KERNEL,
    AttentionParts,
    MapStep,
    NetworkParts,
    StackParts,
)
from ..models.ea_transformer import EATransformerDecoder, EATransformerEncoder
from ..models.multihead_attention import TransformedAttention
from ..models.transformer_layer import EATransformerDecoderLayer, EATransformerEncoderLayer

# These classes alone: who derives from them may have changed anything.
_ENCODERS = (EATransformerEncoder, TransformerEncoder, TransformerEncoderBase)
_DECODERS = (EATransformerDecoder, TransformerDecoder, TransformerDecoderBase)
_ENCODER_LAYERS = (
    EATransformerEncoderLayer,
    TransformerEncoderLayer,
    TransformerEncoderLayerBase,
)
_DECODER_LAYERS = (
    EATransformerDecoderLayer,
    TransformerDecoderLayer,
    TransformerDecoderLayerBase,
)


@dataclass(frozen=True)
class CompiledModel:
    """A model in the compiled library, as its weights were.

    Attributes:
        encoder: or None, where torch must do it
        decoder: with the choice of tokens
    """

    encoder: FusedEncoder | None
    decoder: FusedDecoder


class _NotCompiled(Exception):
    """Something that the compiled library does not compute."""


def compiled_model(model: FairseqEncoderDecoderModel, int8: bool = False) -> CompiledModel | None:
    """A model for the compiled library, or None where that does not compute its decoder.

    Args:
        model: in float32
        int8: whether linear layers multiply bytes: weights rounded to 255 steps of each output's
            largest, what they read to as many of each row's largest
    """
    if not is_available_for(model):
        return None
    try:
        decoder = _decoder(model.decoder, int8)
    except _NotCompiled:
        return None
    try:
        return CompiledModel(_encoder(model.encoder, int8), decoder)
    except _NotCompiled:
        return CompiledModel(None, decoder)


def is_available_for(model: FairseqEncoderDecoderModel) -> bool:
    """Whether the compiled library is there, and a model is as it takes one: in float32 on the CPU,
    and not in training."""
    if model.training:
        return False
    parameters = list(model.parameters())
    return is_available(parameters[0]) and {p.dtype for p in parameters} == {torch.float32}


def _need(condition: bool) -> None:
    if not condition:
        raise _NotCompiled


def _encoder(encoder: nn.Module, int8: bool) -> FusedEncoder:
    _need(type(encoder) in _ENCODERS)
    layers = []
    for layer in encoder.layers:
        _need(type(layer) in _ENCODER_LAYERS)
        attention = _attention(layer.self_attn, layer.self_attn_layer_norm)
        layers.append(EncoderLayerParts(attention, _network(layer)))
    heads = {layer.self_attn.num_heads for layer in encoder.layers}
    return FusedEncoder(_stack(encoder, heads, int8), layers)


def _decoder(decoder: nn.Module, int8: bool) -> FusedDecoder:
    _need(type(decoder) in _DECODERS and type(decoder.output_projection) is nn.Linear)
    for extra in ("project_in_dim", "project_out_dim", "adaptive_softmax"):
        _need(getattr(decoder, extra) is None)
    layers = []
    for layer in decoder.layers:
        _need(type(layer) in _DECODER_LAYERS and layer.encoder_attn is not None)
        _need(not layer.cross_self_attention)  # whose keys are the source's too
        for extra in ("c_attn", "attn_ln", "ffn_layernorm", "w_resid"):
            _need(getattr(layer, extra) is None)
        attention = _attention(layer.self_attn, layer.self_attn_layer_norm)
        cross = _attention(layer.encoder_attn, layer.encoder_attn_layer_norm)
        layers.append(DecoderLayerParts(attention, cross, _network(layer)))
    attentions = [a for layer in decoder.layers for a in (layer.self_attn, layer.encoder_attn)]
    stack = _stack(decoder, {attention.num_heads for attention in attentions}, int8)
    return FusedDecoder(DecoderParts(stack, layers, decoder.output_projection))


def _stack(stack: nn.Module, heads: set[int], int8: bool) -> StackParts:
    first = {layer.normalize_before for layer in stack.layers}
    norms = stack.layernorm_embedding, stack.layer_norm
    _need(len(heads) == len(first) == 1 and all(map(_is_norm, norms)))
    _need(stack.quant_noise is None and type(stack.embed_tokens) is nn.Embedding)
    dropouts = [module for module in stack.modules() if isinstance(module, FairseqDropout)]
    _need(not any(dropout.apply_during_inference for dropout in dropouts))
    words = stack.embed_tokens.weight
    positions = _positions(stack)
    around = words, stack.embed_scale, positions, *norms
    return StackParts(heads.pop(), first.pop(), *around, int8)


def _positions(stack: nn.Module) -> Tensor | None:
    if stack.embed_positions is None:
        return None
    word = stack.dictionary.eos()  # any but padding
    return stack.embed_positions(torch.full((1, stack.max_positions()), word))[0].detach()


def _network(layer: nn.Module) -> NetworkParts:
    _need(layer.activation_fn is F.relu and _is_norm(layer.final_layer_norm))
    _need(type(layer.fc1) is nn.Linear and type(layer.fc2) is nn.Linear)
    return NetworkParts(layer.fc1, layer.fc2, layer.final_layer_norm)


def _attention(attention: nn.Module, norm: nn.LayerNorm) -> AttentionParts:
    _need(type(attention) in (TransformedAttention, MultiheadAttention) and _is_norm(norm))
    layers = attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj
    _need(all(type(layer) is nn.Linear for layer in layers))
    _need(attention.bias_k is None and not attention.add_zero_attn and not attention.use_xformers)
    return AttentionParts(*layers, norm, _map_step(attention))


def _map_step(attention: nn.Module) -> MapStep:
    if type(attention) is MultiheadAttention:
        return MapStep()
    transform = attention.transform
    _need(type(attention.scores) is ScoreFunction)
    if type(transform) is PlainLogits:
        return MapStep()
    _need(type(transform) is EvolvingLogits and not transform.learned_mixing)
    mixing = transform.alpha, transform.beta, transform.uses_carry
    convolution = transform.convolution
    if convolution is None:
        return MapStep(*mixing)
    _need(convolution.kernel().size(-1) <= LARGEST_KERNEL)
    return MapStep(*mixing, convolution.kernel(), convolution.offsets(), convolution.move[1])


def _is_norm(norm: nn.Module | None) -> bool:
    return norm is None or type(norm) is nn.LayerNorm
