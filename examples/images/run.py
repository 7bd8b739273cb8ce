#!/usr/bin/env python3
"""Trains networks to classify pictures, plain and with evolving attention.

    python examples/images/run.py digits
    python examples/images/run.py digits --models vit ea-vit --seeds 1 2 3 4 5
    python examples/images/run.py cifar10 --data FOLDER --depth 34 --epochs 100 --device cuda
    python examples/images/run.py imagenet --data FOLDER --depth 50 --epochs 100 --batch 256

ResNets (resnet), with attention beside convolutions (aa-resnet), evolving (ea-aa-resnet), and the
ablations of Table 11; Vision Transformers (vit, ea-vit). Top-1 and top-5 accuracy of the last epoch
on the test pictures; --validate reports on a tenth of the training pictures instead, for choices.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ea_fairseq import experiments
from ea_fairseq.errors import UserError
from ea_fairseq.recipes.runs.progress import Display

#: ResNets -> kind of Table 9, and the variant's options beside alpha and beta.
RESNETS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet": ("plain", {}),
    "aa-resnet": ("aa", {}),
    "ea-aa-resnet": ("ea-aa", {}),
    # Table 11.
    "without-convolution": ("ea-aa", {"convolution": "none"}),
    "without-skip": ("ea-aa", {"skip": "none"}),
    "kernel-1": ("ea-aa", {"kernel_size": 1}),
    "kernel-5": ("ea-aa", {"kernel_size": 5}),
}
VITS = "vit", "ea-vit"
DEFAULT = "aa-resnet", "ea-aa-resnet"

# Section 4.4: the peak for a batch of 256; the parts of the epochs at which a tenth of it is left.
PEAK, WARM_UP, STEPS = 0.128, 0.05, (0.3, 0.6, 0.8, 0.9)
# Of ViTs, which begin from nothing here, where SGD hardly moves them.
VIT_PEAK = 1e-3


def main(argv: list[str] | None = None) -> int:
    """Trains what is missing and prints the table."""
    args = make_parser().parse_args(argv)
    with experiments.errors_in_one_line("run.py"):
        models = experiments.chosen_models(args.models, [*RESNETS, *VITS], {"all": [*RESNETS]})
        for name, least in (("epochs", 1), ("batch", 2), ("workers", 0)):
            if getattr(args, name) < least:
                raise UserError(f"--{name} must be at least {least}, not {getattr(args, name)}")
        device = experiments.chosen_device(args)
        from pictures import load  # takes torchvision

        pictures = load(args.pictures, args.data, args.validate)
        names = ("pictures", "depth", "epochs", "batch", "lr", "alpha", "beta", "validate")
        settings = {name: getattr(args, name) for name in names}
        folder = args.out / args.pictures
        for model in models:  # what cannot be built is told before anything is trained
            build(describe(model, pictures, args))

        def train(model: str, seed: int, display: Display) -> dict[str, Any]:
            place = folder / model / f"seed{seed}"
            about = describe(model, pictures, args)
            network, figures = train_one(about, pictures, seed, args, device, place, display)
            experiments.save_weights(
                place / "model.safetensors", network.state_dict(), {"network": about}
            )
            (place / "state.safetensors").unlink()
            return figures

        results = experiments.run_all(folder, settings, models, args.seeds, train)
        figures = {"top1": "top-1, %", "top5": "top-5, %"}
        print(experiments.comparison(results, models, args.seeds, figures, scale=100))
        print(f"{folder}: results.json, and each run's weights")
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pictures", choices=("digits", "cifar10", "cifar100", "imagenet"))
    parser.add_argument("--data", type=Path, help="folder with the pictures (digits need none)")
    parser.add_argument(
        "--models",
        nargs="+",
        default=list(DEFAULT),
        metavar="MODEL",
        help=f"of {', '.join([*RESNETS, *VITS])}; or all ResNets (default: {' '.join(DEFAULT)})",
    )
    parser.add_argument(
        "--depth",
        default="small",
        choices=("small", "34", "50", "101", "152"),
        help="of ResNets; small: 10 layers of 16 to 64 channels (default: %(default)s)",
    )
    parser.add_argument("--epochs", type=int, default=8, help="(paper: 100; default: 8)")
    parser.add_argument("--batch", type=int, default=32, help="(paper: 256; default: 32)")
    parser.add_argument(
        "--lr", type=float, help="at its peak (default: 0.128 for each 256 of a batch; ViT: 0.001)"
    )
    parser.add_argument("--alpha", type=float, help="(default: as the paper; ViT: 0.1)")
    parser.add_argument("--beta", type=float, help="(default: 1; ViT: 0.3)")
    parser.add_argument(
        "--validate",
        action="store_true",
        help="report on a tenth of the training pictures, which is not trained on",
    )
    parser.add_argument("--workers", type=int, default=0, help="processes that read pictures")
    parser.add_argument("--compile", action="store_true", help="train what torch.compile makes")
    experiments.run_arguments(parser, 3, "work/images")
    return parser


def describe(model: str, pictures: Any, args: argparse.Namespace) -> dict[str, Any]:
    """What :func:`build` builds a network of; JSON."""
    mixing = {name: getattr(args, name) for name in ("alpha", "beta")}
    mixing = {name: value for name, value in mixing.items() if value is not None}
    if model in VITS:
        options = {"alpha": 0.1, "beta": 0.3} | mixing if model == "ea-vit" else None
        return {"vit": _vit(pictures), "evolve": options}
    from ea_fairseq.networks import resnets

    kind, own = RESNETS[model]
    unused = {"convolution": "beta", "skip": "alpha"}
    shape = {"size": pictures.size, "channels": pictures.channels, "classes": pictures.classes}
    if args.depth == "small":
        shape |= small()
    if pictures.size < 64:
        shape["small"] = True
    depth = 34 if args.depth == "small" else int(args.depth)
    if kind == "plain":
        shape["attention"] = (None,) * 4
    settings = resnets.resnet_settings(depth, kind, **shape)
    if kind == "ea-aa":
        options = settings.options | mixing | own
        for name, value in own.items():
            if value == "none":
                del options[unused[name]]
        settings = replace(settings, options=options)
    return {"resnet": resnets.as_json(settings)}


def small() -> dict[str, Any]:
    """A ResNet for pictures of 8 x 8: attention over 64 pixels, then over 16."""
    widths = (16, 32, 64, 64)
    from ea_fairseq.networks.resnets import attention_widths

    return {
        "layers": (1, 1, 1, 1),
        "widths": widths,
        "strides": (1, 1, 2, 1),
        "heads": 4,
        "attention": attention_widths(widths, 4, keys=0.5, values=0.25),
    }


def _vit(pictures: Any) -> dict[str, Any]:
    """A ViT's configuration: for digits patches of 2 x 2, four layers 64 wide."""
    if pictures.size == 224:  # ViT-B/16
        return {"image_size": 224, "patch_size": 16, "num_labels": pictures.classes}
    return {
        "image_size": pictures.size,
        "patch_size": pictures.size // 4 if pictures.size < 16 else 4,
        "num_channels": pictures.channels,
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        # transformers' 0.02 is for widths of 768: here it all but silences every layer.
        "initializer_range": 0.1,
        "num_labels": pictures.classes,
    }


def build(about: dict[str, Any]) -> nn.Module:
    """A network of what :func:`describe` said, with weights drawn from torch's random numbers."""
    if "resnet" in about:
        from ea_fairseq.networks.resnets import AugmentedResNet, from_json

        return AugmentedResNet(from_json(about["resnet"]))
    from ea_fairseq.hf import evolve

    settings = {**about["vit"], "attn_implementation": "eager"}
    from transformers import ViTConfig, ViTForImageClassification  # which hf makes importable

    network = ViTForImageClassification(ViTConfig(**settings))
    return network if about["evolve"] is None else evolve(network, **about["evolve"])


def train_one(
    about: dict[str, Any],
    pictures: Any,
    seed: int,
    args: argparse.Namespace,
    device: torch.device,
    place: Path,
    display: Display,
) -> tuple[nn.Module, dict[str, Any]]:
    """One run, from its last whole epoch where it was stopped: the network and its figures."""
    torch.manual_seed(seed)
    network = build(about).to(device)
    is_vit = "vit" in about
    peak = args.lr if args.lr is not None else VIT_PEAK if is_vit else PEAK * args.batch / 256
    if is_vit:
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(network.parameters(), peak)
    else:
        optimizer = torch.optim.SGD(network.parameters(), peak, momentum=0.9, weight_decay=1e-4)
    compiled = torch.compile(network) if args.compile else network
    loader = DataLoader(
        pictures.train, args.batch, shuffle=True, drop_last=True, num_workers=args.workers
    )
    if not len(loader):
        raise UserError(f"--batch {args.batch}: there are {len(pictures.train)} pictures alone")
    # What was trained on all pictures must not be gone on with as if some had been held out.
    made_with = json.dumps([about, args.epochs, args.batch, peak, args.validate])
    state_path = place / "state.safetensors"
    state, begun = experiments.load_state(state_path), 0
    if state is not None:
        if state["about"] != made_with:
            raise UserError(f"{state_path}: is of a run with other settings; delete it")
        begun = state["epoch"]
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
    for epoch in range(begun, args.epochs):
        network.train()
        for batch, (inputs, classes) in enumerate(loader):
            rate = schedule((epoch + batch / len(loader)) / args.epochs, is_vit)
            for group in optimizer.param_groups:
                group["lr"] = peak * rate
            optimizer.zero_grad()
            loss = F.cross_entropy(logits_of(compiled, inputs.to(device)), classes.to(device))
            loss.backward()
            optimizer.step()
            display.show(f"epoch {epoch + 1} of {args.epochs}, loss {loss.item():.3f}")
        if not math.isfinite(loss.item()):
            raise UserError(f"{place}: the loss is {loss.item()} in epoch {epoch + 1}: lower --lr")
        experiments.save_state(
            state_path,
            {
                "about": made_with,
                "epoch": epoch + 1,
                "network": network.state_dict(),
                "optimizer": optimizer.state_dict(),
                "random": torch.get_rng_state(),
            },
        )
    top1, top5 = accuracies(network, pictures.test, args.batch, device, args.workers)
    display.status.what = f"top-1 {100 * top1:.2f} %, top-5 {100 * top5:.2f} %"
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return network, {"parameters": parameters, "top1": top1, "top5": top5}


def schedule(done: float, is_vit: bool = False) -> float:
    """The learning rate as a part of its peak, at a part of the epochs.

    ResNets: section 4.4 of arXiv 2212.08330: up in the first twentieth, a tenth at each of 0.3,
    0.6, 0.8 and 0.9. ViTs: up likewise, then down along a cosine (Dosovitskiy et al. 2021).
    """
    up = min(1.0, done / WARM_UP)
    if is_vit:
        return up * (1 + math.cos(math.pi * done)) / 2
    return up * 0.1 ** sum(done >= step for step in STEPS)


def logits_of(network: nn.Module, pictures: torch.Tensor) -> torch.Tensor:
    """The classes' logits, of a ResNet or of a model of transformers."""
    found = network(pictures)
    return found if isinstance(found, torch.Tensor) else found.logits


@torch.no_grad()
def accuracies(
    network: nn.Module, pictures: Dataset[Any], batch: int, device: torch.device, workers: int = 0
) -> tuple[float, float]:
    """How many pictures have their class first, and among the first five."""
    network.eval()
    first = among = 0
    for inputs, classes in DataLoader(pictures, batch, num_workers=workers):
        logits = logits_of(network, inputs.to(device))
        order = logits.topk(min(5, logits.size(1))).indices.cpu() == classes[:, None]
        first += int(order[:, 0].sum())
        among += int(order.any(1).sum())
    return first / len(pictures), among / len(pictures)


if __name__ == "__main__":
    raise SystemExit(main())
