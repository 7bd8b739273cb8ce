#!/usr/bin/env python3
"""Compiles Triton's kernels for chips that need not be here, as their launchers would.

    python tests/thorough/triton_forms.py        every form, for capability 8.0, 9.0, 10.0, 12.0
    python tests/thorough/triton_forms.py 80     for capability 8.0 alone; or 90, 100, 120
    python tests/thorough/triton_forms.py hip    for AMD's gfx942
    EA_FAIRSEQ_NATIVE=triton TRITON_INTERPRET=1 python tests/thorough/triton_forms.py interpret
                                            compiles nothing: runs long sentences on the CPU

Prints a line for each compiled form: what launched it, registers, bytes spilled, bytes of shared
memory, and fails where one spills or has not enough; or for each length the largest difference from
the equations on torch, in units of the largest number.
"""

import contextlib
import io
import itertools
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

# Bytes that a block may have: 99 KiB on 12.0, and on 8.6 and 8.9, which take the forms of 8.0.
SHARED = {80: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}
CHIPS = {
    **{str(capability): ("cuda", capability) for capability in SHARED},
    "hip": ("hip", "gfx942", 64),
}
# Heads, lengths (sentences, tgt_len, src_len) and kernels of more than a few blocks.
LARGE = [(2, (1, 130, 70), 3), (1, (1, 260, 260), 1), (4, (2, 130, 130), 5)]
HALF_AND_SINGLE = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Form:
    """A kernel as compiled: registers a thread, bytes spilled and of shared memory; None where the
    compiler does not say."""

    kernel: str
    registers: int | None
    spilled: int | None
    shared: int


class _Driver:
    """What Triton asks a machine's driver when it compiles."""

    def __init__(self, target: Any):
        self.target = target

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> Any:
        return self.target  # of each kind of chip its own compiled forms

    def get_current_stream(self, device: Any) -> int:
        return 0


@contextlib.contextmanager
def compiling(backend: str, arch: int | str, warp: int = 32) -> Iterator[list[Form]]:
    """Inside the context launches compile for that chip, and do no more; yields their forms."""
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver, jit

    from ea_fairseq.kernels.triton import launches

    forms, launch = [], jit.JITFunction.run
    amd, launches.AMD = launches.AMD, backend == "hip"

    def compile_alone(self, *args, grid, warmup, **kwargs):
        log = io.StringIO()
        with contextlib.redirect_stdout(log):
            compiled = launch(self, *args, grid=grid, warmup=True, **kwargs)
        used = re.search(r"Used (\d+) registers", log.getvalue())
        spilled = re.search(r"(\d+) bytes spill stores", log.getvalue())
        if used:  # else it was compiled before
            numbers = int(used[1]), int(spilled[1])
            forms.append(Form(self.__name__, *numbers, compiled.metadata.shared))
        elif backend == "hip":
            forms.append(Form(self.__name__, None, None, compiled.metadata.shared))

    jit.JITFunction.run = compile_alone
    driver.set_active(_Driver(GPUTarget(backend, arch, warp)))
    try:
        with knobs.nvidia.scope(), knobs.compilation.scope():
            knobs.nvidia.dump_ptxas_log = True
            knobs.compilation.always_compile = True
            yield forms
    finally:
        jit.JITFunction.run = launch
        driver._active = None
        launches.AMD = amd


def launch_all(
    heads: int, head_dim: int, dtype: torch.dtype, size: int, lower: bool, optional: bool = True
) -> None:
    """Forward, backward and a step, with everything that a launch can have, or with nothing that it
    can do without; maps of a kernel that is read on its diagonal and below alone are causal, as the
    decoder's are."""
    from ea_fairseq.kernels.triton import attention as triton_attention
    from ea_fairseq.kernels.triton import step as triton_step

    def given(tensor):
        return tensor if optional else None

    length = 3
    queries, keys, values = (
        torch.empty(length, 1, heads * head_dim, dtype=dtype)
        .view(length, 1, heads, head_dim)
        .permute(1, 2, 0, 3)
        for _ in range(3)
    )
    visible = torch.ones(1, 1, length, length, dtype=torch.bool)
    carry = torch.empty(1, heads, length, length)
    rows = torch.empty(1, heads, length)
    kernel, bias = torch.empty(heads, heads, size, size), torch.empty(heads)
    seed, dropout = given(torch.zeros(1, dtype=torch.long)), 0.1 if optional else 0.0
    inputs = queries, keys, values, given(visible), given(carry), kernel, bias, seed
    constants = 0.3, 0.5, 0.7, 0, 0, lower, lower
    triton_attention.evolving_attention(*inputs, *constants, dropout, optional, optional)
    grads = queries, given(carry), given(carry)
    triton_attention.evolving_attention_gradient(
        *grads, *inputs, queries, rows, given(rows), *constants, dropout
    )
    cached = torch.empty(length, 1, heads * head_dim, dtype=dtype)
    state = torch.empty(1, size - 1, heads, length), torch.ones(1, size // 2, dtype=torch.bool)
    triton_step.evolving_attention_step(
        *(queries[:, :, :1], cached, cached, given(torch.zeros(1, length, dtype=torch.long))),
        *(given(visible[:, :, :1]), given(carry[:, :, :1]), *map(given, state), kernel, bias),
        *(0.3, 0.5, 0.7, 0, lower, 1, optional),
    )


def launches() -> Iterator[tuple]:
    """Arguments of :func:`launch_all` that make every form, but those of an attention that has only
    some of what is optional."""
    sizes = list(itertools.product((1, 3, 5), (False, True)))
    # A head_dim that 16 divides and one that it does not, for each power of 2.
    dims = (16, 8, 32, 24, 64, 40)
    for optional in (True, False):
        for heads, (size, lower) in itertools.product((1, 2, 4, 8, 16), sizes):
            yield heads, 16, torch.bfloat16, size, lower, optional
        for dtype, dim, (size, lower) in itertools.product(HALF_AND_SINGLE, dims, sizes[2:4]):
            yield 4, dim, dtype, size, lower, optional


def sweep(backend: str, arch: int | str, warp: int = 32) -> int:
    """Compiles and prints every form; how many spill registers or have not enough memory."""
    room = SHARED.get(arch, math.inf)
    with compiling(backend, arch, warp) as forms:
        for launch in launches():
            before = len(forms)
            launch_all(*launch)
            for form in forms[before:]:
                print(arch, *launch, form, flush=True)
    wrong = sum(bool(form.spilled) or form.shared > room for form in forms)
    print(arch, f"{len(forms)} forms, {wrong} spill or do not fit", flush=True)
    return wrong


def interpret() -> None:
    """All that an attention computes, over sizes that take minutes."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "helpers"))
    from attention_cases import attention_inputs, results

    from ea_fairseq.kernels.backend import chosen_backend
    from ea_fairseq.kernels.cpp.library import torch_alone

    for attention, (heads, lengths, size) in itertools.product(
        ("encoder", "decoder", "encoder-decoder"), LARGE
    ):
        inputs = attention_inputs(attention, heads, lengths, size, torch.float32, True)
        if chosen_backend(inputs[1][0], lengths[2], size) != "triton":
            raise SystemExit("error: set EA_FAIRSEQ_NATIVE=triton TRITON_INTERPRET=1")
        found = results(*inputs, causal=attention == "decoder")
        with torch_alone():
            expected = results(*inputs)
        worst = max(
            ((ours - theirs).abs().max() / (1 + theirs.abs().max())).item()
            for ours, theirs in zip(found, expected, strict=True)
        )
        print(f"{attention}, {heads} heads, {lengths}, kernel {size}: {worst:.1e}", flush=True)


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv == ["interpret"]:
        interpret()
        return 0
    for name in argv:
        if name not in CHIPS:
            raise SystemExit(f"error: {name}: choose {', '.join(CHIPS)} or interpret")
    wrong = [sweep(*CHIPS[name]) for name in argv or map(str, SHARED)]
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
