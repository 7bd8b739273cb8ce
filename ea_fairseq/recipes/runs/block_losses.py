"""fairseq-eval-lm on a text, with what each block of it loses."""

from __future__ import annotations

import argparse
import math
from copy import deepcopy
from typing import Any

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.sequence_scorer import SequenceScorer
from fairseq_cli import eval_lm

from ...fairseq_options import values
from ..results.perplexity import LossMeasure, check_units, scored_text


def measure(arguments: list[str], unit: str, subword: str) -> list[LossMeasure]:
    """Score a text without a context window, and with one if the arguments have it.

    Args:
        arguments: of fairseq-eval-lm
        unit: "word" or "character"
        subword: "bpe", "sentencepiece" or "none"

    Raises:
        ValueError: a value that cannot work, a dictionary of other units, a probability that is no
            number, or nothing to score.
    """
    parser = options.get_eval_lm_parser()
    args = options.parse_args_and_arch(parser, arguments)
    values.check(parser, args)
    settings = {"unit": unit, "subword": subword, "mode": str(args.sample_break_mode or "none")}
    measures = []
    for context in sorted({0, args.context_window}):
        blocks, nats, words = _losses(args, context, unit, subword)
        text = scored_text(blocks, words.symbols, words.eos(), words.unk(), settings)
        measures.append(LossMeasure(text, context, nats))
    return measures


class _Recorder(SequenceScorer):
    """fairseq's scorer, which keeps the tokens of every block and what they cost.

    Args: as for fairseq's; the first is the dictionary.
    """

    def __init__(self, dictionary: Any, *args: Any, **kwargs: Any):
        super().__init__(dictionary, *args, **kwargs)
        self.dictionary = dictionary
        self.found: dict[int, tuple[list[int], float]] = {}

    def generate(self, models: Any, sample: dict[str, Any], **kwargs: Any) -> Any:
        """As fairseq's."""
        found = super().generate(models, sample, **kwargs)
        for number, (best, *_) in zip(sample["id"].tolist(), found, strict=True):
            nats = -best["positional_scores"].double().sum().item()
            self.found[number] = best["tokens"].tolist(), nats
        return found


def _losses(
    args: argparse.Namespace, context: int, unit: str, subword: str
) -> tuple[list[list[int]], list[float], Any]:
    """The tokens of every block, in the order of the text, what they cost, and the dictionary."""
    recorders: list[_Recorder] = []

    def recorder(dictionary: Any, *arguments: Any, **named: Any) -> _Recorder:
        check_units(dictionary.symbols[dictionary.nspecial :], unit, subword)
        recorders.append(_Recorder(dictionary, *arguments, **named))
        return recorders[-1]

    changed = deepcopy(args)
    changed.context_window = context
    original, eval_lm.SequenceScorer = eval_lm.SequenceScorer, recorder
    try:
        eval_lm.main(convert_namespace_to_omegaconf(changed))
    finally:
        eval_lm.SequenceScorer = original
    (done,) = recorders
    if not done.found:
        raise ValueError(f"--gen-subset {args.gen_subset}: the text has no token to score")
    ordered = [done.found[number] for number in sorted(done.found)]
    nats = [cost for _, cost in ordered]
    if not all(math.isfinite(cost) for cost in nats):
        raise ValueError(f"--path {args.path}: the model gives no finite probability to the text")
    return [tokens for tokens, _ in ordered], nats, done.dictionary
