"""Search honours length limits, and adds a language model's scores to the right words.

Replaced in fairseq:
- ``FairseqTask.build_generator``: ``--match-source-len`` counted the source's end as one of its
  tokens: every translation was one longer than its source. A language model (``--lm-path``) with
  other entries than the target dictionary, or the same in another order, scored words by the
  numbers of others; its own check compares it with ``dict.txt`` alone. A limit of the length below
  ``--min-len`` ended in an assertion without a word about either, more words to draw from
  (``--sampling-topk``) than there are in a traceback.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from fairseq.search import LengthConstrainedBeamSearch, Sampling
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationTask

from ...errors import UserError


def _checked(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def build_generator(self: FairseqTask, *args: Any, **kwargs: Any) -> Any:
        call = signature.bind(self, *args, **kwargs).arguments
        fused = (call.get("extra_gen_cls_kwargs") or {}).get("lm_model")
        if fused is not None and fused.decoder.dictionary != self.target_dictionary:
            raise UserError(
                f"--lm-path: the language model's {len(fused.decoder.dictionary)} entries are not "
                f"those of the target dictionary ({len(self.target_dictionary)}), or in another "
                "order: train it on text binarized with that (fairseq-preprocess --only-source "
                "--srcdict)"
            )
        generator = original(self, *args, **kwargs)
        _check_limit(generator)
        search = getattr(generator, "search", None)
        if isinstance(search, Sampling) and search.sampling_topk > search.vocab_size:
            raise UserError(
                f"--sampling-topk is {search.sampling_topk}: choose from 1 to "
                f"{search.vocab_size}, the entries of the target dictionary, or leave it out"
            )
        if isinstance(self, TranslationTask) and isinstance(search, LengthConstrainedBeamSearch):
            # The lengths that the search is given count the end of a sentence.
            search.min_len_b -= 1
            search.max_len_b -= 1
        return generator

    return build_generator


def _check_limit(generator: Any) -> None:
    """Of the sources' lengths nothing is known yet: with ``max_len_a`` a limit is raised later."""
    if not isinstance(generator, SequenceGenerator) or generator.match_source_len:
        return
    limit, least = generator.max_len_b, generator.min_len
    if not generator.max_len_a and limit < least:
        raise UserError(
            f"--max-len-b {limit} is below --min-len {least}: give --max-len-b {least} or more"
        )
    if least >= generator.max_len:
        raise UserError(
            f"--min-len is {least}: the model writes {generator.max_len - 1} tokens at most"
        )


def install() -> None:
    """Make fairseq search so."""
    FairseqTask.build_generator = _checked(FairseqTask.build_generator)
