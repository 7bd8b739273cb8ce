#!/usr/bin/env python3
"""What each variant costs beside fairseq's Transformer: parameters, FLOPs, training, decoding.

    python scripts/benchmark_variants.py
    python scripts/benchmark_variants.py --size base --rounds 3 --markdown table.md
    python scripts/benchmark_variants.py --systems work/runs/multi30k.de-en --json times.json

One row for each architecture of a size, which variants bring themselves, or for the models of runs
(for compare_many.py --times). Times are ratios to the
baseline's (below 1: the variant is faster), measured as benchmark.py does: `training` on batches
of 14, 24 and 48 tokens, `decoding` with beam 5 over 64 sentences, 25 steps. Close other programs
first.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmark import suite_decode, suite_train

from ea_fairseq.files import check_outputs, read_json, write_json, write_lines
from ea_fairseq.recipes.results.kept import finished_runs
from ea_fairseq.recipes.results.several import system_folders
from ea_fairseq.recipes.results.tables import table


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    args = make_parser().parse_args(argv)
    import torch
    from benchmarks.models import BASELINES, Setting

    import ea_fairseq.plugin  # noqa: F401  (registers the architectures)

    torch.set_num_threads(args.threads)
    setting, baseline = Setting(threads=args.threads), BASELINES[args.size]
    try:
        check_outputs({"--markdown": args.markdown, "--json": args.json})
        models = models_of(args.systems) if args.systems else every_model(args.size)
    except (ValueError, OSError) as error:
        print(f"benchmark_variants.py: error: {error}", file=sys.stderr)
        return 1
    rows, measured = [row(baseline, baseline, {})], {}
    for name, model in models.items():
        times = {
            kind: suite((baseline, model), setting, args.rounds)[0]["ratio"]
            for kind, suite in (("training", suite_train), ("decoding", suite_decode))
        }
        measured[name] = times
        rows.append(row(name, model, times))
        print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    text = table(["--arch", "parameters", "FLOPs", "training", "decoding"], rows)
    print(text)
    if args.markdown:
        write_lines(args.markdown, text.split("\n"))
    if args.json:
        write_json(args.json, measured)
    return 0


def every_model(size: str) -> dict[str, str]:
    """The architectures of a size, by their own names."""
    from ea_fairseq.attention.variants import architectures

    return {name: name for name, (_, arch) in architectures().items() if arch.size == size}


def models_of(systems: list[Path]) -> dict[str, str]:
    """The models of runs, by the names of their folders: architecture and options."""
    from ea_fairseq.models.cost import parse

    found = {}
    for folder in (folder for path in systems for folder in system_folders(path)):
        train = read_json(finished_runs(folder)[0] / "results.json")["settings"]["train"]
        words = [train["arch"]]
        for name, value in train.items():
            if value not in (False, None) and not parse(train["arch"], {name: value})[1]:
                words.append(name if value is True else f"{name}={value}")
        found[folder.name] = " ".join(words)
    return found


def row(name: str, model: str, times: dict[str, float]) -> list[str]:
    """Cells of a model, an architecture and its options; the baseline's times are 1."""
    from benchmarks.models import options_of

    from ea_fairseq.models.cost import cost

    counted = cost(*options_of(model))
    ratios = [f"{ratio:.2f}" for ratio in times.values() or (1.0, 1.0)]
    return [name, f"{counted['parameters']:,}", f"{counted['flops'] / 1e6:,.1f}M", *ratios]


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=("lite", "base"), default="lite")
    parser.add_argument("--rounds", type=_positive, default=3, help="of A B B A (default: 3)")
    parser.add_argument("--threads", type=_positive, default=2, help="of torch (default: 2)")
    parser.add_argument(
        "--systems", type=Path, nargs="+", metavar="FOLDER", help="the models of these runs"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the ratios there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there too")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
