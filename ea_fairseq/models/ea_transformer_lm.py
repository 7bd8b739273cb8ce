"""EA-Transformer as a language model: the decoder alone, and its architectures."""

from __future__ import annotations

import functools
from argparse import ArgumentParser, Namespace
from typing import Any

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import Embedding, TransformerConfig
from fairseq.models.transformer_lm import (
    DEFAULT_MAX_TARGET_POSITIONS,
    TransformerLanguageModel,
    TransformerLanguageModelConfig,
    base_lm_architecture,
)
from fairseq.modules import AdaptiveInput
from fairseq.tasks.translation import TranslationTask
from fairseq.utils import eval_str_list
from torch import nn

from ..attention.configuration import EAOptions, add_args, parse_chain
from ..attention.variants import VARIANTS, Architecture, Variant, language_model, on_registration
from ..errors import UserError
from .architecture_options import ea_defaults, refuse_unsupported, set_defaults
from .checkpoints import EACheckpoints
from .decoder import EATransformerDecoder


@register_model("ea_transformer_lm")
class EATransformerLanguageModel(EACheckpoints, TransformerLanguageModel):
    """A decoder with the decoder's attention of a variant, trained to predict the next token.

    fairseq's ``transformer_lm``, all of whose options apply, with those of the variant. Maps, their
    hidden entries and steps are those of the translation model's decoder.
    """

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        gen_parser_from_dataclass(parser, TransformerLanguageModelConfig(), delete_default=True)
        add_args(parser)

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> EATransformerLanguageModel:
        """Builds the model from parsed options.

        Raises:
            UserError: where an option's value, or a combination, or the task, cannot work
        """
        if isinstance(task, TranslationTask):
            raise UserError(
                "ea_transformer_lm is a language model: the task translation wants a model that "
                "translates, such as ea_transformer_lite; for this one give --task "
                "language_modeling"
            )
        EAOptions.from_namespace(args)
        _refuse_other_attentions(args.ea_variant)
        refuse_unsupported(args)
        if args.character_embeddings:
            raise UserError("--character-embeddings cannot be combined with ea_transformer_lm")
        if args.decoder_layers_to_keep:
            args.decoder_layers = len(args.decoder_layers_to_keep.split(","))
        tokens = getattr(args, "tokens_per_sample", None)
        if getattr(args, "max_target_positions", None) is None:
            args.max_target_positions = tokens or DEFAULT_MAX_TARGET_POSITIONS
        if tokens is not None and tokens > args.max_target_positions:
            raise UserError(
                f"--tokens-per-sample {tokens} is more than --max-target-positions "
                f"{args.max_target_positions}: longer blocks would have no positions"
            )
        decoder = EATransformerDecoder(
            TransformerConfig.from_namespace(args),
            task.target_dictionary,
            _embedding(args, task.source_dictionary),
            no_encoder_attn=True,
        )
        return cls(decoder)

    def __init__(self, decoder: EATransformerDecoder):
        super().__init__(decoder)
        self.mark()


def _embedding(args: Namespace, dictionary: Any) -> nn.Module:
    """The input layer: a table, or Baevski and Auli's adaptive one (arXiv 1809.10853)."""
    if not args.adaptive_input:
        return Embedding(len(dictionary), args.decoder_input_dim, dictionary.pad())
    if args.tie_adaptive_weights and (
        args.adaptive_input_factor != args.adaptive_softmax_factor
        or args.adaptive_softmax_cutoff != args.adaptive_input_cutoff
        or args.decoder_input_dim != args.decoder_output_dim
    ):
        raise UserError(
            "--tie-adaptive-weights wants the same factor, cutoff and width for "
            "--adaptive-input-* and --adaptive-softmax-*"
        )
    return AdaptiveInput(
        len(dictionary),
        dictionary.pad(),
        args.decoder_input_dim,
        args.adaptive_input_factor,
        args.decoder_embed_dim,
        eval_str_list(args.adaptive_input_cutoff, type=int),
        args.quant_noise_pq,
        args.quant_noise_pq_block_size,
    )


def _refuse_other_attentions(variant: str) -> None:
    """A language model has a decoder's self-attention and no other.

    Raises:
        UserError: where the variant would serve nothing, or a chain names another attention
    """
    others = [
        kind for kind, name in parse_chain(variant).items() if kind != "decoder" and name != "plain"
    ]
    if "=" in variant and others:
        raise UserError(
            f"--ea-variant {variant}: a language model has no {others[0]} attention: name the "
            "decoder alone"
        )
    if "=" not in variant and "decoder" not in VARIANTS[variant].arrangement:
        choices = ", ".join(name for name, v in VARIANTS.items() if "decoder" in v.arrangement)
        raise UserError(
            f"--ea-variant {variant} serves no decoder, which is all that a language model has: "
            f"choose from {choices}"
        )


@register_model_architecture("transformer_lm", "transformer_lm_lite")
def transformer_lm_lite(args: Namespace) -> None:
    """The baseline: fairseq's language model with the decoder of Transformer-Lite's size."""
    set_defaults(
        args,
        decoder_embed_dim=160,
        decoder_ffn_embed_dim=160,
        decoder_attention_heads=4,
        decoder_layers=6,
    )
    base_lm_architecture(args)


def _register_architectures(variant: Variant) -> None:
    for architecture in variant.architectures:
        if name := language_model(variant, architecture):
            configure = functools.partial(_configure, variant, architecture, name)
            register_model_architecture("ea_transformer_lm", name)(configure)


def _configure(variant: Variant, architecture: Architecture, name: str, args: Namespace) -> None:
    transformer_lm_lite(args)
    ea_defaults(args, variant, architecture, name, "ea_transformer_lm_lite", ["decoder"])


on_registration(_register_architectures)
