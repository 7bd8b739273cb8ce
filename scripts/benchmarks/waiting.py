"""How long torch's threads should spin while they wait: an update and a search of the plain model
and of EA, for several values of GOMP_SPINCOUNT in turn.

    python scripts/benchmarks/waiting.py
    python scripts/benchmarks/waiting.py --busy 2 --values 3000 10000 30000 100000

libgomp reads the variable when it is loaded: each value has a process of its own, which waits
while another one works (A B C C B A), so that a machine that grows slower is so for all. 300000 is
libgomp's default.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[parent]) for parent in (1, 2)]

VARIABLE = "GOMP_SPINCOUNT"
DEFAULT = 300000
ARCHS = "transformer_lite", "ea_transformer_lite"
WORK = "update, 48 tokens", "beam 5, 25 steps"
STEPS = 25


def main(argv: list[str] | None = None) -> int:
    """Prints a table of medians, each beside that of the largest value."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, nargs="+", default=[10000, 30000, 100000, DEFAULT])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--busy", type=int, default=0, help="processes that use a core each beside")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.work:
        return work(args.threads)
    from benchmarks.busy import busy

    values = sorted(args.values)
    workers = {value: Worker(value, args.threads) for value in values}
    times: dict[tuple[str, int], list[float]] = {}
    try:
        with busy(args.busy):
            for turn in range(args.rounds):
                for key in [f"{arch} {index}" for arch in ARCHS for index in range(len(WORK))]:
                    for value in values + values[::-1]:
                        times.setdefault((key, value), []).append(workers[value].seconds(key))
                print(f"round {turn + 1} of {args.rounds}", file=sys.stderr, flush=True)
    finally:
        for worker in workers.values():
            worker.process.kill()
    print(f"\nmilliseconds, {args.threads} threads, {args.busy} busy processes beside\n")
    print(f"| {VARIABLE} | {' | '.join(map(str, values))} |")
    print("|---|" + "---|" * len(values))
    for arch in ARCHS:
        for index, what in enumerate(WORK):
            found = [statistics.median(times[f"{arch} {index}", value]) for value in values]
            cells = [f"{1000 * one:,.0f} ({one / found[-1]:.2f})" for one in found]
            print(f"| {what}, {arch} | {' | '.join(cells)} |")
    return 0


class Worker:
    """A process that works with one value when it is asked to."""

    def __init__(self, value: int, threads: int):
        command = [sys.executable, __file__, "--work", "--threads", str(threads)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = os.environ | {VARIABLE: str(value)}
        self.process = subprocess.Popen(command, env=environment, **pipes)
        for arch in ARCHS:  # warm
            for index in range(len(WORK)):
                self.seconds(f"{arch} {index}")

    def seconds(self, key: str) -> float:
        """Time of one piece of work: an architecture and an index of WORK."""
        self.process.stdin.write(f"{key}\n")
        self.process.stdin.flush()
        while line := self.process.stdout.readline():
            if line.startswith("seconds "):
                return float(line.split()[1])
        raise SystemExit("waiting.py: error: a worker ended; its message stands above")


def work(threads: int) -> int:
    """Does what standard input asks for, until it ends."""
    import torch

    from benchmarks.models import Decoding, Setting, Training, batch
    from benchmarks.timing import timed

    torch.set_num_threads(threads)
    setting = Setting(threads=threads)
    training = {arch: Training(arch, setting) for arch in ARCHS}
    decoding = {arch: Decoding(arch, setting) for arch in ARCHS}
    long, short = batch(48, 3000, setting), batch(25, 64 * 25, setting)
    for line in sys.stdin:
        arch, index = line.split()
        pieces = (
            lambda arch=arch: training[arch].step(long),
            lambda arch=arch: decoding[arch].search(short, STEPS),
        )
        print("seconds", timed(pieces[int(index)], "cpu"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
