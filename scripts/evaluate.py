#!/usr/bin/env python3
"""Score translations: tokenized BLEU, sacreBLEU with its signature, chrF, TER and more.

    python scripts/evaluate.py --generated generate/test.txt --tokenized-references tok/test.en \
        --references raw/test.en --target-lang en

All numbers are sacrebleu's. Each has its own label, because none compares with another.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ea_fairseq.files import read_lines, write_json, write_lines
from ea_fairseq.recipes.generation import read_generated
from ea_fairseq.recipes.scoring import (
    Score,
    Translation,
    as_json,
    check_lengths,
    comet_score,
    measures,
)


def main(argv: list[str] | None = None) -> int:
    """Score one test set; the exit code is 0 unless the files do not fit each other."""
    args = make_parser().parse_args(argv)
    try:
        evaluate(args)
    except (ValueError, OSError) as error:
        print(f"evaluate.py: error: {error}", file=sys.stderr)
        return 1
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    translations = parser.add_mutually_exclusive_group(required=True)
    translations.add_argument("--generated", type=Path, help="what fairseq-generate printed")
    translations.add_argument(
        "--hypotheses", type=Path, help="translations, tokens without BPE marks, one a line"
    )
    parser.add_argument(
        "--tokenized-references", type=Path, required=True, help="references as tokens"
    )
    parser.add_argument(
        "--references", type=Path, required=True, help="references as in the corpus"
    )
    parser.add_argument("--sources", type=Path, help="sources as in the corpus")
    parser.add_argument("--target-lang", required=True, help="language code, for detokenizing")
    parser.add_argument(
        "--lowercase", action="store_true", help="ignore case: for models of lower-cased text"
    )
    parser.add_argument(
        "--compound-split", action="store_true", help="add the BLEU of WMT'14 En-De papers"
    )
    parser.add_argument(
        "--comet",
        nargs="?",
        const="Unbabel/wmt22-comet-da",
        metavar="MODEL",
        help="add COMET (needs --sources and the package unbabel-comet)",
    )
    parser.add_argument("--json", type=Path, help="write the scores here as well")
    parser.add_argument("--text", type=Path, help="write the detokenized translations here")
    return parser


def evaluate(args: argparse.Namespace) -> None:
    """Read, check, score, print and write what the arguments name."""
    path = args.generated or args.hypotheses
    tokens = read_generated(path)[1] if args.generated else read_lines(path)
    translation = Translation(
        tokens=tokens,
        tokenized_references=read_lines(args.tokenized_references),
        references=read_lines(args.references),
        target_lang=args.target_lang,
        lowercase=args.lowercase,
        compound_split=args.compound_split,
    )
    files = {
        path: tokens,
        args.tokenized_references: translation.tokenized_references,
        args.references: translation.references,
    }
    sources = read_lines(args.sources) if args.sources else None
    if sources is not None:
        files[args.sources] = sources
    check_lengths(files)
    if args.comet and sources is None:
        raise ValueError("--comet: needs the --sources too")

    scores = [measure.score() for measure in measures(translation)]
    if args.comet:
        scores.append(comet_score(sources, translation.text, translation.references, args.comet))
    width = max(len(score.label) for score in scores)
    for score in scores:
        print(f"{score.label:{width}} {score.score:7.2f}  {score.signature}")
    if args.text:
        write_lines(args.text, translation.text)
    if args.json:
        write_json(args.json, record(args, path, len(tokens), scores))


def record(args: argparse.Namespace, path: Path, count: int, scores: list[Score]) -> dict:
    """What --json writes: enough for compare.py to read the same files in the same way."""
    folder = args.json.parent
    return {
        "files": {
            "generated" if args.generated else "hypotheses": os.path.relpath(path, folder),
            "tokenized_references": os.path.relpath(args.tokenized_references, folder),
            "references": os.path.relpath(args.references, folder),
        },
        "target_lang": args.target_lang,
        "lowercase": args.lowercase,
        "compound_split": args.compound_split,
        "sentences": count,
        "scores": as_json(scores),
    }


if __name__ == "__main__":
    sys.exit(main())
