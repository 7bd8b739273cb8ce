#!/usr/bin/env python3
"""The paper's table of ablations on a corpus: run what is missing, print what is there.

python scripts/ablation.py multi30k.de-en --print
python scripts/ablation.py multi30k.de-en --seeds 1 2 3

Three tables: the scores; each row's difference from EA-Transformer-Lite with its 95 % interval; and
the paper's orderings: which of two rows is better where its three corpora agree, and what comes
out here on all test sets together. Intervals and p are those of compare.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ea_fairseq.commands import recipe as command
from ea_fairseq.commands.program import end_in_order
from ea_fairseq.files import check_outputs, read_json, write_json, write_lines
from ea_fairseq.recipes.results.comparison import ALL_TOGETHER, compare_by, left_to_chance
from ea_fairseq.recipes.results.differences import differences, listed
from ea_fairseq.recipes.results.independence import warning_of_copies
from ea_fairseq.recipes.results.several import NotCompared, check_same_text
from ea_fairseq.recipes.results.systems import OtherSettings, Runs, read_runs
from ea_fairseq.recipes.results.tables import mean_and_deviation, p_text, table
from ea_fairseq.recipes.runs.folders import run_name, seed_folders
from ea_fairseq.recipes.says.arguments import add_arguments
from ea_fairseq.recipes.says.recipe import load_recipe, recipe_path

#: Recipe -> its row's name, in the order of table 6 of arXiv:2102.12895.
ROWS = {
    "transformer_lite": "Transformer-Lite",
    "ea_transformer_lite": "EA-Transformer-Lite",
    "without_encoder_convolution": "- without encoder convolution",
    "without_decoder_convolution": "- without decoder convolution",
    "without_encoder_decoder_convolution": "- without encoder-decoder convolution",
    "without_skip": "- without skip connection",
    "kernel_1": "- with 1x1 convolution",
    "kernel_5": "- with 5x5 convolution",
}

#: The row that the others are compared with.
EVOLVING = "EA-Transformer-Lite"

#: Row -> published tokenized BLEU (table 6): IWSLT'14 De-En, WMT'14 En-De and En-Fr.
PUBLISHED = {
    "Transformer-Lite": (33.21, 21.11, 33.22),
    "EA-Transformer-Lite": (33.80, 21.63, 34.12),
    "- without encoder convolution": (32.84, 21.07, 33.51),
    "- without decoder convolution": (33.56, 21.45, 33.72),
    "- without encoder-decoder convolution": (33.59, 21.41, 33.73),
    "- without skip connection": (33.70, 21.43, 34.06),
    "- with 1x1 convolution": (33.15, 21.20, 33.52),
    "- with 5x5 convolution": (33.54, 21.40, 34.08),
}

#: The better and the worse row, of which the paper says so on all of its corpora.
ORDERINGS = [
    (better, worse)
    for better, scores in PUBLISHED.items()
    for worse, others in PUBLISHED.items()
    if all(score > other for score, other in zip(scores, others, strict=True))
]


def main(argv: list[str] | None = None) -> int:
    """Run and print; the exit code is that of the first run that failed."""
    args = make_parser().parse_args(argv)
    try:
        if args.samples < 1:
            raise ValueError(f"--samples {args.samples}: choose at least 1")
        check_outputs({"--markdown": args.markdown, "--json": args.json})
        if not args.print:
            code = run_all(args)
            if code:
                return code
        rows = [read_row(recipe, args) for recipe in ROWS]
        systems = read_systems(rows)
        from_evolving = differences_from(EVOLVING, systems, args)
        orderings = read_orderings(systems, args)
    except (ValueError, OSError) as error:
        print(f"ablation.py: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("ablation.py: stopped", file=sys.stderr)
        return 130
    label = next((row["label"] for row in rows if row["label"]), args.score)
    parts = [label, as_table(rows)]
    if from_evolving:
        parts += [f"Difference from {EVOLVING} (95 % interval)", difference_table(from_evolving)]
    if orderings:
        parts += ["The paper's orderings, all test sets together", ordering_table(orderings)]
    if from_evolving or orderings:
        parts.append(left_to_chance(list(systems.values())))
    text = "\n\n".join(parts)
    print(f"\n{text}")
    if args.markdown:
        write_lines(args.markdown, text.split("\n"))
    if args.json:
        content = {"score": args.score, "rows": rows}
        write_json(args.json, content | {"differences": from_evolving, "orderings": orderings})
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, help="a corpus' folder, or its name")
    parser.add_argument("--print", action="store_true", help="print the table, run nothing")
    parser.add_argument(
        "--score",
        default="tokenized BLEU",
        help="label of the score, or its beginning (default: %(default)s, as the paper has it)",
    )
    parser.add_argument("--markdown", type=Path, help="write the table here as well")
    parser.add_argument("--json", type=Path, help="write the scores here")
    add_arguments(parser)
    parser.add_argument("--raw", type=Path, help="local folder with the corpus as downloaded")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="one run for each")
    parser.add_argument(
        "--name",
        default="{recipe}",
        help="name of the runs' folders, {recipe} being the recipe's own (default: %(default)s)",
    )
    parser.add_argument(
        "--samples", type=int, default=1000, help="bootstrap samples (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, help="threads of each command")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs side by side")
    return parser


def run_all(args: argparse.Namespace) -> int:
    """All recipes, run by ea-recipe; what is done is skipped there."""
    options = ["--work-dir", str(args.work_dir), "--seeds", *map(str, args.seeds)]
    options += ["--name", args.name, "--jobs", str(args.jobs)]
    options += ["--raw", str(args.raw)] if args.raw else []
    options += ["--threads", str(args.threads)] if args.threads else []
    options += [f"--set={override}" for override in args.set]
    return command.main([str(args.corpus), "--variant", *ROWS, *options])


def read_row(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Scores of a recipe: test set -> one score for each seed that is done."""
    recipe = load_recipe(recipe_path(args.corpus, name), args.set)
    folder = args.work_dir / "runs" / recipe.corpus_name / run_name(recipe, args.name)
    done = [run / "results.json" for run in seed_folders(folder, args.seeds)]
    results = [read_json(path) for path in done if path.exists()]
    scores: dict[str, list[float]] = {}
    label = ""
    notes = []
    for result in results:
        changes = differences(recipe.sections, result["settings"])
        if changes:
            other = f"run with other settings: {listed(changes)}"
            notes.append(f"{name}, seed {result['seed']}: {other}")
        for test_set, scored in result["scores"].items():
            found = [s for s in scored["scores"] if s["label"].startswith(args.score)]
            if not found:
                labels = ", ".join(s["label"] for s in scored["scores"])
                raise ValueError(f"--score {args.score}: not in {folder} (choose from {labels})")
            label = found[0]["label"]
            scores.setdefault(test_set, []).append(found[0]["score"])
    return {
        "recipe": name,
        "name": ROWS[name],
        "label": label,
        "parameters": results[0]["parameters"] if results else None,
        "folder": str(folder),
        "seeds": [result["seed"] for result in results],
        "scores": scores,
        "notes": notes,
    }


def read_systems(rows: list[dict[str, Any]]) -> dict[str, Runs]:
    """Name of the row -> its runs' translations, of rows that compare with the first of these.

    The others' scores are shown all the same, with a note.
    """
    systems: dict[str, Runs] = {}
    first: tuple[Path, Runs] | None = None
    for row in rows:
        if not row["seeds"]:
            continue
        folder, seeds = Path(row["folder"]), [f"seed{seed}" for seed in row["seeds"]]
        try:
            if not all((folder / seed / "scores").is_dir() for seed in seeds):
                raise NotCompared(f"no translations in {folder}")
            runs = read_runs(folder, row["seeds"])
            found = folder / seeds[0], runs
            first = first or found
            check_same_text(first, found)
        except (NotCompared, OtherSettings) as error:
            row["notes"].append(f"{row['recipe']}: no intervals: {error}")
        else:
            if copies := warning_of_copies(folder, runs):
                row["notes"].append(copies)
            systems[row["name"]] = runs
    return systems


def differences_from(
    name: str, systems: dict[str, Runs], args: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Row -> test set -> the difference from the row of that name; empty where that is missing."""
    if name not in systems:
        return {}
    found = {}
    for other, runs in systems.items():
        if other != name:
            rows = compare_by(args.score, systems[name], runs, args.samples)
            found[other] = {test_set: vars(row.difference) for test_set, row in rows.items()}
    return found


def read_orderings(systems: dict[str, Runs], args: argparse.Namespace) -> list[dict[str, Any]]:
    """What comes of the paper's orderings here, of rows that have been run."""
    found = []
    for better, worse in ORDERINGS:
        if better in systems and worse in systems:
            rows = compare_by(args.score, systems[worse], systems[better], args.samples)
            if len(rows) > 1 and ALL_TOGETHER not in rows:
                raise ValueError(f"--score {args.score}: {better} has it on some test sets only")
            row = rows.get(ALL_TOGETHER) or next(iter(rows.values()))
            holds = verdict(row.difference.interval, row.lower_is_better)
            found.append({"better": better, "worse": worse, **vars(row.difference), "holds": holds})
    return found


def difference_table(found: dict[str, dict[str, Any]]) -> str:
    """A row for each model, a column for each test set."""
    test_sets = list(dict.fromkeys(name for row in found.values() for name in row))
    lines = [
        [name, *(with_interval(row[test_set]) if test_set in row else "" for test_set in test_sets)]
        for name, row in found.items()
    ]
    return table(["model", *test_sets], lines)


def ordering_table(orderings: list[dict[str, Any]]) -> str:
    """A row for each of the paper's orderings, then how many hold."""
    verdicts = [ordering["holds"] for ordering in orderings]
    lines = [
        [o["better"], o["worse"], with_interval(o), p_text(o["p"]), o["holds"]] for o in orderings
    ]
    counts = ", ".join(f"{found}: {verdicts.count(found)}" for found in ("yes", "open", "no"))
    header = ["better in the paper", "worse", "difference here", "p", "holds here"]
    return f"{table(header, lines)}\n\nHolds here: {counts}; open: the interval holds 0."


def verdict(interval: tuple[float, float], lower_is_better: bool) -> str:
    """Whether the difference of the better from the worse row is one for the better."""
    low, high = (-end for end in reversed(interval)) if lower_is_better else interval
    return "yes" if low > 0 else "no" if high < 0 else "open"


def with_interval(difference: dict[str, Any]) -> str:
    """``+0.42 (-0.10 to +0.95)``."""
    low, high = difference["interval"]
    return f"{difference['observed']:+.2f} ({low:+.2f} to {high:+.2f})"


def as_table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown; with several seeds mean and standard deviation; then the notes."""
    test_sets = list(dict.fromkeys(name for row in rows for name in row["scores"]))
    lines = []
    for row in rows:
        cells = [
            mean_and_deviation(row["scores"][name]) if name in row["scores"] else "not run yet"
            for name in test_sets or ["test"]
        ]
        parameters = f"{row['parameters']:,}" if row["parameters"] else ""
        lines.append([row["name"], parameters, str(len(row["seeds"])), *cells])
    rendered = table(["model", "parameters", "seeds", *(test_sets or ["test"])], lines)
    return "\n\n".join([rendered, *(note for row in rows for note in row["notes"])])


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
