#!/usr/bin/env python3
"""Draw loss and BLEU of trainings against updates and against time, several in one picture.

    python scripts/plot_training.py --output curves.png \
        work/runs/multi30k.de-en/transformer_lite work/runs/multi30k.de-en/ea_transformer_lite

A RUN is a folder made by run_recipe.py (of one seed, or of a recipe with all its seeds), a log
of fairseq-train in any of its formats, or a folder that --tensorboard-logdir was given.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

from ea_fairseq.recipes.curves import Curves, read_curves  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """Draw the picture; the exit code is 0 unless there is nothing to draw."""
    args = make_parser().parse_args(argv)
    try:
        if args.output.suffix not in (".png", ".pdf"):
            raise ValueError(f"--output {args.output}: choose a name in .png or .pdf")
        runs = {path: [read_curves(seed) for seed in seeds_of(path)] for path in args.run}
        draw(runs, args.output)
    except ValueError as error:
        print(f"plot_training.py: error: {error}", file=sys.stderr)
        return 1
    print(args.output)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="+", type=Path, help="run folder, log file or TensorBoard")
    parser.add_argument("--output", type=Path, required=True, help="picture, .png or .pdf")
    return parser


def seeds_of(path: Path) -> list[Path]:
    """The folders of all seeds of a recipe, or the path itself."""
    seeds = sorted(seed for seed in path.glob("seed*") if (seed / "logs" / "train.log").exists())
    return seeds or [path]


def names_of(paths: list[Path]) -> list[str]:
    """The paths without the folders that all of them share."""
    absolute = [path.resolve() for path in paths]
    common = Path(os.path.commonpath([path.parent for path in absolute]))
    return [str(path.relative_to(common)) for path in absolute]


def draw(runs: dict[Path, list[Curves]], output: Path) -> None:
    """One row for the loss, one for BLEU if any run logged it; updates left, time right."""
    everything = [curves for seeds in runs.values() for curves in seeds]
    has_bleu = any(curves.curve("valid", "bleu")[0] for curves in everything)
    longest = max(max(curves.minutes(curves.updates), default=0) for curves in everything)
    unit, minutes = ("hours", 60) if longest > 120 else ("minutes", 1)
    rows = ["loss", "bleu"] if has_bleu else ["loss"]
    figure, axes = pyplot.subplots(
        len(rows), 2, figsize=(11, 4 * len(rows)), sharey="row", sharex="col", squeeze=False
    )
    for number, (name, seeds) in enumerate(zip(names_of(list(runs)), runs.values(), strict=True)):
        for index, curves in enumerate(seeds):
            label = name if index == 0 else None  # one entry in the legend for all seeds
            draw_run(axes, rows, curves, minutes, color=f"C{number % 10}", label=label)
    axes[0][0].set_ylabel("loss (thick: validation, thin: training)")
    if has_bleu:
        axes[1][0].set_ylabel("validation BLEU")
    axes[-1][0].set_xlabel("updates")
    axes[-1][1].set_xlabel(f"{unit} of training")
    axes[0][0].legend()
    for row in axes:
        for axis in row:
            axis.grid(alpha=0.3)
    figure.tight_layout()
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f"{output.stem}.part{output.suffix}")
    figure.savefig(partial, dpi=120)
    pyplot.close(figure)
    os.replace(partial, output)


def draw_run(
    axes: Any, rows: list[str], curves: Curves, minutes: int, color: str, label: str | None
) -> None:
    """All curves of one training in one color; ``minutes`` make a unit of the time axis."""

    def line(row: int, kind: str, quantity: str, **style: Any) -> None:
        updates, values = curves.curve(kind, quantity)
        times = [time / minutes for time in curves.minutes(updates)]
        axes[row][0].plot(updates, values, color=color, **style)
        axes[row][1].plot(times, values, color=color, **style)

    for row, quantity in enumerate(rows):
        line(row, "valid", quantity, label=label, marker=".", linewidth=1.8)
    kind = "train_inner" if curves.curve("train_inner", "loss")[0] else "train"
    line(0, kind, "loss", linewidth=0.6, alpha=0.6)


if __name__ == "__main__":
    sys.exit(main())
