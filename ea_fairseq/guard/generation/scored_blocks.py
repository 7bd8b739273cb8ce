"""Perplexity covers the whole text, or is refused.

Replaced in fairseq:
- ``LanguageModelingTask.eval_lm_dataloader``: leaves out blocks that are longer than the model's
  positions. Where all are, as with the default block of 1,024 tokens, it reports perplexity 1.
  With ``--context-window`` each block is shown the one that was read last: several
  ``--num-workers`` or shards, which read every other batch, showed it text from elsewhere, and the
  perplexity was that of no text. One process reads here; shards are refused.
- ``checkpoint_utils.load_checkpoint_to_cpu`` and ``LanguageModelingTask.build_model``: a model that
  was trained with ``--add-bos-token`` was used without it, and the other way round: it had never
  seen such a beginning.
- ``LanguageModelingTask.build_model``: a model that translates, which has no perplexity of a text
  alone, ended in an AttributeError.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingTask

from ...errors import UserError
from ..checkpoints.safe_loading import setting


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
        if context > 0:
            if (shards := kwargs.get("num_shards", 1)) > 1:
                raise UserError(
                    f"--context-window {context} wants the whole text in its order: leave out "
                    f"--num-shards {shards}"
                )
            kwargs["num_workers"] = min(kwargs.get("num_workers", 1), 1)
        return original(self, dataset, *args, **kwargs)

    return eval_lm_dataloader


_read: tuple[str, bool] | None = None  # a checkpoint, and whether its texts begin with <s>


def _notice_beginning(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        global _read
        state = original(path, *args, **kwargs)
        begins = setting(state, "task", "add_bos_token")
        _read = None if begins is None else (path, bool(begins))
        return state

    return load_checkpoint_to_cpu


def _check_beginning(args: Any) -> None:
    """Compares how the texts of a task begin with those that the model read last was trained on."""
    global _read
    if _read is not None:
        (path, begins), _read = _read, None
        if begins != getattr(args, "add_bos_token", False):
            how, remedy = ("with", "give it here") if begins else ("without", "leave it out here")
            raise UserError(
                f"checkpoint {path} was trained {how} --add-bos-token: {remedy} as well"
            )


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
        if from_checkpoint:
            _check_beginning(self.args)
        return original(self, args, from_checkpoint)

    return build_model


def install() -> None:
    """Refuse what would be left out or scored as another text, and models that cannot score."""
    checkpoint_utils.load_checkpoint_to_cpu = _notice_beginning(
        checkpoint_utils.load_checkpoint_to_cpu
    )
    LanguageModelingTask.eval_lm_dataloader = _whole(LanguageModelingTask.eval_lm_dataloader)
    LanguageModelingTask.build_model = _language_models_only(LanguageModelingTask.build_model)
