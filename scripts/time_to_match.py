#!/usr/bin/env python3
"""What a model takes to reach the best validation perplexity of a baseline, and the ratio, by seed.

    python scripts/time_to_match.py work/runs/multi30k.de-en/transformer_lite \
        work/runs/multi30k.de-en/ea_transformer_lite

A folder is that of a recipe with all its seeds, or of one run. Core hours are hours of training,
validations included, times the threads (ea-recipe's --threads); what else ran on the machine
is in them. Of runs without --threads they are left out. With equal budgets the ratio of epochs
cannot come out far above 1: the baseline's best is mostly one of its last validations, and a slower
model never reaches it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ea_fairseq.commands.program import described, run_program
from ea_fairseq.files import check_outputs, write_json
from ea_fairseq.recipes.results.differences import listed
from ea_fairseq.recipes.results.milestones import read_progress
from ea_fairseq.recipes.results.systems import check_runs, differing_settings
from ea_fairseq.recipes.results.tables import mean_and_deviation, table
from ea_fairseq.recipes.runs.folders import seed_folders, settings_of

COSTS = {"epochs": "epoch", "updates": "updates", "core hours": "core_hours"}
HEADER = ["seed", "perplexity", *(f"{cost}: A" for cost in COSTS)]
HEADER += [name for cost in COSTS for name in (f"{cost}: B", "B / A")]


def main(argv: list[str] | None = None) -> int:
    """Print the table; the exit code is 0 unless the runs do not compare."""
    return run_program(make_parser(), argv, compare_costs)


def compare_costs(args: argparse.Namespace) -> None:
    """Read, compare, write and print what the arguments name."""
    check_outputs({"--json": args.json})
    chosen = pairs(args.baseline, args.model, args.seeds)
    for runs in zip(*chosen, strict=True):
        check_runs(list(runs))
    rows = [match(*pair) for pair in chosen]
    if args.json:
        write_json(args.json, rows)
    print(f"A: {args.baseline}\nB: {args.model}")
    if changes := differing_settings(*chosen[0]):
        print(f"A -> B: {listed(changes)}")
    every = [run for path in (args.baseline, args.model) for run in seed_folders(path, args.seeds)]
    if alone := [str(run) for run in every if not any(run in pair for pair in chosen)]:
        print(f"left out, in one of them alone: {', '.join(alone)}")
    print()
    lines = [as_text(row) for row in rows]
    if len(rows) > 1:
        lines.append(mean_of(rows))
    print(table(HEADER, lines))
    for reason in dict.fromkeys(row["no core hours"] for row in rows if row["no core hours"]):
        print(f"\nno core hours: {reason}")
    for row in rows:
        if row["B"] is None:
            best = row["best of B"]
            print(f"\n{row['seed']}: B did not reach it; its best is {best:.2f}")


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = described(__doc__, "time_to_match.py")
    parser.add_argument("baseline", type=Path, metavar="A", help="run folder of the baseline")
    parser.add_argument("model", type=Path, metavar="B", help="run folder of the model")
    parser.add_argument("--seeds", type=int, nargs="+", help="these runs of the folders only")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    return parser


def pairs(baseline: Path, model: Path, seeds: list[int] | None) -> list[tuple[Path, Path]]:
    """The runs with the same seed, of those asked for, or the two runs that were given."""
    first, second = seed_folders(baseline, seeds), seed_folders(model, seeds)
    if [baseline] == first and [model] == second:
        return [(baseline, model)]
    theirs = {folder.name: folder for folder in second}
    found = [(folder, theirs[folder.name]) for folder in first if folder.name in theirs]
    if not found:
        raise ValueError(f"{baseline} and {model}: no seed in common")
    return found


def match(baseline: Path, model: Path) -> dict[str, Any]:
    """The baseline's best validation, the model's first that is as good (or None), the ratios."""
    data = [settings_of(run).get("data") for run in (baseline, model)]
    if None not in data and data[0] != data[1]:
        raise ValueError(
            f"{model}: was trained on other data than {baseline}: their perplexities do not compare"
        )
    first, second = read_progress(baseline), read_progress(model)
    best = first.best
    reached = second.first_at_most(best.perplexity)
    for path, unknown in ((baseline, not first.ended), (model, not (reached or second.ended))):
        if unknown:
            raise ValueError(f"{path}: its training has not ended: give its command again")
    ratios = None
    if reached is not None:
        costs = {name: (getattr(reached, c), getattr(best, c)) for name, c in COSTS.items()}
        ratios = {name: b / a if a and b is not None else None for name, (b, a) in costs.items()}
    return {
        "seed": baseline.name,
        "A": vars(best),
        "B": vars(reached) if reached else None,
        "best of B": second.best.perplexity,
        "B / A": ratios,
        "no core hours": first.no_hours or second.no_hours or None,
    }


def as_text(row: dict[str, Any]) -> list[str]:
    """A row of the printed table."""
    cells = [row["seed"], f"{row['A']['perplexity']:.2f}"]
    cells += [_shown(row["A"], cost) for cost in COSTS.values()]
    for name, cost in COSTS.items():
        reached = row["B"] is not None
        cells += [_shown(row["B"], cost) if reached else "never"]
        ratio = row["B / A"][name] if reached else None
        cells += ["" if ratio is None else f"{ratio:.2f}"]
    return cells


def mean_of(rows: list[dict[str, Any]]) -> list[str]:
    """The last row: mean ratios, where every seed has one."""
    cells = ["mean", *[""] * (1 + len(COSTS))]
    for name in COSTS:
        ratios = [row["B / A"][name] for row in rows if row["B / A"]]
        ratios = [ratio for ratio in ratios if ratio is not None]
        cells += ["", mean_and_deviation(ratios) if len(ratios) == len(rows) else ""]
    return cells


def _shown(milestone: dict[str, Any], cost: str) -> str:
    value = milestone[cost]
    if value is None:
        return ""
    return f"{value:.2f}" if cost == "core_hours" else f"{value:,}"


if __name__ == "__main__":
    sys.exit(main())
