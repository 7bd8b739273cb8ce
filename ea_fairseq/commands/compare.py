"""``ea-compare``: two systems beside each other, with intervals."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean

from ..errors import program_name
from ..files import check_outputs, read_lines, write_json
from ..recipes.results.comparison import (
    ALL_TOGETHER,
    Row,
    compare,
    left_out,
    left_to_chance,
)
from ..recipes.results.differences import listed
from ..recipes.results.independence import warning_of_copies
from ..recipes.results.scoring import (
    check_lengths,
    check_reference_words,
    check_words,
    text_measures,
    warning_of_accents,
)
from ..recipes.results.systems import (
    Runs,
    are_language_models,
    differing_settings,
    read_runs,
    units_of,
)
from ..recipes.results.tables import mean_and_deviation, p_text, table
from ..recipes.runs.generation import check_text_alone
from .program import described, run_program

_DESCRIPTION = """Compare two systems: differences of scores, intervals and p-values by bootstrap.

    ea-compare work/runs/multi30k.de-en/transformer_lite \\
        work/runs/multi30k.de-en/ea_transformer_lite
    ea-compare baseline.txt new.txt --references test.en
    ea-compare work/runs/multi30k.de-en/transformer_lite new.txt

    ea-compare work/runs/cldr.en/transformer_lm_lite \\
        work/runs/cldr.en/ea_transformer_lm_lite

A system is a folder made by ea-recipe (of one seed, or of a recipe with all its seeds), one that
keep_runs.py kept of it, or a file of translations as text; beside a run it is compared on that test
set of the run which has its --references, or as many sentences. Each test set has a row, then all
of them together. The interval and p leave the choice of sentences and, with several runs, that of
the seeds to chance. p by seed is sacrebleu's paired bootstrap of runs with the same seed: sentences
alone, and often about half as large as a two-sided p-value. Language models are compared by the
blocks in which their text was scored, in the place of sentences. What the settings of two folders
differ in is printed above the table ("A -> B"): a difference of scores is that of all of it."""

#: How the labels of scores of text begin, which a file has beside a run.
OF_TEXT = ("sacreBLEU", "chrF", "TER")

HEADER = ["test set", "score", "A", "B", "B - A", "95 % interval", "p", "p by seed"]


def main(argv: list[str] | None = None) -> int:
    """Compare; the exit code is 0 whatever the outcome, unless the systems do not compare."""
    return run_program(make_parser(), argv, _compare)


def _compare(args: argparse.Namespace) -> None:
    first, second = read_systems(args)
    changes = {}
    if not (args.first.is_file() or args.second.is_file()):
        changes = differing_settings(args.first, args.second, args.seeds)
    rows = compare(first, second, args.samples, args.score)
    if not rows:
        which = f"--score {args.score}: " if args.score else ""
        raise ValueError(f"{which}A and B have no score {'of that name' if which else 'in common'}")
    for path, runs in ((args.first, first), (args.second, second)):
        if copies := warning_of_copies(path, runs):
            print(f"{program_name('compare.py')}: warning: {copies}", file=sys.stderr)
    if args.json:
        systems = {"A": str(args.first), "B": str(args.second), "samples": args.samples}
        write_json(args.json, systems | {"rows": [asdict(row) for row in rows]})
    print(f"A: {args.first} ({runs_of(first)})\nB: {args.second} ({runs_of(second)})")
    if changes:
        print(f"A -> B: {listed(changes)}")
    print(f"\n{table(HEADER, [as_text(row) for row in rows])}\n")
    *test_sets, last = dict.fromkeys(row.test_set for row in rows)
    if last == ALL_TOGETHER:
        print(f"{last}: the {rows[-1].sentences:,} {units_of(first)} of {', '.join(test_sets)}")
    if missing := left_out(first, second):
        print(f"not compared, for not every run has it: {'; '.join(missing)}")
    print(left_to_chance([first, second]))


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = described(_DESCRIPTION, "compare.py")
    parser.add_argument("first", type=Path, metavar="A", help="run folder or translations")
    parser.add_argument("second", type=Path, metavar="B", help="run folder or translations")
    add_options(parser)
    parser.add_argument("--references", type=Path, help="references, where A or B is a file")
    parser.add_argument("--lowercase", action="store_true", help="ignore case, for two files")
    parser.add_argument(
        "--target-lang", help="language code of two files, for the words of text without spaces"
    )
    parser.add_argument(
        "--score", default="", help="only scores whose label begins so (default: all)"
    )
    parser.add_argument("--json", type=Path, help="write the comparison here as well")
    return parser


def add_options(parser: argparse.ArgumentParser, samples: int = 1000) -> None:
    """Options of every comparison of runs."""
    parser.add_argument("--seeds", type=int, nargs="+", help="these runs of the folders only")
    parser.add_argument(
        "--work-dir",
        type=Path,
        default=Path("work"),
        metavar="DIR",
        help="where the data of runs kept by keep_runs.py is prepared (default: %(default)s)",
    )
    parser.add_argument(
        "--samples", type=int, default=samples, help="bootstrap samples (default: %(default)s)"
    )


def read_systems(args: argparse.Namespace) -> tuple[Runs, Runs]:
    """All runs of both systems; a file of translations is one run on one test set."""
    paths = args.first, args.second
    check_options(args, [path for path in paths if path.is_file()])
    found = [
        None if path.is_file() else read_runs(path, args.seeds, args.work_dir) for path in paths
    ]
    run = found[0] or found[1]
    first, second = (
        runs or read_file(path, args, run) for path, runs in zip(paths, found, strict=True)
    )
    return first, second


def check_options(args: argparse.Namespace, files: list[Path]) -> None:
    """Refuse options that would have no effect on the systems given, of which some are files.

    Raises:
        ValueError: naming the option.
    """
    if args.references and not files:
        raise ValueError(f"--references {args.references}: for files; runs have their own")
    if args.lowercase and len(files) < 2:
        raise ValueError("--lowercase: for two files; of a run its recipe says whether case counts")
    if args.target_lang and len(files) < 2:
        raise ValueError(f"--target-lang {args.target_lang}: for two files; a run's is known")
    read = [path for path in (*files, args.references) if path]
    check_outputs({"--json": args.json}, read)
    if args.seeds and len(files) == 2:
        raise ValueError("--seeds: for runs, of which neither A nor B is one")


def read_file(path: Path, args: argparse.Namespace, beside: Runs | None) -> Runs:
    """A file of translations, on its ``--references`` or on a test set of the run ``beside`` it.

    Raises:
        ValueError: it is not known which references it belongs to, or it does not fit them.
    """
    text = read_lines(path)
    given = read_lines(args.references) if args.references else None
    files = {path: text}
    check_words(files)
    if given is not None:
        check_reference_words(args.references, given)
        files[args.references] = given
    check_text_alone(files)
    check_lengths(files)
    if apart := warning_of_accents(files):
        print(f"{program_name('compare.py')}: warning: {apart}", file=sys.stderr)
    if beside is None:
        if given is None:
            raise ValueError(f"{path}: translations in a file need their --references")
        found = text_measures(text, given, args.lowercase, args.target_lang)
        return {path.name: {args.references.name: found}}
    if are_language_models(beside):
        raise ValueError(f"{path}: a file; a language model's run is compared with another run")
    test_sets = {
        name: [measure for measure in found if measure.label.startswith(OF_TEXT)]
        for name, found in next(iter(beside.values())).items()
    }
    references = {name: measures[0].references for name, measures in test_sets.items()}
    fitting = [
        name
        for name, theirs in references.items()
        if (theirs == given if given else len(theirs) == len(text))
    ]
    if len(fitting) != 1:
        sizes = ", ".join(f"{name} ({len(theirs)})" for name, theirs in references.items())
        what = f"--references {args.references}" if given else f"{path} ({len(text)} sentences)"
        raise ValueError(
            f"{what}: fits {len(fitting) or 'none'} of the run's test sets {sizes}; name the one"
            " meant by its --references"
        )
    on_text = test_sets[fitting[0]]
    of_text = {"hypotheses": text, "recorded": None}
    return {path.name: {fitting[0]: [replace(measure, **of_text) for measure in on_text]}}


def runs_of(system: Runs) -> str:
    """How many runs the numbers of a system are the mean of."""
    return "1 run" if len(system) == 1 else f"{len(system)} runs"


def as_text(row: Row) -> list[str]:
    """A row of the printed table."""
    first, second = list(row.first.values()), list(row.second.values())
    low, high = row.difference.interval
    digits = row.digits
    of_all = list(row.first) == list(row.second) == list(row.by_seed)
    lower = " (lower is better)" if row.lower_is_better else ""
    return [
        row.test_set,
        f"{row.score}{lower}",
        mean_and_deviation(first, digits),
        mean_and_deviation(second, digits),
        f"{mean(second) - mean(first):+.{digits}f}",
        f"{low:+.{digits}f} to {high:+.{digits}f}",
        p_text(row.difference.p),
        ", ".join(f"{'' if of_all else f'{name}: '}{p_text(p)}" for name, p in row.by_seed.items())
        or "no seed in common",
    ]


if __name__ == "__main__":
    sys.exit(main())
