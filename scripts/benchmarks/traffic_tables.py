"""The tables of ``benchmark.py --traffic``, of what traffic.py and its neighbours count."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import torch

from .kept import kept_bytes, weight_bytes
from .models import Setting
from .traffic import MODELS, WAYS, Chip, Cost, Shape, attention, rest_of_step, step_attentions
from .traffic_decoding import BEAM, SENTENCES, STEPS, decoding_step

LENGTHS = (32, 128, 512)
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def print_tables(arch: str, setting: Setting, chips: dict[str, Chip], tokens: int = 4096) -> None:
    """Markdown: an attention of the encoder above the first layer, an update, what it keeps, and a
    step of decoding.

    Raises:
        ValueError: where the architecture is not one of MODELS
    """
    if arch not in MODELS:
        raise ValueError(f"--traffic: counts {', '.join(MODELS)}, not {arch}")
    model = MODELS[arch]
    print("Predicted from what is read, written and computed; nothing here was measured.\n")
    print(f"One attention of {arch}'s encoder, forward and backward, {tokens:,} tokens:\n")
    print(f"| length | type | way | launches | MiB | GFLOP | {_heads(chips, 'us')} | measured |")
    print("|" + "---|" * (7 + len(chips)))
    for length, (name, dtype), way in _every():
        sizes = tokens // length, model.heads, length, length, model.head_dim
        cost = attention(Shape("encoder", *sizes, carry=True, dtype=dtype), way)
        times = " | ".join(f"{cost.seconds(chip, dtype) * 1e6:,.0f}" for chip in chips.values())
        moved, operations = cost.bytes / 2**20, (cost.products + cost.plain) / 1e9
        figures = f"{cost.launches:.0f} | {moved:,.0f} | {operations:,.1f}"
        print(f"| {length} | {name} | {way} | {figures} | {times} | |")
    print(f"\nAn update of {arch} on {tokens:,} tokens:\n")
    print(f"| length | type | way | launches | GiB | {_heads(chips, 'ms')} | measured |")
    print("|" + "---|" * (6 + len(chips)))
    rest = rest_of_step(model, setting, tokens)
    for length, (name, dtype), way in _every():
        # Half as many bytes where numbers are half as long, as if everything were.
        others = Cost(rest.launches, rest.bytes * dtype.itemsize / 4, rest.products)
        attentions = step_attentions(model, length, tokens, dtype, way)
        times = [
            f"{1e3 * (others.seconds(chip, dtype) + attentions.seconds(chip, dtype)):,.1f}"
            for chip in chips.values()
        ]
        cost = others + attentions
        figures = f"{cost.launches:,.0f} | {cost.bytes / 2**30:.1f}"
        print(f"| {length} | {name} | {way} | {figures} | {' | '.join(times)} | |")

    _print_memory(arch, setting, tokens)
    _print_decoding(arch, setting, chips)


def _print_memory(arch: str, setting: Setting, tokens: int) -> None:
    weights = weight_bytes(arch, setting) / 2**20
    print(
        f"\nKept for the gradients by an update of {arch} on {tokens:,} tokens, beside "
        f"{weights:,.0f} MiB of weights, gradients and Adam's moments; ratio to the baseline of "
        "both together:\n"
    )
    print("| length | type | way | MiB | ratio | measured |\n|---|---|---|---|---|---|")
    for length, name in itertools.product(LENGTHS, TYPES):
        typed = replace(setting, dtype=name)
        kept = {way: kept_bytes(arch, length, tokens, typed, way) / 2**20 for way in WAYS}
        for way, amount in kept.items():
            ratio = (amount + weights) / (kept[WAYS[2]] + weights)
            print(f"| {length} | {name} | {way} | {amount:,.0f} | {ratio:.2f} | |")


def _print_decoding(arch: str, setting: Setting, chips: dict[str, Chip]) -> None:
    what = f"{SENTENCES} sentences, mean of {STEPS} steps, float32"
    print(f"\nA step of {arch} in beam search, beam {BEAM}, {what}:\n")
    print(f"| way | launches | MiB | {_heads(chips, 'us')} | measured |")
    print("|" + "---|" * (4 + len(chips)))
    for way in WAYS:
        cost = decoding_step(arch, setting, way)
        times = (f"{1e6 * cost.seconds(chip, torch.float32):,.0f}" for chip in chips.values())
        moved = f"{cost.launches:,.0f} | {cost.bytes / 2**20:,.0f}"
        print(f"| {way} | {moved} | {' | '.join(times)} | |")


def _every() -> Iterator[tuple[int, tuple[str, torch.dtype], str]]:
    return itertools.product(LENGTHS, TYPES.items(), WAYS)


def _heads(chips: dict[str, Chip], unit: str) -> str:
    return " | ".join(f"{name}, {unit}" for name in chips)
