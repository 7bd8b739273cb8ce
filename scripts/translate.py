#!/usr/bin/env python3
"""Translate raw text with a model that a recipe has trained.

    python scripts/translate.py examples/translation/multi30k.de-en \\
        --variant ea_transformer_lite < new.de > new.en

This is ea-translate (see there for what it prints) for a recipe's run: it uses the run's model
folder, <work-dir>/runs/<corpus>/<recipe>/seed<k>/model.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ea_fairseq.commands import translate as command
from ea_fairseq.recipes.runs.folders import run_name
from ea_fairseq.recipes.says.arguments import work_dir_argument
from ea_fairseq.recipes.says.recipe import load_recipe, recipe_path


def main(argv: list[str] | None = None) -> int:
    """Translate; the exit code is 0 when every line is translated."""
    args = make_parser().parse_args(argv)
    try:
        model = model_of_run(args)
    except (ValueError, OSError) as error:
        print(f"translate.py: error: {error}", file=sys.stderr)
        return 1
    return command.run([model, *args.ensemble], args, "translate.py")


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "recipe", type=Path, help="a corpus' folder, with --variant; or a recipe file (.yml)"
    )
    parser.add_argument("--variant", metavar="NAME", help="model of the corpus that was run")
    work_dir_argument(parser)
    parser.add_argument("--name", help="name of the runs' folder (default: the recipe's name)")
    parser.add_argument("--seed", type=int, default=1, help="which of the runs (default: 1)")
    command.add_options(parser)
    return parser


def model_of_run(args: argparse.Namespace) -> Path:
    """The model folder of the run, made where the run has none that is up to date."""
    recipe = load_recipe(recipe_path(args.recipe, args.variant))
    runs = args.work_dir.absolute() / "runs" / recipe.corpus_name
    run = runs / run_name(recipe, args.name) / f"seed{args.seed}"
    if not run.is_dir():
        raise ValueError(f"{run}: no such run; train first: ea-recipe")
    from ea_fairseq.recipes.runs.export_run import exported_run

    return exported_run(run)


if __name__ == "__main__":
    sys.exit(main())
