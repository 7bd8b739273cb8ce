"""A search answers every sentence as if it were alone.

Replaced in fairseq:
- ``FairseqTask.inference_step``: a source of nothing but the end-of-sentence token made a model say
  something, usually a frequent sentence of the training data. What a beam search or sampling finds
  for an empty source becomes the empty hypothesis. The other sentences of the batch are translated
  as if it were not there. Scoring given references (``--score-reference``) is left alone.
- ``SequenceGenerator._generate``: with ``--max-len-a`` the limit went by the longest source of the
  batch, padding counted, so that a search that does not end gave a sentence one translation alone
  and others beside others; ``--min-len`` began behind the longest prefix. Now each sentence has the
  limit that it has alone, as in `ea_fairseq.inference.search`, and no prefix is cut.
- ``SequenceGenerator.is_finished``: a sentence is finished at its own limit.
- ``search.Sampling.step``: of the probabilities that a prefix, the limit of the length or
  ``--min-len`` leave, it drew as they were. At a low ``--temperature`` all of them round to 0, and
  the command ended in a traceback. Such rows are now brought to a sum of 1 for the draw; the scores
  stay those of the model.
- ``FairseqTask.build_generator``: a language model (``--lm-path``) with other entries than the
  target dictionary, or the same in another order, scored words by the numbers of others; its own
  check compares it with ``dict.txt`` alone. ``--match-source-len`` counted the source's end as one
  of its tokens: every translation was one longer than its source.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import torch
from fairseq.search import DiverseBeamSearch, LengthConstrainedBeamSearch, Sampling, Search
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationTask
from torch import Tensor, nn

from ..errors import UserError
from .around import around

Hypothesis = dict[str, Any]

# The logarithm of a probability below which float32 comes to its end.
_LEAST = -50


@around(FairseqTask, "inference_step")
def _inference_step(
    original: Any,
    self: FairseqTask,
    generator: Any,
    models: Any,
    sample: dict[str, Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    src_tokens = sample["net_input"].get("src_tokens")
    is_text = torch.is_tensor(src_tokens) and src_tokens.dim() == 2
    if not isinstance(generator, SequenceGenerator) or not is_text:
        return original(self, generator, models, sample, *args, **kwargs)
    eos = generator.eos
    empty = (src_tokens.eq(generator.pad) | src_tokens.eq(eos)).all(dim=1).tolist()
    # Nothing to search for: the model would be asked up to --max-len-b times.
    if all(empty):
        hypotheses = [[] for _ in empty]
    else:
        hypotheses = original(self, generator, models, sample, *args, **kwargs)
    for row, is_empty in enumerate(empty):
        if is_empty:
            hypotheses[row] = empty_hypotheses(src_tokens[row], eos, generator.beam_size)
    return hypotheses


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


class LimitedSearch(nn.Module):
    """A search strategy of fairseq's that ends each sentence at a limit of its own.

    Args:
        strategy: what chooses
        eos: number of the end of sentence, the one token left at a limit
        min_len: tokens before which no sentence ends
        prefixes: each sentence's tokens that are given
        limits: the most tokens of each sentence, its end not counted
    """

    def __init__(
        self,
        strategy: Search,
        eos: int,
        min_len: int,
        prefixes: Sequence[int],
        limits: Sequence[int],
    ):
        super().__init__()
        self.strategy, self.eos, self.min_len = strategy, eos, min_len
        self.prefixes, self.limits = list(prefixes), list(limits)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.strategy, name)

    def prune_sentences(self, batch_idxs: Tensor) -> None:
        """Go on with these of the sentences, (sentences), integers."""
        kept = batch_idxs.tolist()
        self.prefixes = [self.prefixes[i] for i in kept]
        self.limits = [self.limits[i] for i in kept]
        self.strategy.prune_sentences(batch_idxs)

    def step(self, step: int, lprobs: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Choose the next tokens, by log-probabilities (sentences, beam, vocabulary)."""
        for i, (prefix, limit) in enumerate(zip(self.prefixes, self.limits, strict=True)):
            if step >= limit:
                end = lprobs[i, :, self.eos].clone()
                lprobs[i] = -math.inf
                lprobs[i, :, self.eos] = end
            elif prefix <= step < self.min_len:
                lprobs[i, :, self.eos] = -math.inf
        return self.strategy.step(step, lprobs, *args, **kwargs)


@around(SequenceGenerator, "_generate")
def _limit_each_by_itself(
    original: Any,
    self: SequenceGenerator,
    sample: dict[str, Any],
    prefix_tokens: Tensor | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    if isinstance(self.search, DiverseBeamSearch):
        # It keeps what other groups chose by row, and would read it by the number in the data.
        sample = {name: value for name, value in sample.items() if name != "id"}
    lengths = sample["net_input"].get("src_lengths")
    by_length = self.max_len_a > 0 or prefix_tokens is not None
    if not by_length or lengths is None or self.match_source_len:
        return original(self, sample, prefix_tokens, *args, **kwargs)
    prefixes = [0] * len(lengths)
    if prefix_tokens is not None:
        prefixes = prefix_tokens.ne(self.pad).sum(dim=1).tolist()
    # In tokens, the end of the sentence not counted in a limit, but in a source's length.
    limits = [int(self.max_len_a * length + self.max_len_b) for length in lengths.tolist()]
    limits = [
        min(max(limit, self.min_len, prefix), self.max_len - 1)
        for limit, prefix in zip(limits, prefixes, strict=True)
    ]
    before = self.search, self.max_len_a, self.max_len_b
    self.search = LimitedSearch(self.search, self.eos, self.min_len, prefixes, limits)
    self.max_len_a, self.max_len_b = 0, max(limits)
    try:
        return original(self, sample, prefix_tokens, *args, **kwargs)
    finally:
        self.search, self.max_len_a, self.max_len_b = before


@around(SequenceGenerator, "is_finished")
def _finish_at_its_own_limit(
    original: Any, self: SequenceGenerator, step: int, unfin_idx: int, max_len: int, *args: Any
) -> bool:
    if isinstance(self.search, LimitedSearch):
        max_len = self.search.limits[unfin_idx]
    return original(self, step, unfin_idx, max_len, *args)


@around(Sampling, "step")
def _draw_what_is_left(
    original: Any,
    self: Sampling,
    step: int,
    lprobs: Tensor,
    scores: Tensor | None,
    *args: Any,
    **kwargs: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    left = lprobs.logsumexp(dim=2, keepdim=True)  # (sentences, beam, 1)
    left = left.masked_fill((left > _LEAST) | left.isinf(), 0.0)
    found, tokens, beams = original(self, step, lprobs - left, scores, *args, **kwargs)
    # In the first step, all are drawn by the first one's.
    left = left[:, :1] if step == 0 else left
    return found + left.squeeze(2), tokens, beams


@around(FairseqTask, "build_generator")
def _build_generator(original: Any, self: FairseqTask, *args: Any, **kwargs: Any) -> Any:
    call = inspect.signature(original).bind(self, *args, **kwargs).arguments
    fused = (call.get("extra_gen_cls_kwargs") or {}).get("lm_model")
    if fused is not None and fused.decoder.dictionary != self.target_dictionary:
        raise UserError(
            f"--lm-path: the language model's {len(fused.decoder.dictionary)} entries are not "
            f"those of the target dictionary ({len(self.target_dictionary)}), or in another "
            "order: train it on text binarized with that (fairseq-preprocess --only-source "
            "--srcdict)"
        )
    generator = original(self, *args, **kwargs)
    search = getattr(generator, "search", None)
    if isinstance(self, TranslationTask) and isinstance(search, LengthConstrainedBeamSearch):
        # The lengths that the search is given count the end of a sentence.
        search.min_len_b -= 1
        search.max_len_b -= 1
    return generator
