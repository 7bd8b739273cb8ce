"""Translates an empty line as an empty line.

A source of nothing but the end-of-sentence token still makes a model say something, usually a
frequent sentence of the training data.

Replaced in fairseq:
- ``FairseqTask.inference_step``: what a beam search or sampling found for an empty source becomes
  the empty hypothesis. The other sentences of the batch are translated as if it were not there.
  Scoring given references (``--score-reference``) is left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor

Hypothesis = dict[str, Any]


def empty_rows(src_tokens: Tensor, pad: int, eos: int) -> list[bool]:
    """Which sources have no token but padding and end of sentence.

    Args:
        src_tokens: (batch, src_len), integers.
    """
    return (src_tokens.eq(pad) | src_tokens.eq(eos)).all(dim=1).tolist()


def empty_hypotheses(src_tokens: Tensor, eos: int, beam_size: int) -> list[Hypothesis]:
    """The hypotheses for one empty source: certain that the translation is empty.

    Args:
        src_tokens: (src_len), padding and the end of sentence.

    Returns:
        `beam_size` hypotheses of one token, in the shapes of fairseq's ``SequenceGenerator``:
        ``tokens`` and ``positional_scores`` (1), ``attention`` (src_len, 1), all of it on the end
        of sentence.
    """
    return [
        {
            "tokens": src_tokens.new_full((1,), eos),
            "score": torch.zeros((), device=src_tokens.device),
            "attention": src_tokens.eq(eos).float().unsqueeze(1),
            "alignment": torch.empty(0),
            "positional_scores": torch.zeros(1, device=src_tokens.device),
        }
        for _ in range(beam_size)
    ]


def _inference_step(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def inference_step(
        self: FairseqTask, generator: Any, models: Any, sample: dict[str, Any], *args, **kwargs
    ) -> Any:
        src_tokens = sample["net_input"].get("src_tokens")
        is_text = torch.is_tensor(src_tokens) and src_tokens.dim() == 2
        if not isinstance(generator, SequenceGenerator) or not is_text:
            return original(self, generator, models, sample, *args, **kwargs)
        eos = generator.eos
        empty = empty_rows(src_tokens, generator.pad, eos)
        # Nothing to search for: the model would be asked up to --max-len-b times.
        if all(empty):
            hypotheses = [[] for _ in empty]
        else:
            hypotheses = original(self, generator, models, sample, *args, **kwargs)
        for row, is_empty in enumerate(empty):
            if is_empty:
                hypotheses[row] = empty_hypotheses(src_tokens[row], eos, generator.beam_size)
        return hypotheses

    return inference_step


def install() -> None:
    """Make fairseq's tasks translate this way."""
    FairseqTask.inference_step = _inference_step(FairseqTask.inference_step)
