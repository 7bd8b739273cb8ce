"""EA-Transformer: fairseq's Transformer with evolving attention, and its architectures."""

import logging
import math
from argparse import ArgumentParser, Namespace
from typing import Any

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModel,
    base_architecture,
)
from fairseq.modules import FairseqDropout
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.tasks.language_modeling import LanguageModelingTask
from torch import Tensor, nn

from ..config import EAOptions, add_args, owned_options, parse_chain
from ..errors import UserError
from ..modules.multihead_attention import IncrementalState
from ..modules.transformer_layer import EATransformerDecoderLayer, EATransformerEncoderLayer
from ..variants import Architecture, Variant, on_registration
from ..variants.cached_heads import share

logger = logging.getLogger(__name__)


class EATransformerEncoder(TransformerEncoderBase):
    """fairseq's encoder with evolving attention: its loop carries logits from layer to layer."""

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        return _wrap(EATransformerEncoderLayer(cfg, _next_layer(self), self.return_fc), cfg)

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
            visible = _pairs_visible(padding, padding)

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
        return {**encoder_out, "hypotheses": [torch.tensor(hypotheses)]}


class EATransformerDecoder(TransformerDecoderBase):
    """fairseq's decoder with evolving attention: its loop carries logits from layer to layer."""

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        return _wrap(EATransformerDecoderLayer(cfg, _next_layer(self), no_encoder_attn), cfg)

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
        visible = _pairs_visible(queries_padding, keys_padding)
        if not one_step and not full_context:
            past = torch.ones(
                tgt_len, tgt_len, dtype=torch.bool, device=prev_output_tokens.device
            ).tril()
            visible = past[None, None] if visible is None else visible & past
        return visible, _pairs_visible(queries_padding, source_padding)


class EACheckpoints(nn.Module):
    """What all our models have: a marker in their checkpoints, and a way in for fairseq's own."""

    def mark(self) -> None:
        """Marks a model that is complete."""
        # Tells an EA checkpoint without convolutions from a plain Transformer's.
        self.register_buffer("ea_version", torch.tensor([1.0]))
        # --retain-dropout-modules goes by the names of fairseq's classes.
        for module in self.modules():
            if isinstance(module, FairseqDropout):
                module.module_name = _FAIRSEQ_NAMES.get(module.module_name, module.module_name)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Also lets a plain fairseq Transformer's checkpoint continue as an EA model.

        A checkpoint without any parameter of a transform or a score function and without the marker
        that EA models write gets this model's fresh ones; one with some of them must have them all.
        """
        super().upgrade_state_dict_named(state_dict, name)
        own = self.state_dict()
        marker = "ea_version"
        if marker in state_dict:
            return
        fresh = [key for key in own if ".transform." in key or ".scores." in key]
        state_dict[marker] = own[marker]
        if not fresh or any(key in state_dict for key in fresh):
            return
        state_dict.update({key: own[key] for key in fresh})
        logger.info(
            "loading a plain Transformer's checkpoint: %d parameters of the attentions, which it "
            "lacks, start fresh",
            len(fresh),
        )


@register_model("ea_transformer")
class EATransformerModel(EACheckpoints, TransformerModel):
    """EA-Transformer of "Evolving Attention with Residual Convolutions" (arXiv 2102.12895).

    fairseq's Transformer, all of whose options apply, with those of its variant (config.py).
    """

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        add_args(parser)

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> "EATransformerModel":
        """Builds the model from parsed options.

        Raises:
            UserError: where an option's value, or a combination, or the task, cannot work
        """
        if isinstance(task, LanguageModelingTask):
            raise UserError(
                "ea_transformer translates: the task language_modeling wants a language model, "
                "such as ea_transformer_lm_lite"
            )
        EAOptions.from_namespace(args)
        refuse_unsupported(args)
        return super().build_model(args, task)

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: nn.Module) -> nn.Module:
        return EATransformerEncoder(TransformerConfig.from_namespace(args), src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: nn.Module) -> nn.Module:
        cfg = TransformerConfig.from_namespace(args)
        return EATransformerDecoder(
            cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention
        )

    def __init__(self, args: Namespace, encoder: nn.Module, decoder: nn.Module):
        super().__init__(args, encoder, decoder)
        self.mark()


_FAIRSEQ_NAMES = {
    "EATransformerEncoder": "TransformerEncoder",
    "EATransformerDecoder": "TransformerDecoder",
    "EATransformerEncoderLayer": "TransformerEncoderLayerBase",
    "EATransformerDecoderLayer": "TransformerDecoderLayerBase",
    "TransformedAttention": "MultiheadAttention",
}


def _next_layer(stack: nn.Module) -> int:
    """The index of the layer that a stack is building: fairseq does not tell."""
    index = getattr(stack, "layers_built", 0)
    stack.layers_built = index + 1
    return index


def _wrap(layer: nn.Module, cfg: Any) -> nn.Module:
    """Activation checkpointing and FSDP, as fairseq wraps its own layers."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    # A checkpointed layer must be wrapped by FSDP whatever its size.
    min_num_params = 0 if cfg.checkpoint_activations else cfg.min_params_to_wrap
    return fsdp_wrap(layer, min_num_params=min_num_params)


def _pairs_visible(queries_padding: Tensor | None, keys_padding: Tensor | None) -> Tensor | None:
    """True where neither query nor key is padding.

    Args:
        queries_padding: bool, (batch, tgt_len), True = padding, or None for no padding
        keys_padding: bool, (batch, src_len), or None

    Returns:
        bool, broadcastable to (batch, 1, tgt_len, src_len), or None where all is visible
    """
    queries = None if queries_padding is None else ~queries_padding[:, None, :, None]
    keys = None if keys_padding is None else ~keys_padding[:, None, None, :]
    if queries is None or keys is None:
        return keys if queries is None else queries
    return queries & keys


def refuse_unsupported(args: Namespace) -> None:
    """Refuses options of fairseq's Transformer that evolving attention cannot honour."""
    unsupported = {
        "cross_self_attention": "one map over source and target has no convolution of its own",
        "encoder_xformers_att_config": "xFormers' attentions have no logits to convolve",
        "decoder_xformers_att_config": "xFormers' attentions have no logits to convolve",
        "base_layers": "BASE layers do not pass attention logits on",
        "quant_noise_scalar": "fairseq's scalar quantization does not know the convolutions",
    }
    for name, reason in unsupported.items():
        if getattr(args, name, None):
            option = "--" + name.replace("_", "-")
            raise UserError(f"{option} cannot be combined with ea_transformer: {reason}")
    for side in ("encoder", "decoder"):
        embed_dim = getattr(args, f"{side}_embed_dim", None)
        heads = getattr(args, f"{side}_attention_heads", None)
        if embed_dim and heads and embed_dim % heads:
            divisors = [n for n in range(1, math.isqrt(embed_dim) + 1) if embed_dim % n == 0]
            raise UserError(
                f"--{side}-attention-heads must divide --{side}-embed-dim {embed_dim}, not "
                f"{heads}: for example {', '.join(map(str, divisors))}"
            )


def set_defaults(args: Namespace, **defaults: Any) -> None:
    """Sets what the command line left open."""
    for name, value in defaults.items():
        setattr(args, name, getattr(args, name, value))


def _register_architectures(variant: Variant) -> None:
    for architecture in variant.architectures:
        _register_architecture(variant, architecture)


def _register_architecture(variant: Variant, architecture: Architecture) -> None:
    size = {"lite": transformer_lite, "base": base_architecture}[architecture.size]

    def configure(args: Namespace) -> None:
        size(args)
        general = f"ea_transformer_{architecture.size}"
        ea_defaults(args, variant, architecture, architecture.name, general)

    configure.__name__ = configure.__qualname__ = architecture.name
    configure.__doc__ = f"{variant.name}: {variant.summary}; {architecture.size}."
    register_model_architecture("ea_transformer", architecture.name)(configure)


def ea_defaults(
    args: Namespace, variant: Variant, architecture: Architecture, name: str, general: str
) -> None:
    """The variant and its options, all of them, as a checkpoint keeps them.

    Args:
        args: what the command line says; filled in
        variant: whose architecture it is
        architecture: with options of its own
        name: of the architecture
        general: name of the one for any variant

    Raises:
        UserError: for an option that the variant does not have, or an architecture of one variant
            with another; evolving attention's stand for their size and take any
    """
    set_defaults(args, ea_variant=variant.name)
    chain = parse_chain(args.ea_variant)
    own = args.ea_variant == variant.name
    if not own and variant.name != "evolving":
        raise UserError(
            f"--arch {name} is --ea-variant {variant.name}, not {args.ea_variant}: "
            f"choose --arch {general}"
        )
    for option, owners in owned_options(chain).items():
        if variant in owners and option in architecture.options:
            set_defaults(args, **{f"ea_{option}": architecture.options[option]})
    for option, value in architecture.model.items():
        set_defaults(args, **{f"ea_{option}": value})
        given = getattr(args, f"ea_{option}")
        if given != value:
            raise UserError(
                f"--arch {name} is --ea-{option} {value}, not {given}: choose --arch {general}"
            )
    kept = EAOptions.from_namespace(args).as_given()
    for attribute in [name for name in vars(args) if name.startswith("ea_") and name not in kept]:
        delattr(args, attribute)  # given, and left out at its default all the same
    for attribute, value in kept.items():
        setattr(args, attribute, value)


@register_model_architecture("transformer", "transformer_lite")
def transformer_lite(args: Namespace) -> None:
    """The baseline: fairseq's Transformer at Lite's size (appendix A.3; 2.48M parameters without
    embeddings and output layer)."""
    for side in ("encoder", "decoder"):
        set_defaults(
            args,
            **{
                f"{side}_embed_dim": 160,
                f"{side}_ffn_embed_dim": 160,
                f"{side}_attention_heads": 4,
                f"{side}_layers": 6,
            },
        )
    base_architecture(args)


on_registration(_register_architectures)
