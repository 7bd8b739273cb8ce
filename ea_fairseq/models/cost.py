"""Parameters and FLOPs of architectures, in the convention of the paper's Table 5.

Parameters leave out embeddings and the output layer. FLOPs are those of one sentence, two for a
multiply-add, again without embeddings and output layer; they are counted while the model runs,
products of attention included.
"""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, FairseqLanguageModel
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ..attention.variants import architectures
from ..kernels.cpp.library import torch_alone


def every_architecture() -> list[str]:
    """Both baselines, each followed by the variants' architectures of its size."""
    by_size = {"lite": ["transformer_lite"], "base": ["transformer"]}
    for name, (_, architecture) in architectures().items():
        by_size[architecture.size].append(name)
    return by_size["lite"] + by_size["base"]


def cost(
    arch: str,
    options: dict[str, Any] | None = None,
    src_len: int | None = None,
    tgt_len: int = 30,
) -> dict[str, int]:
    """Builds the architecture and counts.

    Args:
        arch: a name that ``fairseq-train --arch`` takes, with the plugin's among them
        options: options by their long names, dashes in front or not; those that are not the
            model's (of training, say) are left out
        src_len: source tokens, 30 where it is None; of a language model always None
        tgt_len: target tokens; of a language model all that there are

    Returns:
        parameters, and flops (of one forward pass), both without embeddings and output layer

    Raises:
        ValueError: naming an architecture that does not exist, or an option and its bad value
    """
    args, _ = parse(arch, options or {})
    model = _build(args).eval()
    if isinstance(model, FairseqLanguageModel) and src_len is not None:
        raise ValueError(f"--src-len {src_len}: --arch {arch} reads no source: give --tgt-len")
    src_len = src_len or 30
    tokens = {"src_tokens": (1, src_len), "prev_output_tokens": (1, tgt_len)}
    if isinstance(model, FairseqLanguageModel):
        tokens = {"src_tokens": (1, tgt_len)}
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


def parse(arch: str, options: dict[str, Any]) -> tuple[argparse.Namespace, list[str]]:
    """The architecture's options, and the words that are none of them."""
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
    ARCH_CONFIG_REGISTRY[args.arch](args)
    words = Dictionary()
    for index in range(4):
        words.add_symbol(f"w{index}")
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    return ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)
