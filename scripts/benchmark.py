#!/usr/bin/env python3
"""Speed and memory of an EA model beside its baseline, in training and in decoding.

    python scripts/benchmark.py
    python scripts/benchmark.py train decode --arch ea_transformer_base --rounds 3
    python scripts/benchmark.py train --profile
    python scripts/benchmark.py --device cuda --dtype bfloat16
    python scripts/benchmark.py --traffic
    python scripts/benchmark.py --inductor
    python scripts/benchmark.py --suite translate EA_MODEL PLAIN_MODEL --input test.de

Both models work alternately in one process (A B B A), after a warm-up; times are medians. Suites:

    train    updates on batches of 14, 24 and 48 tokens, 3,000 tokens each (dropout 0.2, Adam)
    length   an update on 4,096 tokens in sentences of 32, 128 and 512
    memory   peak memory of such an update, each in a process of its own
    decode   beam search over 64 sentences of 25 tokens, 25 steps
    growth   the same with 25 and with 200 steps: time per step
    lm       the language model beside the plain one: an update on 4,096 tokens in blocks of 512 and
             1,024, its peak memory, and 20 steps of 5 hypotheses after 1,000 tokens

--traffic measures nothing: it counts what attentions on a GPU launch, move and compute, with torch
alone, our kernels and the baseline's fused attention, and what time these allow.

--inductor takes the time of one attention forward and backward on 4,096 tokens three ways in turn:
torch's operators, what torch.compile makes of them, and our kernels.

--suite translate is scripts/benchmark_translation.py: trained models, whole searches, beside
fairseq's and CTranslate2.

Tokens are random, sentences of a batch up to an eighth shorter than its longest. Close other
programs first: on a busy machine the figures say nothing.
"""

from __future__ import annotations

import argparse
import platform
import sys
from functools import partial
from pathlib import Path
from typing import Any

from ea_fairseq.files import write_json

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

LENGTHS = (32, 128, 512)
BLOCKS, WRITTEN = (512, 1024), 1000  # of language models


def suite_train(archs: tuple[str, str], setting: Any, rounds: int) -> list[dict[str, Any]]:
    from benchmarks.models import Training, batch
    from benchmarks.timing import alternate

    samples = [batch(length, 3000, setting) for length in (14, 24, 48)]
    baseline, other = (Training(arch, setting) for arch in archs)

    def mix(training):
        for sample in samples:
            training.step(sample)

    times = alternate(partial(mix, baseline), partial(mix, other), rounds, setting.device)
    words = sum(sample["ntokens"] for sample in samples)
    return [
        _row("training, 14, 24 and 48 tokens", times)
        | {"words_per_second": [words / seconds for seconds in times.medians()]}
    ]


def suite_length(archs: tuple[str, str], setting: Any, rounds: int) -> list[dict[str, Any]]:
    from benchmarks.models import Training, batch
    from benchmarks.timing import alternate

    baseline, other = (Training(arch, setting) for arch in archs)
    rows = []
    for length in LENGTHS:
        sample = batch(length, 4096, setting)
        steps = partial(baseline.step, sample), partial(other.step, sample)
        times = alternate(*steps, rounds, setting.device)
        rows.append(_row(f"training step, length {length}", times))
    return rows


def suite_memory(archs: tuple[str, str], setting: Any, rounds: int) -> list[dict[str, Any]]:
    from benchmarks.memory import peak_memory

    rows = []
    for length in LENGTHS:
        baseline, other = (peak_memory(arch, length, 4096, setting) for arch in archs)
        rows.append(_memory_row(f"peak memory of a step, length {length}", baseline, other))
    return rows


def _memory_row(what: str, baseline: float, other: float) -> dict[str, Any]:
    return {
        "what": what,
        "unit": "MiB",
        "baseline": baseline / 2**20,
        "other": other / 2**20,
        "ratio": other / baseline,
    }


def suite_decode(archs: tuple[str, str], setting: Any, rounds: int) -> list[dict[str, Any]]:
    return [_row("beam 5, 64 sentences, 25 steps", _decoding(archs, setting, rounds, 25))]


def suite_growth(archs: tuple[str, str], setting: Any, rounds: int) -> list[dict[str, Any]]:
    short, long = (_decoding(archs, setting, rounds, steps) for steps in (25, 200))
    growth = [b / 200 / (a / 25) for a, b in zip(short.medians(), long.medians(), strict=True)]
    return [
        _row("beam 5, 64 sentences, 200 steps", long),
        {
            "what": "time per step, 200 steps over 25",
            "unit": "x",
            "baseline": growth[0],
            "other": growth[1],
            "ratio": growth[1] / growth[0],
        },
    ]


def _decoding(archs: tuple[str, str], setting: Any, rounds: int, steps: int) -> Any:
    from benchmarks.models import Decoding, batch
    from benchmarks.timing import alternate

    sample = batch(25, 64 * 25, setting)
    searches = (partial(Decoding(arch, setting).search, sample, steps) for arch in archs)
    return alternate(*searches, rounds, setting.device)


def suite_lm(archs: tuple[str, str], setting: Any, rounds: int) -> list[dict[str, Any]]:
    from benchmarks.language_models import BASELINE, Generation, block, language_model_of
    from benchmarks.memory import peak_memory
    from benchmarks.models import Training
    from benchmarks.timing import alternate, alternate_seconds

    names, rows = (BASELINE, language_model_of(archs[1])), []
    baseline, other = (Training(name, setting) for name in names)
    for length in BLOCKS:
        sample = block(length, 4096, setting)
        steps = partial(baseline.step, sample), partial(other.step, sample)
        times = alternate(*steps, rounds, setting.device)
        rows.append(_row(f"language model, training step, blocks of {length}", times))
    for length in BLOCKS:
        what = f"language model, peak memory of a step, blocks of {length}"
        peaks = (peak_memory(name, length, 4096, setting, block) for name in names)
        rows.append(_memory_row(what, *peaks))
    writers = (Generation(name, setting, WRITTEN).seconds_of_steps for name in names)
    times = alternate_seconds(*writers, rounds)
    rows.append(_row(f"language model, 20 steps after {WRITTEN:,} tokens", times))
    return rows


SUITES = {
    "train": suite_train,
    "length": suite_length,
    "memory": suite_memory,
    "decode": suite_decode,
    "growth": suite_growth,
    "lm": suite_lm,
}


def profile(archs: tuple[str, str], setting: Any, suites: list[str], lines: int) -> None:
    """Prints where the time of each model goes, by torch's operators, in one piece of work."""
    import torch
    from benchmarks.models import Decoding, Training, batch

    for arch in archs:
        training, decoding = Training(arch, setting), Decoding(arch, setting)
        work = {
            "train": partial(training.step, batch(24, 3000, setting)),
            "length": partial(training.step, batch(LENGTHS[-1], 4096, setting)),
            "decode": partial(decoding.search, batch(25, 64 * 25, setting), 25),
        }
        for name in suites:
            if name not in work:
                continue
            run = work[name]
            run()
            with torch.profiler.profile() as profiler:
                run()
            key = "self_cpu_time_total" if setting.device == "cpu" else "self_cuda_time_total"
            print(f"\n{arch}, {name}")
            print(profiler.key_averages().table(sort_by=key, row_limit=lines))


def traffic(arch: str, setting: Any, bandwidth: float | None, launch: float) -> None:
    """Prints what attentions cost a GPU, by count.

    Raises:
        ValueError: without Triton, whose launches are counted, or for other architectures
    """
    import importlib.util
    from dataclasses import replace

    from benchmarks.traffic import CHIPS
    from benchmarks.traffic_tables import print_tables

    if importlib.util.find_spec("triton") is None:
        raise ValueError("--traffic: needs Triton (pip install -r requirements-test.txt)")
    chips = {name: replace(chip, launch=launch / 1e6) for name, chip in CHIPS.items()}
    if bandwidth is not None:
        chips = {f"{bandwidth:g} TB/s": replace(chips["H100"], bandwidth=bandwidth * 1e12)}
    print_tables(arch, setting, chips)


def inductor(arch: str, setting: Any, rounds: int) -> list[dict[str, Any]]:
    """Prints what torch.compile makes of an attention, beside torch alone and our kernels.

    Raises:
        ValueError: for other architectures than evolving attention's
    """
    from benchmarks.compiled import compare, print_table

    return print_table(compare(arch, LENGTHS, 4096, rounds, setting))


def _row(what: str, times: Any) -> dict[str, Any]:
    baseline, other = times.medians()
    return {
        "what": what,
        "unit": "ms",
        "baseline": baseline * 1e3,
        "other": other * 1e3,
        "ratio": times.ratio(),
        "spread": times.spread(),
    }


def environment(setting: Any) -> dict[str, Any]:
    """What the figures depend on."""
    import torch

    from ea_fairseq.kernels.library import load_library

    processor = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
    if setting.device == "cuda":
        processor = torch.cuda.get_device_name()
    return {
        "processor": processor,
        "threads": setting.threads,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "compiled_maps": load_library() is not None,
        "vocabulary": setting.vocabulary,
    }


def write_report(
    path: Path | None, archs: tuple[str, str], setting: Any, rows: list[dict[str, Any]]
) -> None:
    """Figures and what they depend on, where a file is wanted."""
    if path is not None:
        write_json(path, {"archs": archs, "environment": environment(setting), "rows": rows})


def print_table(rows: list[dict[str, Any]], archs: tuple[str, str]) -> None:
    """Markdown."""
    print(f"| what | {archs[0]} | {archs[1]} | ratio | rounds from .. to |")
    print("|---|---|---|---|---|")
    for row in rows:
        spread = "{:.2f} .. {:.2f}".format(*row["spread"]) if "spread" in row else ""
        digits = 2 if row["unit"] == "x" else 0
        figures = [f"{row[side]:,.{digits}f} {row['unit']}" for side in ("baseline", "other")]
        print(f"| {row['what']} | {' | '.join(figures)} | {row['ratio']:.2f} | {spread} |")


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:2] == ["--suite", "translate"]:
        import benchmark_translation

        return benchmark_translation.main(argv[2:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"{', '.join(SUITES)} (default: all)"
    )
    parser.add_argument(
        "--suite", action="append", default=[], metavar="SUITE", dest="more", help="the same"
    )
    parser.add_argument("--arch", default="ea_transformer_lite", help="(default: %(default)s)")
    parser.add_argument("--baseline", help="architecture to compare with (default: of its size)")
    parser.add_argument("--rounds", type=int, default=5, help="of A B B A (default: 5)")
    parser.add_argument("--threads", type=int, default=2, help="of torch (default: 2)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        default="float32",
        help="of automatic mixed precision (default: float32, none)",
    )
    parser.add_argument("--vocabulary", type=int, default=6000, help="(default: 6000)")
    parser.add_argument("--profile", action="store_true", help="print where the time goes instead")
    parser.add_argument("--lines", type=int, default=20, help="of the profile (default: 20)")
    parser.add_argument(
        "--traffic", action="store_true", help="predict what attentions cost a GPU instead"
    )
    parser.add_argument(
        "--inductor", action="store_true", help="compare with torch.compile instead"
    )
    parser.add_argument(
        "--bandwidth", type=float, metavar="TB/S", help="of the GPU (default: three GPUs')"
    )
    parser.add_argument(
        "--launch", type=float, default=5.0, metavar="US", help="of a launch (default: 5)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    args = parser.parse_args(argv)
    args.suites += args.more

    from benchmarks.models import Setting, baseline_of

    for suite in args.suites:
        if suite not in SUITES:
            parser.error(f"{suite}: no such suite; choices: {', '.join(SUITES)}")
    if args.traffic and args.dtype != "float32":
        parser.error(f"--dtype {args.dtype}: the tables of --traffic have every type; leave it out")
    if args.json and (args.traffic or args.profile):
        parser.error(f"--json {args.json}: --traffic and --profile print alone; leave it out")
    if args.suites and (args.traffic or args.inductor):
        parser.error(f"{args.suites[0]}: --traffic and --inductor have no suites; leave it out")
    for name in ("bandwidth", "launch"):
        given = getattr(args, name)
        if given is not None and not 0 < given < 1e6:
            parser.error(f"--{name} {given} must be more than 0")
    for name in ("rounds", "threads", "lines", "vocabulary"):
        if getattr(args, name) < (10 if name == "vocabulary" else 1):
            parser.error(f"--{name} {getattr(args, name)} is too small")
    try:
        archs = (args.baseline or baseline_of(args.arch), args.arch)
    except ValueError as error:
        parser.error(str(error))

    import torch

    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no GPU")
    torch.set_num_threads(args.threads)
    setting = Setting(args.vocabulary, args.device, args.threads, dtype=args.dtype)
    suites = args.suites or list(SUITES)
    rows, failed = [], []
    try:
        if args.traffic:
            traffic(args.arch, setting, args.bandwidth, args.launch)
            return 0
        if args.inductor:
            rows = inductor(args.arch, setting, args.rounds)
            write_report(args.json, archs, setting, rows)
            return 0
        if args.profile:
            profile(archs, setting, suites, args.lines)
            return 0
        for suite in suites:
            try:
                for row in SUITES[suite](archs, setting, args.rounds):
                    print(f"{row['what']}: {row['ratio']:.3f}", file=sys.stderr)
                    rows.append(row)
            except torch.OutOfMemoryError as error:  # the next suite may need less
                failed.append(suite)
                print(f"error: {suite}: {str(error).splitlines()[0]}", file=sys.stderr)
            # After each suite: a later one may not come to its end.
            write_report(args.json, archs, setting, rows)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print_table(rows, archs)
    for row in rows:
        if "words_per_second" in row:
            print("\ntarget words per second: {:,.0f}, {:,.0f}".format(*row["words_per_second"]))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
