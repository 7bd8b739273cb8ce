#!/usr/bin/env python3
"""Perplexity of a language model, and its loss in every block of the text.

    python scripts/evaluate_lm.py work/data/cldr.en/bin --user-dir ea_fairseq \
        --path checkpoint_best.pt --subword bpe --sample-break-mode eos \
        --tokens-per-sample 128 --json scores.json --losses losses.json

It is fairseq-eval-lm, with its options, beside which it counts words (or characters) and keeps what
each block lost, for compare.py. With --context-window the text is scored without one as well.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.sequence_scorer import SequenceScorer
from fairseq_cli import eval_lm

from ea_fairseq.files import write_json
from ea_fairseq.recipes.perplexity import UNITS, LossMeasure, scored_text, write_losses


def main(argv: list[str] | None = None) -> int:
    """Score one text; the exit code is 0 unless model and text do not fit."""
    parser = make_parser()
    args = options.parse_args_and_arch(parser, sys.argv[1:] if argv is None else argv)
    try:
        evaluate(args)
    except (ValueError, OSError) as error:
        print(f"evaluate_lm.py: error: {error}", file=sys.stderr)
        return 1
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line: fairseq-eval-lm's, and some more."""
    parser = options.get_eval_lm_parser()
    own = parser.add_argument_group("of evaluate_lm.py")
    own.add_argument("--json", type=Path, required=True, help="write the scores here")
    own.add_argument("--losses", type=Path, required=True, help="write the blocks' losses here")
    own.add_argument("--unit", choices=UNITS, default="word", help="what the score is about")
    own.add_argument(
        "--subword",
        choices=("bpe", "sentencepiece", "none"),
        required=True,
        help="what the text's words are split into",
    )
    return parser


def evaluate(args: argparse.Namespace) -> None:
    """Score, print and write.

    Raises:
        ValueError: a probability is no number, or the text has nothing to score.
    """
    measures: list[LossMeasure] = []
    window = args.context_window
    settings = {
        "unit": args.unit,
        "subword": args.subword,
        "mode": str(args.sample_break_mode or "none"),
    }
    for context in sorted({0, window}):
        blocks, nats, dictionary = losses(args, context)
        found = scored_text(
            blocks, dictionary.symbols, dictionary.eos(), dictionary.unk(), settings
        )
        measures.append(LossMeasure(found, context, nats))
    scores = [measure.score() for measure in measures]
    for score in scores:
        low, high = score["interval"]
        print(f"{score['label']} {score['score']:.4f} ({low:.4f} to {high:.4f})")
    write_losses(args.losses, measures)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    write_json(args.json, record(args, measures, scores))


class Recorder(SequenceScorer):
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


def losses(args: argparse.Namespace, context: int) -> tuple[list[list[int]], list[float], Any]:
    """The tokens of every block, in the order of the text, what they cost, and the dictionary."""
    recorders: list[Recorder] = []

    def recorder(*arguments: Any, **named: Any) -> Recorder:
        recorders.append(Recorder(*arguments, **named))
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
        raise ValueError(f"{args.path}: the model gives no finite probability to the text")
    return [tokens for tokens, _ in ordered], nats, done.dictionary


def record(
    args: argparse.Namespace, measures: list[LossMeasure], scores: list[dict[str, Any]]
) -> dict[str, Any]:
    """What --json writes."""
    scored = measures[0].scored
    return {
        "files": {"losses": os.path.relpath(args.losses, args.json.parent)},
        "unit": scored.unit,
        "units": sum(scored.units),
        "line_ends": scored.line_ends,
        "tokens": sum(scored.tokens),
        "unknown": scored.unknown,
        "blocks": len(scored.units),
        "scores": scores,
    }


if __name__ == "__main__":
    sys.exit(main())
