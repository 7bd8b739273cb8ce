"""Perplexity covers the whole text, or is refused.

Replaced in fairseq:
- ``LanguageModelingTask.eval_lm_dataloader``: leaves out blocks that are longer than the model's
  positions. Where all are, as with the default block of 1,024 tokens, it reports perplexity 1.
  With ``--context-window`` each block is shown the one that was read last: several
  ``--num-workers`` or shards, which read every other batch, showed it text from elsewhere, and the
  perplexity was that of no text. One process reads here; shards are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from fairseq.tasks.language_modeling import LanguageModelingTask

from ..errors import UserError
from .around import around


@around(LanguageModelingTask, "eval_lm_dataloader")
def _score_the_whole_text(
    original: Any, self: LanguageModelingTask, dataset: Any, *args: Any, **kwargs: Any
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
