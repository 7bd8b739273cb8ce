#!/usr/bin/env python3
"""Perplexity of a language model, and its loss in every block of the text.

    python scripts/evaluate_lm.py work/data/cldr.en/bin --user-dir ea_fairseq \
        --path checkpoint_best.pt --subword bpe --sample-break-mode eos \
        --tokens-per-sample 128 --json scores.json --losses losses.json

It is fairseq-eval-lm, with all its options, beside which it counts words (or characters) and keeps
what each block lost, for compare.py. With --context-window the text is scored without one as well.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ea_fairseq.files import check_outputs, write_json
from ea_fairseq.recipes.results.perplexity import UNITS, write_losses


def main(argv: list[str] | None = None) -> int:
    """Score one text; the exit code is 0 unless model and text do not fit."""
    args, of_fairseq = make_parser().parse_known_args(argv)
    try:
        evaluate(args, of_fairseq)
    except (ValueError, OSError) as error:
        print(f"evaluate_lm.py: error: {error}", file=sys.stderr)
        return 1
    return 0


def evaluate(args: argparse.Namespace, of_fairseq: list[str]) -> None:
    """Score, write and print; ``of_fairseq`` are the options of fairseq-eval-lm."""
    check_outputs({"--json": args.json, "--losses": args.losses})
    from ea_fairseq.recipes.runs.block_losses import measure  # takes fairseq

    measures = measure(of_fairseq, args.unit, args.subword)
    scores = [measure.score() for measure in measures]
    write_losses(args.losses, measures)
    scored = measures[0].scored
    if warning := measures[0].warning:
        print(f"warning: {warning}", file=sys.stderr)
    record = {
        "files": {"losses": os.path.relpath(args.losses, args.json.parent)},
        "unit": scored.unit,
        "units": sum(scored.units),
        "line_ends": scored.line_ends,
        "tokens": sum(scored.tokens),
        "unknown": scored.unknown,
        "blocks": len(scored.units),
        "scores": scores,
    }
    write_json(args.json, record)
    for score in scores:
        low, high = score["interval"]
        print(f"{score['label']} {score['score']:.4f} ({low:.4f} to {high:.4f})")


def make_parser() -> argparse.ArgumentParser:
    """The command line beside fairseq-eval-lm's."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="All options of fairseq-eval-lm: fairseq-eval-lm --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", type=Path, required=True, help="write the scores here")
    parser.add_argument("--losses", type=Path, required=True, help="write the blocks' losses here")
    parser.add_argument(
        "--unit", choices=UNITS, default="word", help="what the score is about (default: word)"
    )
    parser.add_argument(
        "--subword",
        choices=("bpe", "sentencepiece", "none"),
        required=True,
        help="what the text's words are split into",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
