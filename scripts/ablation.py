#!/usr/bin/env python3
"""The paper's table of ablations on a corpus: run what is missing, print what is there.

python scripts/ablation.py examples/translation/multi30k.de-en --print
python scripts/ablation.py examples/translation/multi30k.de-en --seeds 1 2 3
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import run_recipe

from ea_fairseq.files import read_json, write_json, write_lines
from ea_fairseq.recipes.arguments import add_arguments
from ea_fairseq.recipes.recipe import load_recipe
from ea_fairseq.recipes.steps import differences, listed
from ea_fairseq.recipes.tables import mean_and_deviation, table

#: Recipe -> its row's name, in the order of table 6 of arXiv:2102.12895.
ROWS = {
    "transformer_lite": "Transformer-Lite",
    "ea_transformer_lite": "EA-Transformer-Lite",
    "without_encoder_convolution": "- without encoder convolution",
    "without_decoder_convolution": "- without decoder convolution",
    "without_encoder_decoder_convolution": "- without encoder-decoder convolution",
    "without_skip": "- without skip connection",
    "kernel_1": "- with 1x1 convolution",
    "kernel_5": "- with 5x5 convolution",
}


def main(argv: list[str] | None = None) -> int:
    """Run and print; the exit code is that of the first run that failed."""
    args = make_parser().parse_args(argv)
    try:
        for recipe in ROWS:
            if not (args.corpus / f"{recipe}.yml").is_file():
                raise ValueError(f"{args.corpus / f'{recipe}.yml'}: no such recipe")
        if not args.print:
            code = run_all(args)
            if code:
                return code
        rows = [read_row(recipe, args) for recipe in ROWS]
    except ValueError as error:
        print(f"ablation.py: error: {error}", file=sys.stderr)
        return 1
    text = as_table(rows)
    print(f"\n{args.score}\n\n{text}")
    if args.markdown:
        write_lines(args.markdown, text.split("\n"))
    if args.json:
        write_json(args.json, rows)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, help="folder with the corpus' recipes")
    parser.add_argument("--print", action="store_true", help="print the table, run nothing")
    parser.add_argument(
        "--score",
        default="tokenized BLEU",
        help="label of the score, or its beginning (default: %(default)s, as the paper has it)",
    )
    parser.add_argument("--markdown", type=Path, help="write the table here as well")
    parser.add_argument("--json", type=Path, help="write the scores here")
    add_arguments(parser)
    parser.add_argument("--raw", type=Path, help="local folder with the corpus as downloaded")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="one run for each")
    parser.add_argument("--threads", type=int, help="threads of each command")
    return parser


def run_all(args: argparse.Namespace) -> int:
    """All recipes one after the other; what is done is skipped there."""
    options = ["--work-dir", str(args.work_dir), "--seeds", *map(str, args.seeds)]
    options += ["--raw", str(args.raw)] if args.raw else []
    options += ["--threads", str(args.threads)] if args.threads else []
    options += [f"--set={override}" for override in args.set]
    return run_recipe.main([*(str(args.corpus / f"{recipe}.yml") for recipe in ROWS), *options])


def read_row(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Scores of a recipe: test set -> one score for each seed that is done."""
    recipe = load_recipe(args.corpus / f"{name}.yml", args.set)
    folder = args.work_dir / "runs" / recipe.corpus_name / name
    done = [folder / f"seed{seed}" / "results.json" for seed in args.seeds]
    results = [read_json(path) for path in done if path.exists()]
    scores: dict[str, list[float]] = {}
    notes = []
    for result in results:
        changes = differences(recipe.sections, result["settings"])
        if changes:
            other = f"run with other settings: {listed(changes)}"
            notes.append(f"{name}, seed {result['seed']}: {other}")
        for test_set, scored in result["scores"].items():
            found = [s for s in scored["scores"] if s["label"].startswith(args.score)]
            if not found:
                labels = ", ".join(s["label"] for s in scored["scores"])
                raise ValueError(f"--score {args.score}: not in {folder} (choose from {labels})")
            scores.setdefault(test_set, []).append(found[0]["score"])
    return {
        "recipe": name,
        "name": ROWS[name],
        "parameters": results[0]["parameters"] if results else None,
        "seeds": [result["seed"] for result in results],
        "scores": scores,
        "notes": notes,
    }


def as_table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown; with several seeds mean and standard deviation; then the notes."""
    test_sets = list(dict.fromkeys(name for row in rows for name in row["scores"]))
    lines = []
    for row in rows:
        cells = [
            mean_and_deviation(row["scores"][name]) if name in row["scores"] else "not run yet"
            for name in test_sets or ["test"]
        ]
        parameters = f"{row['parameters']:,}" if row["parameters"] else ""
        lines.append([row["name"], parameters, str(len(row["seeds"])), *cells])
    rendered = table(["model", "parameters", "seeds", *(test_sets or ["test"])], lines)
    return "\n\n".join([rendered, *(note for row in rows for note in row["notes"])])


if __name__ == "__main__":
    sys.exit(main())
