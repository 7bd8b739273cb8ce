#!/usr/bin/env python3
"""Same-seed losses before and after a change, or with and without the compiled attention.

    python scripts/compare_losses.py --save before.json        # then change the code
    python scripts/compare_losses.py --against before.json
    EA_FAIRSEQ_NATIVE=0 python scripts/compare_losses.py --against before.json
    python scripts/compare_losses.py --save cpu.json --no-dropout
    python scripts/compare_losses.py --against cpu.json --no-dropout --device cuda

Trains a model on generated batches with dropout, from one seed. A change for speed must leave the
losses equal to rounding: with --against, a relative difference above --tolerance ends with exit
code 1.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from ea_fairseq.errors import UserError
from ea_fairseq.files import read_json, write_json

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

LENGTHS = (7, 24, 60)


def losses(
    arch: str, updates: int, threads: int, device: str = "cpu", dropout: bool = True
) -> list[float]:
    """Losses per token of each update."""
    import torch
    from benchmarks.models import Setting, Training, batch

    torch.set_num_threads(threads)
    setting = Setting(
        vocabulary=500,
        device=device,
        threads=threads,
        dropout=0.2 if dropout else 0.0,
        options={"attention_dropout": 0.1 if dropout else 0.0},
    )
    training = Training(arch, setting)
    samples = [batch(length, 600, setting) for length in LENGTHS]
    torch.manual_seed(1)
    return [training.step(samples[update % len(samples)]) for update in range(updates)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="ea_transformer_lite", help="(default: %(default)s)")
    parser.add_argument("--updates", type=int, default=30, help="(default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default: %(default)s)")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="(default: %(default)s)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--no-dropout", action="store_true", help="which draws other numbers on another device"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--save", type=Path, metavar="FILE", help="write the losses there")
    what.add_argument("--against", type=Path, metavar="FILE", help="compare with those there")
    args = parser.parse_args(argv)
    if args.updates < 1:
        parser.error(f"--updates {args.updates}: must be at least 1")
    if args.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            parser.error("--device cuda: torch sees no GPU")
    settings = {"arch": args.arch, "updates": args.updates, "threads": args.threads}
    settings["dropout"] = not args.no_dropout
    before = None
    if args.against:
        try:
            before = read_json(args.against)
            found = before["settings"]
            if len(before["losses"]) != args.updates:
                raise ValueError(f"{len(before['losses'])} losses, not {args.updates}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"error: {args.against}: not a file of losses: {error}", file=sys.stderr)
            return 2
        if found != settings:
            print(f"error: {args.against}: made with {found}, not {settings}", file=sys.stderr)
            return 2
    try:
        now = losses(args.arch, args.updates, args.threads, args.device, not args.no_dropout)
    except ValueError as error:  # of the architecture, unless it names what it is about
        named = "" if isinstance(error, UserError) else "--arch "
        print(f"error: {named}{error}", file=sys.stderr)
        return 2
    if before is None:
        write_json(args.save, {"settings": settings, "losses": now})
        print(f"{args.updates} losses, from {now[0]:.6f} to {now[-1]:.6f}")
        return 0
    differences = [abs(a / b - 1) for a, b in zip(now, before["losses"], strict=True)]
    worst = max(math.inf if math.isnan(found) else found for found in differences)
    print(f"largest relative difference of {args.updates} losses: {worst:.2e}")
    return int(not worst <= args.tolerance)


if __name__ == "__main__":
    sys.exit(main())
