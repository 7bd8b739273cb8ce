#!/usr/bin/env python3
"""Compare two systems: differences of their scores, with p-values by paired bootstrap.

    python scripts/compare.py work/runs/multi30k.de-en/transformer_lite \
        work/runs/multi30k.de-en/ea_transformer_lite
    python scripts/compare.py baseline.txt new.txt --references test.en

A system is a folder made by run_recipe.py (of one seed, or of a recipe with all its seeds) or a
file of detokenized translations. With several seeds: mean and standard deviation of each system,
and one p-value for each pair of runs, first with first, second with second. The p-value is
sacrebleu's: how often a difference as large appears by chance in the choice of test sentences.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

from sacrebleu.significance import PairedTest

from ea_fairseq.files import read_lines, write_json
from ea_fairseq.recipes.scoring import (
    Measure,
    check_lengths,
    measures,
    read_scored,
    text_measures,
)
from ea_fairseq.recipes.tables import mean_and_deviation, table

#: Test set -> measures of it, for one run.
TestSets = dict[str, list[Measure]]


def main(argv: list[str] | None = None) -> int:
    """Compare; the exit code is 0 whatever the outcome, unless the systems do not compare."""
    args = make_parser().parse_args(argv)
    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    try:
        first, second = (read_system(path, args) for path in (args.first, args.second))
        rows = compare(first, second, args.samples)
        if args.json:
            write_json(args.json, {"A": str(args.first), "B": str(args.second), "rows": rows})
    except (ValueError, OSError) as error:
        print(f"compare.py: error: {error}", file=sys.stderr)
        return 1
    print(f"A: {args.first} ({runs_of(first)})\nB: {args.second} ({runs_of(second)})\n")
    print(table(["test set", "score", "A", "B", "B - A", "p"], [as_text(row) for row in rows]))
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("first", type=Path, metavar="A", help="run folder or translations")
    parser.add_argument("second", type=Path, metavar="B", help="run folder or translations")
    parser.add_argument("--references", type=Path, help="references, where A or B is a file")
    parser.add_argument("--lowercase", action="store_true", help="ignore case, for files")
    parser.add_argument(
        "--samples", type=int, default=1000, help="bootstrap samples (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, help="write the comparison here as well")
    return parser


def read_system(path: Path, args: argparse.Namespace) -> list[TestSets]:
    """All runs of a system, by seed; a file of translations is one run on one test set."""
    if path.is_file():
        if args.references is None:
            raise ValueError(f"{path}: translations in a file need their --references")
        text, references = read_lines(path), read_lines(args.references)
        check_lengths({path: text, args.references: references})
        return [{args.references.name: text_measures(text, references, args.lowercase)}]
    folders = sorted(path.glob("seed*"), key=lambda seed: (len(seed.name), seed.name)) or [path]
    runs = []
    for folder in folders:
        scored = sorted((folder / "scores").glob("*.json"))
        if (folder / "steps").exists() and not (folder / "results.json").exists():
            raise ValueError(f"{folder}: this run is not finished: give its command again")
        if not scored:
            raise ValueError(f"{folder}: neither a file nor a run with scores in it")
        runs.append({score.stem: measures(read_scored(score)) for score in scored})
    return runs


def runs_of(system: list[TestSets]) -> str:
    """How many runs the numbers of a system are the mean of."""
    return "1 run" if len(system) == 1 else f"{len(system)} runs"


def compare(first: list[TestSets], second: list[TestSets], samples: int) -> list[dict[str, Any]]:
    """A row for each test set and score that both systems have.

    Raises:
        ValueError: no test set in common, or one with other references.
    """
    shared = [name for name in first[0] if all(name in run for run in first + second)]
    if not shared:
        raise ValueError(f"no test set in common: {', '.join(first[0])}; {', '.join(second[0])}")
    rows = []
    for test_set in shared:
        labels = [measure.label for measure in second[0][test_set]]
        for measure in first[0][test_set]:
            if measure.label not in labels:
                continue
            ours = [pick(run[test_set], measure.label) for run in first]
            theirs = [pick(run[test_set], measure.label) for run in second]
            if any(other.references != measure.references for other in ours + theirs):
                raise ValueError(f"{test_set}: the references of A and B differ")
            pairs = zip(ours, theirs, strict=False)  # as many pairs as both have runs for
            rows.append(
                {
                    "test set": test_set,
                    "score": measure.label,
                    "A": [one.score().score for one in ours],
                    "B": [one.score().score for one in theirs],
                    "p": [p_value(one, other, samples) for one, other in pairs],
                }
            )
    return rows


def pick(found: list[Measure], label: str) -> Measure:
    """The measure with that label."""
    return next(measure for measure in found if measure.label == label)


def p_value(first: Measure, second: Measure, samples: int) -> float:
    """sacrebleu's paired bootstrap, with its own fixed seed (SACREBLEU_SEED changes it)."""
    if first.hypotheses == second.hypotheses:
        return 1.0  # sacrebleu counts samples that differ by more, of which there are none
    test = PairedTest(
        named_systems=[("A", first.hypotheses), ("B", second.hypotheses)],
        metrics={first.label: first.metric},
        references=[first.references],
        test_type="bs",
        n_samples=samples,
    )
    _, results = test()
    name = next(key for key in results if key != "System")
    return float(results[name][1].p_value)


def as_text(row: dict[str, Any]) -> list[str]:
    """A row of the printed table."""
    difference = sum(row["B"]) / len(row["B"]) - sum(row["A"]) / len(row["A"])
    return [
        row["test set"],
        row["score"],
        mean_and_deviation(row["A"]),
        mean_and_deviation(row["B"]),
        f"{difference:+.2f}",
        ", ".join(f"{p:.3f}" for p in row["p"]),
    ]


if __name__ == "__main__":
    sys.exit(main())
