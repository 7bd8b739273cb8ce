"""Sampling can draw forced tokens, however improbable.

Replaced in fairseq:
- ``search.Sampling.step``: of the probabilities that a prefix, the limit of the length or
  ``--min-len`` leave, it drew as they were. At a low ``--temperature`` all of them round to 0, and
  the command ended in a traceback. Such rows are now brought to a sum of 1 for the draw; the scores
  stay those of the model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fairseq.search import Sampling
from torch import Tensor

# The logarithm of what is left, below which float32 comes to its end.
_LEAST = -50


def _of_a_sum(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def step(
        self: Sampling, step: int, lprobs: Tensor, scores: Tensor | None, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        left = lprobs.logsumexp(dim=2, keepdim=True)  # (sentences, beam, 1)
        left = left.masked_fill((left > _LEAST) | left.isinf(), 0.0)
        found, tokens, beams = original(self, step, lprobs - left, scores, *args, **kwargs)
        # In the first step, all are drawn by the first one's.
        left = left[:, :1] if step == 0 else left
        return found + left.squeeze(2), tokens, beams

    return step


def install() -> None:
    """Make fairseq draw so."""
    Sampling.step = _of_a_sum(Sampling.step)
