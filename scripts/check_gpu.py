#!/usr/bin/env python3
"""The parts of scripts/check_gpu.sh, which prepares an environment for them.

Each part is a process of its own: one that fails or takes too long does not stop the others. After
each, DIR/report.json and DIR/report.md are written anew; DIR/logs holds what the parts said. All
but the last part use one GPU, the first that CUDA_VISIBLE_DEVICES leaves. Without a GPU the
kernels' tests run in Triton's interpreter, and that is all.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.machinery
import importlib.util
import itertools
import math
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from ea_fairseq.files import read_json, write_json, write_lines  # noqa: E402

ARCHS = ("ea_transformer_lite", "ea_transformer_base")
TYPES = ("float32", "float16", "bfloat16")
TESTS = "tests/core/test_triton_attention.py", "tests/core/test_triton_model.py"
CORPUS = ROOT / "examples/translation/cldr.de-en/corpus.yml"
# Losses of halves may differ from float32's by so much, and those of the GPU from the CPU's.
LOSS_TOLERANCE, DEVICE_TOLERANCE = 0.05, 1e-3


# Ratios to the baseline that bfloat16 is to reach, by what the benchmark calls it.
TARGETS = {
    "training step, length 32": 1.1,
    "training step, length 128": 1.1,
    "training step, length 512": 1.3,
    "beam 5, 64 sentences, 25 steps": 1.0,
    **{f"peak memory of a step, length {length}": 1.2 for length in (32, 128, 512)},
}
# What the parts import beyond torch; check_gpu.sh reads this and installs what lacks.
MODULES = "fairseq sacrebleu pytest sacremoses subword_nmt babel num2words yaml safetensors".split()
SHARE = 0.4  # of all the time, that one part may take


class Failed(Exception):
    """A part's own finding, in a line.

    Args:
        line: what failed
        found: what was found nevertheless
    """

    def __init__(self, line: str, found: dict[str, Any] | None = None):
        super().__init__(line)
        self.found = found or {}


class Check:
    """Runs commands for the parts, within what is left of the time."""

    def __init__(self, out: Path, seconds: float, spent: float = 0.0):
        self.out = out
        self.seconds = seconds
        self.ends = self.part_ends = time.monotonic() + seconds - spent
        (out / "logs").mkdir(parents=True, exist_ok=True)

    def begin_part(self, share: float = 1.0) -> None:
        """From now on commands have so much of all the time together."""
        self.part_ends = min(self.ends, time.monotonic() + share * self.seconds)

    def run(self, name: str, *command: str, **environment: str) -> str:
        """What a command printed, which is kept in logs/NAME.txt.

        Raises:
            Failed: where it failed, or no time was left
        """
        rest = self.part_ends - time.monotonic()
        if rest < 1:
            raise Failed("no time was left")
        log = self.out / "logs" / f"{name}.txt"
        # Interpreted, kernels would pass without the GPU.
        inherited = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
        with log.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env={**inherited, **_devices(1), **environment},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(rest)
            except subprocess.TimeoutExpired:
                raise Failed(f"took longer than what was left, {rest:.0f} seconds") from None
            finally:  # with all that it started, or the next part would share the GPU with it
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        printed = log.read_text(encoding="utf-8", errors="replace")
        if status:
            last = next((line for line in reversed(printed.splitlines()) if line.strip()), "")
            raise Failed(f"exit status {status}: {last[:200]}")
        return printed


def _devices(count: int) -> dict[str, str]:
    """The environment in which a command sees that many of the GPUs seen here."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")
    return {"CUDA_VISIBLE_DEVICES": ",".join(seen[:count])}


def machine(check: Check) -> dict[str, Any]:
    import torch

    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
    }
    try:
        import triton

        found["triton"] = triton.__version__
    except ImportError:
        found["triton"] = None
    for index in range(torch.cuda.device_count()):
        chip = torch.cuda.get_device_properties(index)
        memory = f"{chip.total_memory / 2**30:.0f} GiB"
        found[f"device {index}"] = f"{chip.name}, capability {chip.major}.{chip.minor}, {memory}"
    find = importlib.machinery.PathFinder.find_spec
    lacking = [name for name in MODULES if find(name) is None]
    if lacking:
        found["lacking"] = ", ".join(lacking)
    return found


def kernels(check: Check) -> dict[str, Any]:
    """Which way attentions take here: else figures would be taken for those of our kernels.

    Raises:
        Failed: where it is not Triton
    """
    ask = (
        "import logging, torch; logging.basicConfig(format='%(message)s');"
        "from ea_fairseq.kernels.backend import way;"
        "print(way(torch.zeros(1, 1, 1, 8, device='cuda'), 1, 3))"
    )
    *said, taken = check.run("kernels", "-c", ask).strip().splitlines()
    if taken != "triton":
        raise Failed(f"attentions run on {taken}: {'; '.join(said)}")
    return {"way": taken}


def tests(check: Check) -> dict[str, Any]:
    return _tested(check.run("tests", *_pytest(*TESTS)))


def interpreted(check: Check) -> dict[str, Any]:
    switches = {"TRITON_INTERPRET": "1", "EA_FAIRSEQ_NATIVE": "triton"}
    return _tested(check.run("interpreted", *_pytest(*TESTS), **switches))


def _pytest(*files: str) -> tuple[str, ...]:
    workers = min(8, os.cpu_count() or 1)  # Triton compiles on the CPU
    parallel = ("-n", str(workers)) if importlib.util.find_spec("xdist") else ()
    return "-m", "pytest", "-v", "-p", "no:cacheprovider", *parallel, *files


def _tested(printed: str) -> dict[str, Any]:
    return {"tests": printed.strip().splitlines()[-1]}


def losses(check: Check) -> dict[str, Any]:
    """Same seed, no dropout, on the CPU and on the GPU."""
    saved = str(check.out / "losses.json")
    same = ["scripts/compare_losses.py", "--updates", "30", "--no-dropout"]
    check.run("losses_cpu", *same, "--save", saved)
    against = ["--against", saved, "--device", "cuda", "--tolerance", str(DEVICE_TOLERANCE)]
    return {"losses": check.run("losses_gpu", *same, *against).strip().splitlines()[-1]}


def benchmark(arch: str, dtype: str) -> Callable[[Check], dict[str, Any]]:
    def part(check: Check) -> dict[str, Any]:
        path = check.out / f"benchmark_{arch}_{dtype}.json"
        path.unlink(missing_ok=True)
        try:
            check.run(
                path.stem,
                *("scripts/benchmark.py", "length", "decode", "memory", "train"),
                *("--device", "cuda", "--arch", arch, "--dtype", dtype),
                *("--rounds", "5", "--json", str(path)),
            )
        except Failed as error:  # the file is written after each suite
            rows = read_json(path)["rows"] if path.exists() else []
            raise Failed(str(error), _against_targets(rows, dtype)) from None
        return _against_targets(read_json(path)["rows"], dtype)

    return part


def _against_targets(rows: list[dict[str, Any]], dtype: str) -> dict[str, Any]:
    """The rows, and in bfloat16 those that miss their targets."""
    if dtype != "bfloat16" or not rows:
        return {"rows": rows}
    aims = [(row, TARGETS[row["what"]]) for row in rows if row["what"] in TARGETS]
    missed = [
        f"{row['what']} {row['ratio']:.2f} > {aim}" for row, aim in aims if row["ratio"] > aim
    ]
    held = len(aims) - len(missed)
    return {"targets": "; ".join([f"{held} of {len(aims)} hold", *missed]), "rows": rows}


def trainings(check: Check) -> dict[str, Any]:
    """200 updates of fairseq-train in each precision, from one seed, and their last losses."""
    data = check.out / "data"
    check.run("prepare", "scripts/prepare.py", str(CORPUS), "--output", str(data))
    found = {}
    for name in ("float32", "fp16", "bf16", "amp"):
        precision = [] if name == "float32" else [f"--{name}"]
        check.run(f"train_{name}", *_training(data, 200), *precision)
        found[name] = _last_loss(check.out / "logs" / f"train_{name}.txt")
    for name, loss in found.items():
        if not abs(loss / found["float32"] - 1) <= LOSS_TOLERANCE:
            raise Failed(f"--{name}: loss {loss}, float32 {found['float32']}")
    return {f"loss, {name}": loss for name, loss in found.items()}


def _training(data: Path, updates: int) -> list[str]:
    return [
        *("-m", "fairseq_cli.train", str(data / "bin"), "--user-dir", str(ROOT / "ea_fairseq")),
        *("--arch", "ea_transformer_lite", "--share-decoder-input-output-embed"),
        *("--dropout", "0.2", "--attention-dropout", "0.1", "--optimizer", "adam", "--lr", "1e-3"),
        *("--lr-scheduler", "inverse_sqrt", "--warmup-updates", "100", "--seed", "1"),
        *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"),
        *("--max-tokens", "4096", "--max-update", str(updates), "--log-format", "json"),
        *("--log-interval", str(min(50, updates)), "--no-save", "--disable-validation"),
    ]


def _last_loss(log: Path) -> float:
    """Of the last lines that fairseq logged while training.

    Raises:
        Failed: where there is none
    """
    found = re.findall(r'"loss": "([^"]+)"', log.read_text(encoding="utf-8", errors="replace"))
    if not found or not math.isfinite(float(found[-1])):
        raise Failed(f"{log.name}: {'the last loss is ' + found[-1] if found else 'no loss'}")
    return float(found[-1])


def profile(check: Check) -> dict[str, Any]:
    # Each kernel has a line, and the operator that launched it another.
    command = "train --device cuda --dtype bfloat16 --profile --lines 20".split()
    return {"table": check.run("profile", "scripts/benchmark.py", *command)}


def inductor(check: Check) -> dict[str, Any]:
    """What torch.compile makes of the plain operators, for docs/performance.md."""
    command = "--inductor --device cuda --dtype bfloat16 --rounds 10".split()
    log = check.out / "logs" / "inductor.txt"
    log.unlink(missing_ok=True)
    try:
        return {"table": check.run(log.stem, "scripts/benchmark.py", *command)}
    except Failed as error:  # lines are printed as they are measured
        rows = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        raise Failed(str(error), {"table": rows} if rows else None) from None


def several(check: Check) -> dict[str, Any]:
    """Two processes through nccl."""
    import torch

    if torch.cuda.device_count() < 2:
        return {"skipped": "needs two devices"}
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    data = check.out / "data"
    if not data.exists():
        check.run("prepare", "scripts/prepare.py", str(CORPUS), "--output", str(data))
    check.run("nccl", *command, *_training(data, 20), **_devices(2))
    return {"loss": _last_loss(check.out / "logs" / "nccl.txt")}


def parts(on_gpu: bool) -> dict[str, Callable[[Check], dict[str, Any]]]:
    """What matters most comes first: the time may not last."""
    if not on_gpu:
        return {"machine": machine, "tests, interpreted": interpreted}
    targeted, others = (
        {
            f"{arch}, {dtype}": benchmark(arch, dtype)
            for arch, dtype in itertools.product(ARCHS, TYPES)
            if (dtype == "bfloat16") == is_targeted
        }
        for is_targeted in (True, False)
    )
    return {
        "machine": machine,
        "kernels": kernels,
        "tests": tests,
        "losses against the CPU": losses,
        **targeted,
        "trainings": trainings,
        "longest kernels": profile,
        **others,
        "inductor": inductor,
        "two devices": several,
    }


def markdown(report: dict[str, Any]) -> list[str]:
    """The report as tables for docs/performance.md, in lines."""
    lines = ["| part | seconds | found |", "|---|---|---|"]
    rows = []
    for name, part in report.items():
        found = {k: v for k, v in part.items() if k not in ("seconds", "rows", "table")}
        said = "; ".join(f"{key}: {value}" for key, value in found.items())
        lines.append(f"| {name} | {part['seconds']:.0f} | {said.replace('|', '/')} |")
        rows += [(name, row) for row in part.get("rows", [])]
    if rows:
        lines += ["", "| model, type | what | baseline | EA | ratio |", "|---|---|---|---|---|"]
    for name, row in rows:
        sides = " | ".join(f"{row[side]:,.2f} {row['unit']}" for side in ("baseline", "other"))
        lines.append(f"| {name} | {row['what']} | {sides} | {row['ratio']:.2f} |")
    for part in report.values():
        if "table" in part:
            lines += ["", "```", *part["table"].strip().splitlines(), "```"]
    return lines


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the report")
    parser.add_argument(
        "--seconds", type=float, default=580, help="for all parts (default: %(default)s)"
    )
    parser.add_argument(
        "--spent", type=float, default=0.0, metavar="SECONDS", help="of these, before (default: 0)"
    )
    args = parser.parse_args(argv)
    if not args.seconds > 0:
        parser.error(f"--seconds {args.seconds} must be more than 0")
    try:
        check = Check(args.out.resolve(), args.seconds, args.spent)
    except OSError as error:
        parser.error(f"--out {args.out}: {error.strerror}")
    import torch

    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        print("torch sees no GPU here: only the kernels' tests run, in Triton's interpreter")
    report: dict[str, Any] = {}
    write_lines(check.out / "report.md", markdown(report))  # not that of an earlier check
    (check.out / "report.json").unlink(missing_ok=True)
    for name, part in parts(on_gpu).items():
        started = time.monotonic()
        check.begin_part(SHARE if on_gpu else 1.0)
        try:
            found = part(check)
        except Failed as error:
            found = {"failed": str(error), **error.found}
        except KeyboardInterrupt:
            print(
                f"stopped in: {name}; {args.out / 'report.md'} has what was found", file=sys.stderr
            )
            return 130
        except Exception as error:  # whatever it is, the other parts go on
            found = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
        report[name] = {"seconds": time.monotonic() - started, **found}
        print(f"{name}: {found.get('failed', 'done')}", flush=True)
        write_json(check.out / "report.json", report)
        write_lines(check.out / "report.md", markdown(report))
    return int(any("failed" in part for part in report.values()))


if __name__ == "__main__":
    for ending in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: what a part started ends with it
        if signal.getsignal(ending) is signal.SIG_DFL:  # nohup wants it ignored
            signal.signal(ending, signal.default_int_handler)
    sys.exit(main())
