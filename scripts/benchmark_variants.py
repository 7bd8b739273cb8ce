#!/usr/bin/env python3
"""What each variant costs beside fairseq's Transformer: parameters, FLOPs, training, decoding.

    python scripts/benchmark_variants.py
    python scripts/benchmark_variants.py --size base --rounds 3 --markdown table.md

One row for each architecture of a size, which variants bring themselves. Times are ratios to the
baseline's (below 1: the variant is faster), measured as benchmark.py does: `training` on batches
of 14, 24 and 48 tokens, `decoding` with beam 5 over 64 sentences, 25 steps. Close other programs
first.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmark import suite_decode, suite_train

from ea_fairseq.files import write_lines
from ea_fairseq.recipes.results.tables import table


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    args = make_parser().parse_args(argv)
    import torch
    from benchmarks.models import BASELINES, Setting

    from ea_fairseq.attention.variants import architectures

    torch.set_num_threads(args.threads)
    setting, baseline = Setting(threads=args.threads), BASELINES[args.size]
    names = [name for name, (_, arch) in architectures().items() if arch.size == args.size]
    rows = [row(baseline)]
    for name in names:
        times = [
            suite((baseline, name), setting, args.rounds)[0]["ratio"]
            for suite in (suite_train, suite_decode)
        ]
        rows.append(row(name, *times))
        print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    text = table(["--arch", "parameters", "FLOPs", "training", "decoding"], rows)
    print(text)
    if args.markdown:
        write_lines(args.markdown, text.split("\n"))
    return 0


def row(arch: str, *times: float) -> list[str]:
    """Cells of an architecture; the baseline's times are 1."""
    from ea_fairseq.models.cost import cost

    counted = cost(arch)
    ratios = [f"{ratio:.2f}" for ratio in times or (1.0, 1.0)]
    return [arch, f"{counted['parameters']:,}", f"{counted['flops'] / 1e6:,.1f}M", *ratios]


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=("lite", "base"), default="lite")
    parser.add_argument("--rounds", type=_positive, default=3, help="of A B B A (default: 3)")
    parser.add_argument("--threads", type=_positive, default=2, help="of torch (default: 2)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there too")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
