#!/usr/bin/env python3
"""Several systems in one table: each beside one or two of them, p corrected for their number.

    python scripts/compare_many.py examples/translation/multi30k.de-en/translations \
        --against transformer_lite.epochs_22 ea_transformer_lite.epochs_22
    python scripts/compare_many.py work/runs/multi30k.de-en/{transformer,ea_transformer}_lite

A system is a folder of runs made by ea-recipe, or what keep_runs.py kept of it; a folder of such
folders is all of them. Of each as many seeds count as are finished. There is a table of the
sentences of all test sets together, and one for each test set: mean and standard deviation over
seeds, difference (95 % interval) and p as compare.py has them, and p after Holm's correction for
all systems that a table compares with the same one. Of many systems that differ in nothing, one of
twenty has a p below 0.05; with Holm's p, one such table of twenty.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import mean

from ea_fairseq.commands.compare import add_options
from ea_fairseq.commands.program import described, run_program
from ea_fairseq.errors import perhaps_meant
from ea_fairseq.files import check_outputs, read_json, write_json, write_lines
from ea_fairseq.recipes.results.comparison import ALL_TOGETHER, left_to_chance
from ea_fairseq.recipes.results.differences import listed
from ea_fairseq.recipes.results.independence import warning_of_copies
from ea_fairseq.recipes.results.several import (
    Compared,
    System,
    compare_all,
    read_systems,
    system_folders,
)
from ea_fairseq.recipes.results.systems import differing_settings, units_of
from ea_fairseq.recipes.results.tables import mean_and_deviation, p_text, table

#: What each system is compared with -> name -> test set -> the comparison.
Comparisons = dict[str, dict[str, dict[str, Compared]]]


def main(argv: list[str] | None = None) -> int:
    """Compare and print; the exit code is 0 unless the systems do not compare."""
    return run_program(make_parser(), argv, compare_systems)


def compare_systems(args: argparse.Namespace) -> None:
    """Read, compare, write and print what the arguments name."""
    outputs = {"--markdown": args.markdown, "--json": args.json}
    check_outputs(outputs, [args.times] if args.times else [])
    times = read_json(args.times) if args.times else {}
    folders = [folder for path in args.systems for folder in system_folders(path)]
    systems = read_systems(folders, args.seeds, args.work_dir)
    if len(systems) < 2:
        raise ValueError("fewer than two systems with finished runs: nothing to compare")
    against = args.against or [next(iter(systems))]
    for name in against:
        if name not in systems:
            raise ValueError(
                f"--against {name}: none of the systems{perhaps_meant(name, systems)} "
                f"(choose from {', '.join(systems)})"
            )
    found = {name: compare_all(systems, name, args.score, args.samples) for name in against}
    lines = report(systems, found, times)
    if missing := [folder.name for folder in folders if folder.name not in systems]:
        lines.append(f"Left out, none of these seeds is finished: {', '.join(missing)}.")
    if args.markdown:
        write_lines(args.markdown, lines)
    if args.json:
        write_json(args.json, as_json(found))
    every = {
        f"{name}/{run}": found for name, one in systems.items() for run, found in one.runs.items()
    }
    if copies := warning_of_copies(Path("systems"), every):
        print(f"compare_many.py: warning: {copies}", file=sys.stderr)
    print("\n".join(lines))


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = described(__doc__, "compare_many.py")
    parser.add_argument(
        "systems", type=Path, nargs="+", metavar="SYSTEM", help="folder of runs, or of systems"
    )
    parser.add_argument(
        "--against",
        nargs="+",
        metavar="NAME",
        help="names of the systems that all are compared with (default: the first one)",
    )
    # p near 0.05, times the number of comparisons, shall not hang on which samples were drawn.
    add_options(parser, samples=10_000)
    parser.add_argument(
        "--score",
        default="tokenized BLEU",
        help="label of the score, or its beginning (default: %(default)s)",
    )
    parser.add_argument(
        "--times", type=Path, metavar="FILE", help="what benchmark_variants.py --json wrote"
    )
    parser.add_argument("--markdown", type=Path, help="write the tables here as well")
    parser.add_argument("--json", type=Path, help="write the figures here")
    return parser


def report(
    systems: dict[str, System], found: Comparisons, times: dict[str, dict[str, float]]
) -> list[str]:
    """The tables and what to know about them, line by line."""
    against = next(iter(found))
    example = next(iter(found[against].values()))
    *test_sets, last = example
    order = [ALL_TOGETHER, *test_sets] if last == ALL_TOGETHER else list(example)
    score = example[last].row.score
    lines = [f"{score}: mean ± standard deviation over seeds, difference (95 % interval)", ""]
    for test_set in order:
        sentences = example[test_set].row.sentences
        lines += [f"{test_set}, {sentences:,} {units_of(systems[against].runs)}", ""]
        large = test_set == order[0]
        lines += [one_table(systems, found, test_set, times if large else {}, large), ""]
    compared = len(systems) - 1
    lines += [
        f"{left_to_chance([system.runs for system in systems.values()])}.",
        f"Holm: p after Holm's correction for the {compared} comparisons of a table with the same"
        " system.",
    ]
    if times:
        lines.append("Update, beam 5: time beside the baseline's, by benchmark_variants.py.")
    for name, system in systems.items():
        changes = differing_settings(systems[against].first, system.first)
        if changes := {key: value for key, value in changes.items() if key != "train.arch"}:
            lines.append(f"{name}, beside {against}: {listed(changes)}")
    return "\n".join(lines).split("\n")


def one_table(
    systems: dict[str, System],
    found: Comparisons,
    test_set: str,
    times: dict[str, dict[str, float]],
    large: bool,
) -> str:
    """A row for each system: those that all are compared with, then by their mean scores."""
    scores: dict[str, list[float]] = {}
    for against, others in found.items():
        for name, compared in others.items():
            row = compared[test_set].row
            scores.setdefault(against, list(row.first.values()))
            scores.setdefault(name, list(row.second.values()))
    row = next(iter(next(iter(found.values())).values()))[test_set].row
    lower, digits = row.lower_is_better, row.digits
    others = [name for name in scores if name not in found]
    others.sort(key=lambda name: mean(scores[name]), reverse=not lower)
    header = ["model", *(["parameters"] if large else []), "seeds", "score"]
    for against in found:
        header += [f"from {against}", "p", "Holm"]
    header += ["update", "beam 5"] if times else []
    rows = []
    for name in (*found, *others):
        system = systems[name]
        parameters = f"{system.parameters:,}" if system.parameters else ""
        seeds = ", ".join(run.removeprefix("seed") for run in system.runs)
        cells = [
            name,
            *([parameters] if large else []),
            seeds,
            mean_and_deviation(scores[name], digits),
        ]
        for compared in found.values():
            cells += difference(compared[name][test_set]) if name in compared else ["", "", ""]
        if times:
            measured = times.get(name, {})
            cells += [
                f"{measured[kind]:.2f}" if kind in measured else ""
                for kind in ("training", "decoding")
            ]
        rows.append(cells)
    return table(header, rows)


def difference(compared: Compared) -> list[str]:
    """Its cells: difference and interval, p, Holm's p."""
    row = compared.row
    low, high = (f"{end:+.{row.digits}f}" for end in row.difference.interval)
    observed = f"{row.difference.observed:+.{row.digits}f}"
    return [f"{observed} ({low} to {high})", p_text(row.difference.p), p_text(compared.holm)]


def as_json(found: Comparisons) -> dict[str, dict[str, list[dict]]]:
    """The comparisons with each system, by name."""
    return {
        against: {
            name: [asdict(each.row) | {"holm": each.holm} for each in compared.values()]
            for name, compared in others.items()
        }
        for against, others in found.items()
    }


if __name__ == "__main__":
    sys.exit(main())
