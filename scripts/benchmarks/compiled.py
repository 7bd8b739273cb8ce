"""One attention three ways: torch's operators, the same compiled by inductor, and our kernels."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .models import Setting
from .timing import timed

#: Heads, and numbers of each.
SIZES = {"ea_transformer_lite": (4, 40), "ea_transformer_base": (8, 64)}
WAYS = ("torch alone", "inductor", "our kernels")


def compare_and_print(
    arch: str, lengths: tuple[int, ...], tokens: int, rounds: int, setting: Setting
) -> list[dict[str, Any]]:
    """Medians of forward and backward, taken in turn, with the carry of the layer below.

    They are printed in Markdown, a line as soon as it is measured.

    Args:
        arch: one of SIZES
        lengths: of source and target
        tokens: of a batch
        rounds: turns of each way
        setting: device, threads and type

    Raises:
        ValueError: where the architecture is not one of SIZES
    """
    from ea_fairseq.attention.variants import ATTENTIONS

    if arch not in SIZES:
        raise ValueError(f"inductor: knows {', '.join(SIZES)}, not {arch}")
    print(f"| attention, length | {' | '.join(f'{way}, ms' for way in WAYS)} | inductor / ours |")
    print("|---|---|---|---|---|")
    found = []
    for attention in ATTENTIONS:
        for length in lengths:
            work = _ways(attention, *SIZES[arch], max(1, tokens // length), length, setting)
            for run in work.values():  # compiles
                for _ in range(2):
                    timed(run, setting.device)
            times: dict[str, list[float]] = {name: [] for name in work}
            for _ in range(rounds):
                for name, run in work.items():
                    times[name].append(timed(run, setting.device))
            seconds = {name: statistics.median(each) for name, each in times.items()}
            found.append({"attention": attention, "length": length, "seconds": seconds})
            cells = " | ".join(f"{1e3 * seconds[way]:,.2f}" for way in WAYS)
            ratio = seconds["inductor"] / seconds["our kernels"]
            print(f"| {attention}, {length} | {cells} | {ratio:.2f} |", flush=True)
    return found


def _ways(
    attention: str, heads: int, head_dim: int, sentences: int, length: int, setting: Setting
) -> dict[str, Callable[[], object]]:
    from ea_fairseq.attention.contract import AttentionArgs
    from ea_fairseq.attention.variants.evolving import EvolvingLogits
    from ea_fairseq.kernels.cpp.library import torch_alone

    torch.manual_seed(1)
    dtype, device = getattr(torch, setting.dtype), setting.device
    transform = EvolvingLogits(attention, heads, 0.1, 0.1, 3, convolution=True, skip=True)
    transform = transform.to(device)
    shape = sentences, heads, length, head_dim
    tensors = [torch.randn(shape, device=device, dtype=dtype) for _ in range(3)]
    tensors.append(torch.randn(*shape[:3], length, device=device))
    inputs = [tensor.requires_grad_() for tensor in tensors]
    visible = torch.ones(sentences, 1, length, length, dtype=torch.bool, device=device)
    visible[::2, :, :, -max(1, length // 8) :] = False
    if attention == "decoder":
        visible = visible.tril()

    def attend(queries: Tensor, keys: Tensor, values: Tensor, carry: Tensor) -> Tensor:
        args = AttentionArgs(0.1, visible, carry, causal=attention == "decoder")
        output, evolved, _ = transform.attend(queries, keys, values, args)
        return output.float().sum() + evolved.sum()

    def step(function: Callable[..., Tensor]) -> None:
        torch.autograd.grad(function(*inputs), [*inputs, *transform.parameters()])

    torch.compiler.reset()
    compiled = torch.compile(attend, fullgraph=True, dynamic=False)

    def alone(function: Callable[..., Tensor]) -> None:
        with torch_alone():
            step(function)

    return {
        "torch alone": lambda: alone(attend),
        "inductor": lambda: alone(compiled),
        "our kernels": lambda: step(attend),
    }
