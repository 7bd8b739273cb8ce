"""A language model's perplexity is about the whole text, or none is given.

Replaced in fairseq:
- ``LanguageModelingTask.eval_lm_dataloader``: leaves out blocks that are longer than the model's
  positions. Where all are, as with the default block of 1,024 tokens, it reports perplexity 1.
- ``LanguageModelingTask.build_model``: a model that translates, which has no perplexity of a text
  alone, ended in an AttributeError.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingTask

from ..errors import UserError


def _whole(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def eval_lm_dataloader(
        self: LanguageModelingTask, dataset: Any, *args: Any, **kwargs: Any
    ) -> Any:
        limit, context = kwargs.get("max_positions"), kwargs.get("context_window", 0)
        if limit is not None:
            longest = int(np.min(limit))
            lengths = np.asarray(dataset.sizes) + context
            if (too_long := int((lengths > longest).sum())) > 0:
                raise UserError(
                    f"--tokens-per-sample {self.args.tokens_per_sample + context}: {too_long} of "
                    f"{len(lengths)} blocks are longer than the model's {longest} positions and "
                    f"would not be scored: give --tokens-per-sample {longest} or less"
                )
        return original(self, dataset, *args, **kwargs)

    return eval_lm_dataloader


def _language_models_only(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def build_model(self: LanguageModelingTask, args: Any, from_checkpoint: bool = False) -> Any:
        # fairseq looks for the last argument by its name.
        name = getattr(args, "_name", None) or getattr(args, "arch", None)
        model = MODEL_REGISTRY.get(name) or ARCH_MODEL_REGISTRY.get(name)
        if model is not None and not hasattr(model, "supported_targets"):
            raise UserError(
                f"{name} translates: the task language_modeling wants a language model, "
                "such as ea_transformer_lm_lite, or the checkpoint of one"
            )
        return original(self, args, from_checkpoint)

    return build_model


def install() -> None:
    """Refuse what would be left out, and models that cannot score a text."""
    LanguageModelingTask.eval_lm_dataloader = _whole(LanguageModelingTask.eval_lm_dataloader)
    LanguageModelingTask.build_model = _language_models_only(LanguageModelingTask.build_model)
