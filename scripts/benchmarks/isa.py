"""Measures what processors without AVX-512 get on one that has it: every library limited alike.

Libraries read these variables when they are loaded, so the program is started again with them.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

#: By instruction set: what limits our library, torch, oneDNN, MKL and CTranslate2 to it.
LIMITS = {
    "avx2": {
        "EA_FAIRSEQ_MARCH": "x86-64-v3",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "CT2_FORCE_CPU_ISA": "AVX2",
    }
}
CHOICES = ("native", *LIMITS)


def restart_limited(isa: str, argv: list[str]) -> None:
    """Starts this program again with the limits of ``isa``, unless it has them already.

    Args:
        isa: one of CHOICES
        argv: its arguments
    """
    limits = LIMITS.get(isa, {})
    if all(os.environ.get(name) == value for name, value in limits.items()):
        return
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, os.path.abspath(sys.argv[0]), *argv]
    os.execve(sys.executable, command, {**os.environ, **limits})


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, with family and model: names such as "AMD EPYC" say little."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    found = {}
    for name, _, value in (line.partition(":") for line in lines):
        found.setdefault(name.strip(), value.strip())
    if "model name" not in found:
        return platform.processor() or platform.machine()
    return "{model name} (family {cpu family}, model {model})".format_map(
        {"cpu family": "?", "model": "?", **found}
    )


def instruction_sets() -> str:
    """What our library was built for, and what torch's operators take."""
    import torch

    from ea_fairseq.kernels.cpp.build import target

    return f"ours built for {target()}, torch's {torch.backends.cpu.get_cpu_capability()}"
