#!/usr/bin/env python3
"""Compares systems that glue.py trained on one task, by bootstrap over seeds and sentences.

    python examples/language_understanding/compare_systems.py glue/CoLA/plain glue/CoLA/evolving

The first is what the others are compared with. Each system is a folder with seed*/results.json.
Intervals and p leave the choice of seeds and of sentences to chance.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from measures import difference, interval_of_mean

from ea_fairseq.errors import UserError
from ea_fairseq.files import read_json


def main(argv: list[str] | None = None) -> int:
    """Prints a table; 0, or 1 and one line where the folders do not compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", type=Path, nargs="+")
    parser.add_argument("--samples", type=int, default=1000, help="of the bootstrap")
    args = parser.parse_args(argv)
    try:
        systems = {path.name: read(path) for path in args.systems}
        if len(systems) < len(args.systems):
            raise UserError("two systems have one name: give folders of different names")
        for line in table(systems, args.samples):
            print(line)
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def read(folder: Path) -> list[dict[str, Any]]:
    """The results of a system's seeds."""
    paths = sorted(folder.glob("seed*/results.json"))
    if not paths:
        raise UserError(f"{folder}: no seed*/results.json")
    return [read_json(path) for path in paths]


def table(systems: dict[str, list[dict[str, Any]]], samples: int) -> list[str]:
    """Lines of a Markdown table: means, and differences from the first system.

    Raises:
        UserError: systems of different tasks or development sets
    """
    name, base = next(iter(systems.items()))
    lines = [
        f"| {base[0]['task']} | seeds | parameters | mean (95 % over seeds) "
        f"| minus {name} (95 % interval) | p |",
        "|---|---|---|---|---|---|",
    ]
    for dev, labels in base[0]["labels"].items():
        for metric in base[0]["metrics"][dev]:
            for other, runs in systems.items():
                if any(run["labels"].get(dev) != labels for run in runs):
                    raise UserError(f"{other}: another development set than {name}'s")
                scores = [run["metrics"][dev][metric] for run in runs]
                low, high = interval_of_mean(scores)
                row = [f"{other}, {dev}, {metric}", len(runs), f"{runs[0]['parameters']:,}"]
                row.append(f"{np.mean(scores):.2f} ({low:.2f} to {high:.2f})")
                if runs is base:
                    row += ["", ""]
                else:
                    first, second = ([run["predictions"][dev] for run in s] for s in (base, runs))
                    found = difference(metric, labels, first, second, samples)
                    row.append(
                        f"{found.observed:+.2f} ({found.interval[0]:+.2f} to "
                        f"{found.interval[1]:+.2f})"
                    )
                    row.append(f"{found.p:.3f}")
                lines.append("| " + " | ".join(map(str, row)) + " |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
