#!/usr/bin/env python3
"""Parameters and FLOPs of architectures, in the convention of the paper's Table 5.

    python scripts/model_cost.py --arch transformer_lite ea_transformer_lite
    python scripts/model_cost.py --arch ea_transformer_base --set ea-kernel-size=5

Parameters leave out embeddings and the output layer. FLOPs are those of one sentence, 30 source and
30 target tokens unless told otherwise, two for a multiply-add, again without embeddings and output
layer; they are counted while the model runs, products of attention included.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ea_fairseq.recipes.options import load_plugin
from ea_fairseq.variants import architectures


def every_architecture() -> list[str]:
    """Both baselines, each followed by the variants' architectures of its size."""
    by_size = {"lite": ["transformer_lite"], "base": ["transformer"]}
    for name, (_, architecture) in architectures().items():
        by_size[architecture.size].append(name)
    return by_size["lite"] + by_size["base"]


def cost(
    arch: str, options: dict[str, Any] | None = None, src_len: int = 30, tgt_len: int = 30
) -> dict[str, int]:
    """Builds the architecture and counts.

    Args:
        arch: a name that ``fairseq-train --arch`` takes, with the plugin's among them
        options: options by their long names, dashes in front or not; those that are not the
            model's (of training, say) are left out
        src_len: source tokens
        tgt_len: target tokens

    Returns:
        parameters, and flops (of one forward pass), both without embeddings and output layer

    Raises:
        ValueError: naming an architecture that does not exist, or an option and its bad value
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from ea_fairseq.kernels.library import torch_alone

    args, _ = _parse(arch, options or {})
    model = _build(args).eval()
    tokens = {"src_tokens": (1, src_len), "prev_output_tokens": (1, tgt_len)}
    batch = {name: torch.full(shape, 5) for name, shape in tokens.items()}
    counter = FlopCounterMode(display=False)
    # The counter does not see fused or compiled attention on the CPU; as plain products, it does.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), torch_alone(), counter:
        model(src_lengths=torch.tensor([src_len]), features_only=True, **batch)
    outside = ("embed_tokens", "embed_positions", "output_projection", "adaptive_softmax")
    parameters = sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if not any(part in name for part in outside)
    )
    return {"parameters": parameters, "flops": counter.get_total_flops()}


def _parse(arch: str, options: dict[str, Any]) -> tuple[argparse.Namespace, list[str]]:
    """The architecture's options, and the words that are none of them."""
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    import ea_fairseq  # noqa: F401  (registers the architectures)

    if arch not in ARCH_CONFIG_REGISTRY:
        choices = ", ".join(every_architecture())
        raise ValueError(f"--arch {arch}: no such architecture; choices: {choices} and fairseq's")
    parser = argparse.ArgumentParser(
        allow_abbrev=False, argument_default=argparse.SUPPRESS, exit_on_error=False
    )
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    line = []
    for name, value in options.items():
        line += ["--" + name.lstrip("-")] + ([] if value is True else [str(value)])
    try:
        args, unknown = parser.parse_known_args(line)
    except argparse.ArgumentError as error:
        raise ValueError(str(error)) from None
    args.arch = arch
    return args, [word for word in unknown if word.startswith("--")]


def _build(args: argparse.Namespace) -> torch.nn.Module:
    """A model of the architecture over a small dictionary."""
    from fairseq.data import Dictionary
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    ARCH_CONFIG_REGISTRY[args.arch](args)
    words = Dictionary()
    for index in range(4):
        words.add_symbol(f"w{index}")
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    return ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)


def _option(text: str) -> tuple[str, str | bool]:
    name, equals, value = text.partition("=")
    return name, value if equals else True


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--arch", nargs="+", help="architectures (default: the baselines and all variants')"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE", help="an option of the models"
    )
    parser.add_argument("--src-len", type=int, default=30, help="source tokens (default: 30)")
    parser.add_argument("--tgt-len", type=int, default=30, help="target tokens (default: 30)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--user-dir", type=Path, help="a folder with a variant of your own")
    args = parser.parse_args(argv)
    if args.user_dir:
        load_plugin(args.user_dir)
    archs = args.arch or every_architecture()
    for name in ("src_len", "tgt_len"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    options = dict(_option(text) for text in args.set)
    try:
        for arch in archs:
            if unknown := _parse(arch, options)[1]:
                raise ValueError(f"{unknown[0]}: no such option of --arch {arch}")
        costs = {arch: cost(arch, options, args.src_len, args.tgt_len) for arch in archs}
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(costs, indent=2))
        return 0
    print(f"{'architecture':<32}{'parameters':>14}{'FLOPs':>16}")
    for arch, counted in costs.items():
        print(f"{arch:<32}{counted['parameters']:>14,}{counted['flops'] / 1e6:>15,.2f}M")
    return 0


if __name__ == "__main__":
    sys.exit(main())
