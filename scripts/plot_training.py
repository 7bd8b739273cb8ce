#!/usr/bin/env python3
"""Draw loss and BLEU of trainings against updates and against time, several in one picture.

    python scripts/plot_training.py --output curves.png \
        work/runs/multi30k.de-en/transformer_lite work/runs/multi30k.de-en/ea_transformer_lite

A RUN is a folder made by run_recipe.py (of one seed, or of a recipe with all its seeds), a log
of fairseq-train in any of its formats, or a folder that --tensorboard-logdir was given. Of several
seeds the mean is drawn, with a band of one standard deviation, as far as all of them have come.
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

from ea_fairseq.recipes.curves import Curves, MeanCurve, read_curves  # noqa: E402
from ea_fairseq.recipes.runs import seed_folders  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """Draw the picture; the exit code is 0 unless there is nothing to draw."""
    args = make_parser().parse_args(argv)
    try:
        if args.output.suffix not in (".png", ".pdf"):
            raise ValueError(f"--output {args.output}: choose a name in .png or .pdf")
        runs = {path: [read_curves(seed) for seed in seeds_of(path)] for path in args.run}
        draw(runs, args.output)
    except (ValueError, OSError) as error:
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
    folders = [seed for seed in seed_folders(path) if (seed / "logs" / "train.log").exists()]
    return folders or [path]


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
        draw_seeds(axes, rows, seeds, minutes, color=f"C{number % 10}", label=name)
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


def draw_seeds(
    axes: Any, rows: list[str], seeds: list[Curves], minutes: int, color: str, label: str
) -> None:
    """All curves of a recipe in one color; ``minutes`` make a unit of the time axis."""

    def line(row: int, curve: MeanCurve, **style: Any) -> None:
        times = [time / minutes for time in curve.minutes]
        for axis, position in zip(axes[row], (curve.updates, times), strict=True):
            axis.plot(position, curve.values, color=color, **style)
            if len(seeds) > 1 and style.get("marker"):
                points = list(zip(curve.values, curve.deviations, strict=True))
                low, high = [v - d for v, d in points], [v + d for v, d in points]
                axis.fill_between(position, low, high, color=color, alpha=0.2, linewidth=0)

    for row, quantity in enumerate(rows):
        curve = MeanCurve.of(seeds, "valid", quantity)
        if len(seeds) > 1 and row == 0:
            label += f": mean of {len(seeds)} seeds ± standard deviation"
            label += f", {len(curve.values)} epochs" if curve.cut else ""
        line(row, curve, label=label, marker=".", linewidth=1.8)
    kinds = ("train_inner", "train")
    kind = next((k for k in kinds if all(seed.curve(k, "loss")[0] for seed in seeds)), "train")
    line(0, MeanCurve.of(seeds, kind, "loss"), linewidth=0.6, alpha=0.6)


if __name__ == "__main__":
    sys.exit(main())
