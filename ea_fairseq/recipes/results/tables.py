"""Markdown tables that line up in a terminal as well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is aligned left, numbers in the others right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    rule = [":" + "-" * (widths[0] - 1)] + ["-" * (width - 1) + ":" for width in widths[1:]]
    lines = []
    for row in [header, rule, *rows]:
        first = row[0].ljust(widths[0])
        others = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("| " + " | ".join([first, *others]) + " |")
    return "\n".join(lines)


def p_text(p: float) -> str:
    """A p-value with three digits, as papers write it: none is 0."""
    return "<0.001" if p < 0.0005 else f"{p:.3f}"


def mean_and_deviation(values: Sequence[float], digits: int = 2) -> str:
    """``41.02`` for one value, ``41.02 ± 0.13`` (sample standard deviation) for several.

    Where one of several is infinite, as a hopeless model's perplexity, there is no deviation: nan.
    """
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    deviation = stdev(values) if all(map(math.isfinite, values)) else math.nan
    return f"{mean(values):.{digits}f} ± {deviation:.{digits}f}"
