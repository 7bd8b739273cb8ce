#!/usr/bin/env python3
"""Keep finished runs small, so that they can be compared where their models are gone.

    python scripts/keep_runs.py work/runs/multi30k.de-en/*.epochs_22 \
        --into examples/translation/multi30k.de-en/translations

Of each run its translations of the test sets and results.json are kept, some 50 KB: no model, and
neither sources nor references, of which there are checksums alone. compare.py and compare_many.py
take what is kept as they take runs, with the references of the corpus prepared anew (--work-dir).
Runs that are not finished are left out, and what is kept already stays as it is.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ea_fairseq.commands.program import described, run_program
from ea_fairseq.files import check_folder_of
from ea_fairseq.recipes.results.kept import keep
from ea_fairseq.recipes.runs.folders import seed_folders


def main(argv: list[str] | None = None) -> int:
    """Keep all that are finished; the exit code is 0 unless one could not be kept."""
    return run_program(make_parser(), argv, keep_all)


def keep_all(args: argparse.Namespace) -> int:
    """Keep what the arguments name; 1 where a run could not be kept, the others are."""
    check_folder_of(args.into, "--into")
    if missing := [path for path in args.runs if not path.is_dir()]:
        raise ValueError(f"{missing[0]}: no such folder")
    failed = False
    for run in (run for path in args.runs for run in seed_folders(path)):
        if not (run / "results.json").exists():
            print(f"left out, not finished: {run}")
            continue
        try:
            folder, new = keep(run, args.into)
        except (ValueError, OSError) as error:
            print(f"keep_runs.py: error: {error}", file=sys.stderr)
            failed = True
            continue
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{'kept' if new else 'kept before'}: {folder} ({size / 1000:,.0f} KB)")
    return int(failed)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = described(__doc__, "keep_runs.py")
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="folder of a run, or of a recipe's runs"
    )
    parser.add_argument("--into", type=Path, required=True, help="the folder of what is kept")
    return parser


if __name__ == "__main__":
    sys.exit(main())
