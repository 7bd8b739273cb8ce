"""``ea-evaluate``: scores of translations."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path

from ..files import check_outputs, read_lines, write_json, write_lines
from ..recipes.results.scoring import (
    Score,
    Translation,
    check_lengths,
    check_reference_words,
    check_words,
    comet_score,
    measures,
    warning_of_accents,
)
from ..recipes.runs.generation import check_targets, check_text_alone, read_generated
from ..text.tokens import detokenize, plain_language
from .program import described, run_program

_DESCRIPTION = """Score translations: tokenized BLEU, sacreBLEU with signature, chrF, TER and more.

    ea-evaluate --translations translated.en --references test.en
    ea-evaluate --generated generate/test.txt --tokenized-references tok/test.en \\
        --references raw/test.en --target-lang en

All numbers are sacrebleu's. Each has its own label, because none compares with another. Scores on
tokens need tokenized references; the others need text alone."""


def main(argv: list[str] | None = None) -> int:
    """Score one test set; the exit code is 0 unless the files do not fit each other."""
    return run_program(make_parser(), argv, evaluate)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = described(_DESCRIPTION, "evaluate.py")
    translations = parser.add_mutually_exclusive_group(required=True)
    translations.add_argument("--translations", type=Path, help="translations as text, one a line")
    translations.add_argument("--generated", type=Path, help="what fairseq-generate printed")
    translations.add_argument(
        "--hypotheses", type=Path, help="translations, tokens without BPE marks, one a line"
    )
    parser.add_argument(
        "--tokenized-references", type=Path, help="references as tokens, for tokenized BLEU"
    )
    parser.add_argument(
        "--references", type=Path, required=True, help="references as in the corpus"
    )
    parser.add_argument("--sources", type=Path, help="sources as in the corpus")
    parser.add_argument(
        "--target-lang",
        help="language code, for detokenizing tokens, and for the words of text without spaces",
    )
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
    check_arguments(args)
    path = args.translations or args.generated or args.hypotheses
    code = plain_language(args.target_lang or "")
    if not args.translations and code not in (args.target_lang, "ko"):
        print(
            f"warning: --target-lang {args.target_lang}: text is made by the rules of no language "
            f"in particular; {code} has them where Moses knows it",
            file=sys.stderr,
        )
    lines = read_generated(path) if args.generated else read_lines(path)
    tokenized = read_lines(args.tokenized_references) if args.tokenized_references else None
    translation = Translation(
        text=lines if args.translations else detokenize(lines, args.target_lang),
        references=read_lines(args.references),
        tokens=None if args.translations else lines,
        tokenized_references=tokenized,
        lowercase=args.lowercase,
        compound_split=args.compound_split,
        language=args.target_lang,
    )
    compared = {args.references: translation.references}
    if tokenized is not None:
        compared[args.tokenized_references] = tokenized
        check_words({args.tokenized_references: tokenized})
    check_words({path: lines})
    check_reference_words(args.references, translation.references)
    files = {path: lines} | compared
    sources = read_lines(args.sources) if args.sources else None
    if sources is not None:
        files[args.sources] = sources
    check_text_alone({name: text for name, text in files.items() if name != args.generated})
    check_lengths(files)
    if args.generated:
        check_targets(path, compared)
    if apart := warning_of_accents({path: lines} | compared):
        print(f"warning: {apart}", file=sys.stderr)
    changed = sum(one != text for one, text in zip(lines, translation.text, strict=True))
    if tokenized == translation.references and 2 * changed > len(lines):
        raise ValueError(
            f"--tokenized-references {args.tokenized_references}: is the text of --references, "
            "not its tokens: give the file that the data was made of, without BPE marks"
        )
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
        write_json(args.json, record(args, len(lines), scores))


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse options that do not go together."""
    if args.translations and args.tokenized_references:
        raise ValueError("--tokenized-references: --translations are text, not tokens")
    if not args.translations and not args.target_lang:
        raise ValueError("--target-lang: give the language code, to make text of tokens")
    if args.compound_split and not args.tokenized_references:
        raise ValueError("--compound-split: needs --tokenized-references, it is a score of tokens")
    read = (args.translations, args.generated, args.hypotheses, args.tokenized_references)
    read = [path for path in (*read, args.references, args.sources) if path]
    check_outputs({"--text": args.text, "--json": args.json}, read)


def record(args: argparse.Namespace, count: int, scores: list[Score]) -> dict:
    """What --json writes: enough for compare.py to read the same files in the same way."""
    names = ("translations", "generated", "hypotheses", "tokenized_references", "references")
    given = {name: getattr(args, name) for name in names}
    return {
        "files": {n: os.path.relpath(p, args.json.parent) for n, p in given.items() if p},
        "target_lang": args.target_lang,
        "lowercase": args.lowercase,
        "compound_split": args.compound_split,
        "sentences": count,
        "scores": [asdict(score) for score in scores],
    }


if __name__ == "__main__":
    sys.exit(main())
