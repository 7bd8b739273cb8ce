"""EA-RoBERTa: fairseq's RoBERTa with evolving attention, and its architectures."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from fairseq.models import register_model, register_model_architecture
from fairseq.models.roberta import RobertaEncoder, RobertaModel, base_architecture
from fairseq.models.roberta.model import roberta_large_architecture
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask
from torch import nn

from ..attention.configuration import EAOptions, add_args
from ..attention.variants import VARIANTS, Architecture
from ..errors import UserError
from .architecture_options import ea_defaults, refuse_serving_nothing, refuse_unsupported
from .checkpoints import EACheckpoints
from .encoder import EATransformerEncoder


class EARobertaEncoder(RobertaEncoder):
    """fairseq's RoBERTa encoder, whose Transformer carries logits from layer to layer."""

    def build_encoder(self, args: Any, dictionary: Any, embed_tokens: nn.Module) -> nn.Module:
        cfg = TransformerConfig.from_namespace(args)
        encoder = EATransformerEncoder(cfg, dictionary, embed_tokens)
        encoder.apply(init_bert_params)
        return encoder


@register_model("ea_roberta")
class EARobertaModel(EACheckpoints, RobertaModel):
    """EA-RoBERTa (arXiv 2102.12895, section 4.2): RoBERTa with the encoder attention of a variant.

    fairseq's ``roberta``, all of whose options apply, with those of the variant; for the tasks
    masked_lm and sentence_prediction. A plain RoBERTa's checkpoint begins it
    (``--finetune-from-model``): what the variant adds starts fresh.
    """

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        RobertaModel.add_args(parser)
        add_args(parser)

    @classmethod
    def hub_models(cls) -> dict[str, str]:
        """None: the published ones are plain."""
        return {}

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> EARobertaModel:
        """Builds the model from parsed options.

        Raises:
            UserError: where an option's value, or a combination, or the task, cannot work
        """
        if isinstance(task, TranslationTask | LanguageModelingTask):
            raise UserError(
                "ea_roberta is an encoder: give --task masked_lm or sentence_prediction, or for "
                "this task an architecture such as ea_transformer_lite or ea_transformer_lm_lite"
            )
        EAOptions.from_namespace(args)
        refuse_unsupported(args)
        base_architecture(args)
        if getattr(args, "max_positions", None) is None:
            args.max_positions = getattr(args, "tokens_per_sample", None) or task.max_positions()
        args.max_source_positions = args.max_positions
        return cls(args, EARobertaEncoder(args, task.source_dictionary))

    def __init__(self, args: Namespace, encoder: EARobertaEncoder):
        super().__init__(args, encoder)
        self.mark()


def _configure(args: Namespace, name: str, size: Any) -> None:
    size(args)
    architecture = Architecture(name, name, {"alpha": 0.1, "beta": 0.1})
    ea_defaults(args, VARIANTS["evolving"], architecture, name, "ea_roberta_base", ["encoder"])
    refuse_serving_nothing(args.ea_variant, ["encoder"])


@register_model_architecture("ea_roberta", "ea_roberta_base")
def _base(args: Namespace) -> None:
    _configure(args, "ea_roberta_base", base_architecture)


@register_model_architecture("ea_roberta", "ea_roberta_large")
def _large(args: Namespace) -> None:
    _configure(args, "ea_roberta_large", roberta_large_architecture)
