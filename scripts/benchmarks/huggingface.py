"""Speed and size of evolved models of Hugging Face's transformers beside plain ones.

    python scripts/benchmark.py hf
    python scripts/benchmark.py hf --sizes

EA-BERT of BERT-base's shape over eager and sdpa attention, sequences of 128 tokens, alternately in
one process: an update (forward, backward; no optimizer, which costs all the same) and inference.
Times are the processor's, so that other programs disturb them less; with several threads, the sum.
--sizes measures nothing: it counts parameters and multiplications beside the papers' figures.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ea_fairseq.files import write_json
from ea_fairseq.hf import evolve

# isort: split
import torch
from torch import nn
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel, T5Config, T5Model

from ea_fairseq.attention import build_transform

from .timing import alternate_seconds

SYSTEMS = ("eager", "sdpa", "evolving")


@dataclass(frozen=True)
class Size:
    """A model of the papers' tables.

    Attributes:
        make: the plain model
        attentions: how many of each kind
        heads, width: of each
        published: parameters in millions and billions of operations: plain, evolved
    """

    make: Callable[[], nn.Module]
    attentions: dict[str, int]
    heads: int
    width: int
    published: tuple[str, str]


_LARGE = dict(
    hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
)
_ROBERTA = dict(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1)

#: Table 5 of arXiv 2102.12895 and Table 6 of its extended version.
SIZES = {
    "BERT-Base": Size(
        lambda: BertModel(BertConfig()),
        {"encoder": 12},
        *(12, 768, ("109.5M / 6.3G", "110.4M / 6.8G")),
    ),
    "T5-Base": Size(
        lambda: T5Model(
            T5Config(d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12, vocab_size=32128)
        ),
        {"encoder": 12, "decoder": 12, "encoder-decoder": 12},
        *(12, 768, ("220.2M / 9.1G", "221.2M / 9.9G")),
    ),
    "BERT-Large": Size(
        lambda: BertModel(BertConfig(**_LARGE)),
        {"encoder": 24},
        *(16, 1024, ("335.0M / 12.2G", "336.7M / 12.9G")),
    ),
    "RoBERTa-Large": Size(
        lambda: RobertaModel(RobertaConfig(**_LARGE, **_ROBERTA)),
        {"encoder": 24},
        *(16, 1024, ("355.0M", "356.7M")),
    ),
}


def added_parameters(size: Size) -> int:
    """What evolving attention adds: a 3 x 3 convolution over the heads of every attention."""
    return sum(
        count
        * sum(
            parameter.numel()
            for parameter in build_transform(
                "evolving", size.heads, size.width // size.heads, kind
            ).parameters()
        )
        for kind, count in size.attentions.items()
    )


def multiplications(size: Size, tokens: int) -> tuple[int, int]:
    """Multiply-adds of one sequence (T5: a target as long): of the plain model, and those added.

    Embeddings and layer norms are left out, as usual.
    """
    with torch.device("meta"):
        model = size.make()
    # A pooler works on one token; biases add.
    linear = sum(
        module.weight.numel()
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and "pooler" not in name
    )
    attentions = sum(size.attentions.values())
    maps = attentions * tokens**2
    return linear * tokens + 2 * maps * size.width, maps * 9 * size.heads**2


def print_sizes(tokens: tuple[int, ...] = (32, 128)) -> None:
    """The table, and what cannot be met."""
    heading = " | ".join(f"multiply-adds at {n} tokens, + evolving" for n in tokens)
    print(f"| | parameters | + evolving | {heading} | published | published, EA |")
    print("|---|---|---|" + "---|" * (len(tokens) + 2))
    for name, size in SIZES.items():
        with torch.device("meta"):
            model = size.make()
        plain = sum(parameter.numel() for parameter in model.parameters())
        counts = (multiplications(size, n) for n in tokens)
        shown = " | ".join(f"{all_ / 1e9:.2f}G + {added / 1e9:.3f}G" for all_, added in counts)
        print(
            f"| {name} | {plain / 1e6:.1f}M | {added_parameters(size):,} | {shown} | "
            + " | ".join(size.published)
            + " |"
        )


def measure(
    tokens: int, batch: int, layers: int, rounds: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """Ratios of the evolved model's median time to those of the plain ones, and seconds."""
    torch.manual_seed(1)
    models = {}
    for system in SYSTEMS:
        config = BertConfig(num_hidden_layers=layers)
        model = BertModel(config)
        if system == "evolving":
            evolve(model, alpha=0.1, beta=0.1)
        else:
            model.set_attn_implementation(system)
        models[system] = model
    ids = torch.randint(1000, 20000, (batch, tokens))
    for suite, work in (("training", _update), ("inference", _infer)):
        for model in models.values():
            work(model, ids)
        turns = (partial(_seconds, work, model, ids) for model in models.values())
        comparison = alternate_seconds(*turns, rounds=rounds)
        eager, sdpa, ours = comparison.medians()
        yield (
            suite,
            {
                "eager": eager,
                "sdpa": sdpa,
                "evolving": ours,
                "over eager": ours / eager,
                "over sdpa": ours / sdpa,
            },
        )


def _update(model: nn.Module, ids: torch.Tensor) -> None:
    model.train()
    model(ids).last_hidden_state.square().mean().backward()
    model.zero_grad()


@torch.inference_mode()
def _infer(model: nn.Module, ids: torch.Tensor) -> None:
    model.eval()
    model(ids)


def _seconds(work: Callable[..., None], *given: object) -> float:
    begun = time.process_time()
    work(*given)
    return time.process_time() - begun


def main(argv: list[str] | None = None) -> int:
    """Prints times, or sizes."""
    parser = argparse.ArgumentParser(
        prog="benchmark.py hf",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sizes", action="store_true", help="count, measure nothing")
    parser.add_argument("--tokens", type=int, default=128, help="of a sequence")
    parser.add_argument("--batch", type=int, default=2, help="sequences")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3, help="of A B C C B A")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    args = parser.parse_args(argv)
    if args.sizes:
        print_sizes()
        return 0
    torch.set_num_threads(args.threads)
    found = {}
    for suite, times in measure(args.tokens, args.batch, args.layers, args.rounds):
        found[suite] = times
        seconds = ", ".join(f"{name} {times[name]:.3f} s" for name in SYSTEMS)
        print(
            f"{suite}: {seconds}; evolving {times['over eager']:.2f} times eager, "
            f"{times['over sdpa']:.2f} times sdpa",
            flush=True,
        )
    if args.json:
        write_json(args.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
