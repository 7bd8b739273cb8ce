"""EA-Transformer: fairseq's Transformer with evolving attention, and its architectures."""

import functools
from argparse import ArgumentParser, Namespace
from typing import Any

from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig, TransformerModel, base_architecture
from fairseq.tasks.language_modeling import LanguageModelingTask
from torch import nn

from ..attention.configuration import EAOptions, add_args
from ..attention.variants import ATTENTIONS, Architecture, Variant, on_registration
from ..errors import UserError
from .architecture_options import (
    ea_defaults,
    refuse_serving_nothing,
    refuse_unsupported,
    set_defaults,
)
from .checkpoints import EACheckpoints
from .decoder import EATransformerDecoder
from .encoder import EATransformerEncoder


@register_model("ea_transformer")
class EATransformerModel(EACheckpoints, TransformerModel):
    """EA-Transformer of "Evolving Attention with Residual Convolutions" (arXiv 2102.12895).

    fairseq's Transformer, all of whose options apply, with those of its variant
    (attention/configuration.py).
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


def _register_architectures(variant: Variant) -> None:
    for architecture in variant.architectures:
        configure = functools.partial(_configure, variant, architecture)
        register_model_architecture("ea_transformer", architecture.name)(configure)


def _configure(variant: Variant, architecture: Architecture, args: Namespace) -> None:
    {"lite": transformer_lite, "base": base_architecture}[architecture.size](args)
    general = f"ea_transformer_{architecture.size}"
    attentions = _attentions(args)
    ea_defaults(args, variant, architecture, architecture.name, general, attentions)
    refuse_serving_nothing(args.ea_variant, attentions)


def _attentions(args: Namespace) -> list[str]:
    """Those of a model: without layers, or without cross-attention, it has fewer."""
    crosses = args.decoder_layers and not args.no_cross_attention
    has = {
        "encoder": args.encoder_layers,
        "decoder": args.decoder_layers,
        "encoder-decoder": crosses,
    }
    return [attention for attention in ATTENTIONS if has[attention]]


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
