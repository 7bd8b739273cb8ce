#!/usr/bin/env python3
"""Speed and memory of an EA model, compiled and on torch alone, beside its baseline.

    python scripts/benchmark.py
    python scripts/benchmark.py train decode --arch ea_transformer_base --rounds 3
    python scripts/benchmark.py train --profile
    python scripts/benchmark.py --device cuda --dtype bfloat16
    python scripts/benchmark.py --isa avx2
    python scripts/benchmark.py train decode --busy 5
    python scripts/benchmark.py --inductor
    python scripts/benchmark.py --suite translate EA_MODEL PLAIN_MODEL --input test.de
    python scripts/benchmark.py hf

The plain model, ours compiled and ours on torch alone work alternately in one process (A B C C B
A), after a warm-up; times are medians. Where what is compiled takes longer than torch alone, by
more than times vary (three quarters of its turns longer than three of torch's), the benchmark
says so and ends with status 1. Suites:

    train    updates on batches of 14, 24 and 48 tokens, 3,000 tokens each (dropout 0.2, Adam)
    length   an update on 4,096 tokens in sentences of 32, 128 and 512
    memory   peak memory of such an update, each in a process of its own
    decode   beam search over 64 sentences of 25 tokens, 25 steps
    growth   the same with 25 and with 200 steps: time per step
    lm       the language model beside the plain one: an update on 4,096 tokens in blocks of 512 and
             1,024, its peak memory, and 20 steps of 5 hypotheses after 1,000 tokens

--inductor takes the time of one attention forward and backward on 4,096 tokens three ways in turn:
torch's operators, what torch.compile makes of them, and our kernels.

--suite translate is scripts/benchmark_translation.py: trained models, whole searches, beside
fairseq's and CTranslate2.

hf, by itself, is scripts/benchmarks/huggingface.py: BERT of transformers, plain and evolved.

--isa avx2 limits everybody to AVX2, on a processor with AVX-512: our library, torch, its math
libraries and CTranslate2 (benchmarks/isa.py).

--busy N measures twice, the second time beside N processes that are never idle, and ends with
status 1 where a model takes more than 1.5 times what its fair share of the cores would let it take.

Tokens are random, sentences of a batch up to an eighth shorter than its longest. Close other
programs first: on a busy machine the figures say nothing, unless they are the processor's time
(--cpu-time).
"""

from __future__ import annotations

import argparse
import platform
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.busy import busy, fair_share
from benchmarks.isa import CHOICES as ISA_CHOICES
from benchmarks.isa import restart_limited

from ea_fairseq.files import write_json

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

LENGTHS = (32, 128, 512)
SIDES = ("baseline", "other", "alone")
UNFAIR = 1.5  # times what a fair share of the cores would let a model take
BLOCKS, WRITTEN = (512, 1024), 1000  # of language models


def suite_train(archs: tuple[str, str], setting: Any, rounds: int) -> list[dict[str, Any]]:
    from benchmarks.models import Training, batch, three
    from benchmarks.timing import alternate

    samples = [batch(length, 3000, setting) for length in (14, 24, 48)]
    models = three(Training, archs, setting)

    def mix(training):
        for sample in samples:
            training.step(sample)

    work = (partial(mix, model) for model in models)
    times = alternate(*work, rounds=rounds, setting=setting)
    words = sum(sample["ntokens"] for sample in samples)
    return [
        _row("training, 14, 24 and 48 tokens", times)
        | {"words_per_second": [words / seconds for seconds in times.medians()]}
    ]


def suite_length(archs: tuple[str, str], setting: Any, rounds: int) -> list[dict[str, Any]]:
    from benchmarks.models import Training, batch, three
    from benchmarks.timing import alternate

    models = three(Training, archs, setting)
    rows = []
    for length in LENGTHS:
        sample = batch(length, 4096, setting)
        steps = (partial(model.step, sample) for model in models)
        times = alternate(*steps, rounds=rounds, setting=setting)
        rows.append(_row(f"training step, length {length}", times))
    return rows


def suite_memory(archs: tuple[str, str], setting: Any, rounds: int) -> list[dict[str, Any]]:
    from benchmarks.memory import peak_memory
    from benchmarks.models import sides

    rows = []
    for length in LENGTHS:
        peaks = (
            peak_memory(arch, length, 4096, setting, alone=alone) for arch, alone in sides(archs)
        )
        rows.append(_memory_row(f"peak memory of a step, length {length}", *peaks))
    return rows


def _memory_row(what: str, baseline: float, other: float, alone: float) -> dict[str, Any]:
    return {
        "what": what,
        "unit": "MiB",
        "baseline": baseline / 2**20,
        "other": other / 2**20,
        "alone": alone / 2**20,
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
            **dict(zip(SIDES, growth, strict=True)),
            "ratio": growth[1] / growth[0],
        },
    ]


def _decoding(archs: tuple[str, str], setting: Any, rounds: int, steps: int) -> Any:
    from benchmarks.models import Decoding, batch, three
    from benchmarks.timing import alternate

    sample = batch(25, 64 * 25, setting)
    searches = (partial(model.search, sample, steps) for model in three(Decoding, archs, setting))
    return alternate(*searches, rounds=rounds, setting=setting)


def suite_lm(archs: tuple[str, str], setting: Any, rounds: int) -> list[dict[str, Any]]:
    from benchmarks.language_models import BASELINE, Generation, block, language_model_of
    from benchmarks.memory import peak_memory
    from benchmarks.models import Training, sides, three
    from benchmarks.timing import alternate, alternate_seconds

    names, rows = (BASELINE, language_model_of(archs[1])), []
    models = three(Training, names, setting)
    for length in BLOCKS:
        sample = block(length, 4096, setting)
        steps = (partial(model.step, sample) for model in models)
        times = alternate(*steps, rounds=rounds, setting=setting)
        rows.append(_row(f"language model, training step, blocks of {length}", times))
    for length in BLOCKS:
        what = f"language model, peak memory of a step, blocks of {length}"
        peaks = (
            peak_memory(name, length, 4096, setting, block, alone) for name, alone in sides(names)
        )
        rows.append(_memory_row(what, *peaks))
    writers = three(partial(Generation, written=WRITTEN), names, setting)
    times = alternate_seconds(*(writer.seconds_of_steps for writer in writers), rounds=rounds)
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


def _row(what: str, times: Any) -> dict[str, Any]:
    return {
        "what": what,
        "unit": "ms",
        **{side: 1e3 * median for side, median in zip(SIDES, times.medians(), strict=True)},
        "ratio": times.ratio(),
        "spread": times.spread(),
        "loses_to_torch": times.loses(),
    }


def environment(setting: Any) -> dict[str, Any]:
    """What the figures depend on."""
    import torch
    from benchmarks.isa import instruction_sets, processor

    from ea_fairseq.kernels.cpp.library import load_library

    return {
        "processor": torch.cuda.get_device_name() if setting.device == "cuda" else processor(),
        "instruction_sets": instruction_sets(),
        "clock": setting.clock,
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
    """Markdown: ratios are to the baseline."""
    print(
        f"| what | {archs[0]} | {archs[1]} | on torch alone | ratio | rounds from .. to | torch's |"
    )
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        spread = "{:.2f} .. {:.2f}".format(*row["spread"]) if "spread" in row else ""
        digits = 2 if row["unit"] == "x" else 0
        figures = [f"{row[side]:,.{digits}f} {row['unit']}" for side in SIDES]
        ratios = f"{row['ratio']:.2f} | {spread} | {row['alone'] / row['baseline']:.2f}"
        print(f"| {row['what']} | {' | '.join(figures)} | {ratios} |")


def print_losses(rows: list[dict[str, Any]]) -> bool:
    """Names what torch alone does faster than what is compiled; whether there is any."""
    slower = [row for row in rows if row.get("loses_to_torch")]
    for row in slower:
        times = f"{row['other']:,.0f} ms, torch alone {row['alone']:,.0f} ms"
        print(f"error: {row['what']}: compiled is slower: {times}", file=sys.stderr)
    return bool(slower)


def print_shares(
    quiet: list[dict[str, Any]], busy: list[dict[str, Any]], fair: float, count: int
) -> bool:
    """How much longer everything takes beside other work; whether anything takes too long."""
    print(
        f"\nTimes as long, beside {count} busy processes ({fair:.2f}: a fair share of the cores):"
    )
    print("\n| what | the baseline | ours | on torch alone |\n|---|---|---|---|")
    unfair = False
    for before, beside in zip(quiet, busy, strict=True):
        if before["unit"] == "ms":
            longer = [beside[side] / before[side] for side in SIDES]
            unfair = unfair or max(longer[:2]) > UNFAIR * fair
            print(f"| {before['what']} | {' | '.join(f'{x:.2f} x' for x in longer)} |")
    return unfair


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:2] == ["--suite", "translate"]:
        import benchmark_translation

        return benchmark_translation.main(argv[2:])
    if argv[:1] == ["hf"]:
        from benchmarks import huggingface

        return huggingface.main(argv[1:])
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
        "--isa", choices=ISA_CHOICES, default="native", help="limit all to it (default: native)"
    )
    parser.add_argument(
        "--busy", type=int, default=0, metavar="N", help="measure beside N busy processes too"
    )
    parser.add_argument("--cpu-time", action="store_true", help="count the processor's time")
    parser.add_argument(
        "--inductor", action="store_true", help="compare with torch.compile instead"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    args = parser.parse_args(argv)
    args.suites += args.more
    restart_limited(args.isa, sys.argv[1:])

    from benchmarks.models import Setting, baseline_of

    for suite in args.suites:
        if suite not in SUITES:
            parser.error(f"{suite}: no such suite; choices: {', '.join(SUITES)}")
    if args.json and args.profile:
        parser.error(f"--json {args.json}: --profile prints alone; leave it out")
    if args.suites and args.inductor:
        parser.error(f"{args.suites[0]}: --inductor has no suites; leave it out")
    if args.busy < 0:
        parser.error(f"--busy {args.busy}: give 0 or more")
    if args.cpu_time and (args.busy or args.device != "cpu"):
        parser.error("--cpu-time: says nothing with --busy or on a GPU; leave it out")
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
    clock = "process_time" if args.cpu_time else "perf_counter"
    setting = Setting(args.vocabulary, args.device, args.threads, dtype=args.dtype, clock=clock)
    suites = args.suites or list(SUITES)
    rows, beside, failed = [], [], []
    try:
        if args.inductor:
            from benchmarks.compiled import compare_and_print

            rows = compare_and_print(args.arch, LENGTHS, 4096, args.rounds, setting)
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
                if args.busy:
                    with busy(args.busy):
                        beside += SUITES[suite](archs, setting, args.rounds)
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
    found = environment(setting)
    print(f"\n{found['processor']}, threads: {args.threads}; {found['instruction_sets']}")
    lost = print_losses(rows)
    unfair = args.busy and print_shares(
        rows, beside, fair_share(args.threads, args.busy), args.busy
    )
    if unfair:
        print(f"error: more than {UNFAIR} times a fair share's time", file=sys.stderr)
    return int(bool(failed) or lost or bool(unfair))


if __name__ == "__main__":
    sys.exit(main())
