"""``ea-plot``: curves of trainings."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..errors import check_package
from ..files import check_outputs
from ..recipes.results.curves import read_curves
from ..recipes.results.systems import check_runs
from ..recipes.runs.folders import seed_folders
from .program import described, run_program

_DESCRIPTION = """Draw loss and BLEU of trainings over updates and time, several in one picture.

    ea-plot --output curves.png \\
        work/runs/multi30k.de-en/transformer_lite work/runs/multi30k.de-en/ea_transformer_lite

A RUN is a folder made by ea-recipe (of one seed, or of a recipe with all its seeds), a log
of fairseq-train in any of its formats, or a folder that --tensorboard-logdir was given. Of several
seeds the mean is drawn, with a band of one standard deviation, as far as all of them have come."""


def main(argv: list[str] | None = None) -> int:
    """Draw the picture; the exit code is 0 unless there is nothing to draw."""
    return run_program(make_parser(), argv, _plot)


def _plot(args: argparse.Namespace) -> None:
    if args.output.suffix not in (".png", ".pdf"):
        raise ValueError(f"--output {args.output}: choose a name in .png or .pdf")
    check_outputs({"--output": args.output})
    check_package("matplotlib")
    folders = {path: seeds_of(path, args.seeds) for path in args.run}
    for seeds in folders.values():
        if len(seeds) > 1:
            check_runs(seeds)
    runs = {path: [read_curves(seed) for seed in seeds] for path, seeds in folders.items()}
    from ..recipes.results.curve_pictures import draw  # takes matplotlib

    draw(runs, args.output)
    print(args.output)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = described(_DESCRIPTION, "plot_training.py")
    parser.add_argument("run", nargs="+", type=Path, help="run folder, log file or TensorBoard")
    parser.add_argument("--seeds", type=int, nargs="+", help="these runs of the folders only")
    parser.add_argument("--output", type=Path, required=True, help="picture, .png or .pdf")
    return parser


def seeds_of(path: Path, seeds: list[int] | None = None) -> list[Path]:
    """The folders of all seeds of a recipe, or of those asked for, or the path itself."""
    if seeds is not None:
        return seed_folders(path, seeds)
    folders = [seed for seed in seed_folders(path) if (seed / "logs" / "train.log").exists()]
    return folders or [path]


if __name__ == "__main__":
    sys.exit(main())
