"""Pictures of trainings: loss and BLEU against updates and against time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.legend import Legend  # noqa: E402

from ...files import new_file  # noqa: E402
from .curves import Curves, MeanCurve  # noqa: E402

_LINES = ("-", "--", "-.", ":")


def names_of(paths: list[Path]) -> list[str]:
    """The paths without the folders that all of them share."""
    absolute = [path.resolve() for path in paths]
    common = Path(os.path.commonpath([path.parent for path in absolute]))
    return [str(path.relative_to(common)) for path in absolute]


def named(name: str) -> str:
    """A name as the label of a line: matplotlib leaves out what begins with _."""
    return f" {name}" if name[0] == "_" else name


def without_formulas(legend: Legend) -> None:
    """Have a legend show names as they are: a dollar in one begins no formula."""
    for text in legend.get_texts():
        text.set_parse_math(False)


def draw(runs: dict[Path, list[Curves]], output: Path) -> None:
    """One row for the loss, one for BLEU if any run logged it; updates left, time right."""
    everything = [curves for seeds in runs.values() for curves in seeds]
    has_bleu = any(curves.curve("valid", "bleu")[0] for curves in everything)
    longest = max(max(curves.minutes(curves.updates), default=0) for curves in everything)
    unit, minutes = ("hours", 60) if longest > 120 else ("minutes", 1)
    rows = ["loss", "bleu"] if has_bleu else ["loss"]
    figure, axes = pyplot.subplots(
        *(len(rows), 2),
        figsize=(11, 4 * len(rows)),
        sharey="row",
        sharex="col",
        squeeze=False,
        layout="constrained",
    )
    for number, (name, seeds) in enumerate(zip(names_of(list(runs)), runs.values(), strict=True)):
        # matplotlib has ten colours.
        style = dict(color=f"C{number % 10}", linestyle=_LINES[number // 10 % len(_LINES)])
        draw_seeds(axes, rows, seeds, minutes, style, label=named(name))
    axes[0][0].set_ylabel("loss (thick: validation, thin: training)")
    if has_bleu:
        axes[1][0].set_ylabel("validation BLEU")
    axes[-1][0].set_xlabel("updates")
    axes[-1][1].set_xlabel(f"{unit} of training")
    # Above the axes: names are long, and inside they hide curves.
    lines = axes[0][0].get_legend_handles_labels()
    without_formulas(figure.legend(*lines, loc="outside upper center"))
    for row in axes:
        for axis in row:
            axis.grid(alpha=0.3)
    with new_file(output) as temporary:
        figure.savefig(temporary, dpi=120, format=output.suffix[1:] or None)
    pyplot.close(figure)


def draw_seeds(
    axes: Any,
    rows: list[str],
    seeds: list[Curves],
    minutes: int,
    look: dict[str, Any],
    label: str,
) -> None:
    """All curves of a recipe in one color and style; ``minutes`` make a unit of the time axis."""

    def line(row: int, curve: MeanCurve, **style: Any) -> None:
        times = [time / minutes for time in curve.minutes]
        for axis, position in zip(axes[row], (curve.updates, times), strict=True):
            axis.plot(position, curve.values, **look, **style)
            if len(seeds) > 1 and style.get("marker"):
                points = list(zip(curve.values, curve.deviations, strict=True))
                low, high = [v - d for v, d in points], [v + d for v, d in points]
                axis.fill_between(position, low, high, color=look["color"], alpha=0.2, linewidth=0)

    for row, quantity in enumerate(rows):
        curve = MeanCurve.of(seeds, "valid", quantity)
        if len(seeds) > 1 and row == 0:
            label += f": mean of {len(seeds)} seeds ± standard deviation"
            label += f", {len(curve.values)} epochs" if curve.cut else ""
        line(row, curve, label=label, marker=".", linewidth=1.8)
    kinds = ("train_inner", "train")
    kind = next((k for k in kinds if all(seed.curve(k, "loss")[0] for seed in seeds)), "train")
    line(0, MeanCurve.of(seeds, kind, "loss"), linewidth=0.6, alpha=0.6)
