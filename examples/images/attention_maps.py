#!/usr/bin/env python3
"""Draws where a pixel attends to in successive layers, for one picture and one or more networks.

    python examples/images/attention_maps.py --output maps.png --picture 3 \
        work/images/digits/aa-resnet/seed1 work/images/digits/ea-aa-resnet/seed1

A row for each network (a folder that run.py left): the picture with the pixel marked, then its
attention in layer after layer, the mean over heads, each over the layer's own range.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ea_fairseq.errors import UserError
from ea_fairseq.experiments import errors_in_one_line, load_weights
from ea_fairseq.files import check_output, new_file


def main(argv: list[str] | None = None) -> int:
    """Draws the picture."""
    args = make_parser().parse_args(argv)
    with errors_in_one_line("attention_maps.py"):
        if args.output.suffix not in (".png", ".pdf"):
            raise UserError(f"--output {args.output}: choose a name in .png or .pdf")
        check_output(args.output, "--output", [run / "model.safetensors" for run in args.run])
        import pictures
        from run import build  # takes torch and torchvision

        data = pictures.load(args.pictures, args.data, validate=False)
        if not 0 <= args.picture < len(data.test):
            raise UserError(f"--picture {args.picture}: there are {len(data.test)}, from 0")
        picture, _ = data.test[args.picture]
        rows = []
        for run in args.run:
            weights, settings = load_weights(run / "model.safetensors")
            network = build(settings["network"]).eval()
            network.load_state_dict(weights)
            found = maps_of(network, picture, settings["network"])
            if not found:
                raise UserError(f"{run}: has no attention")
            for layer in args.layers or ():
                if not 0 < layer <= len(found):
                    raise UserError(f"--layers {layer}: {run} has {len(found)}, from 1")
            layers = args.layers or range(1, len(found) + 1)
            chosen = [(layer, found[layer - 1]) for layer in layers]
            rows.append((f"{run.parent.name} {run.name}", chosen))
        draw(picture, rows, args.output)
    print(args.output)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="+", type=Path, help="folder of one seed")
    parser.add_argument("--output", type=Path, required=True, help="picture, .png or .pdf")
    parser.add_argument("--picture", type=int, default=0, help="of the test pictures, from 0")
    parser.add_argument("--layers", type=int, nargs="+", help="attentions, from 1 (default: all)")
    parser.add_argument(
        "--pictures", default="digits", choices=("digits", "cifar10", "cifar100", "imagenet")
    )
    parser.add_argument("--data", type=Path, help="folder with the pictures (digits need none)")
    return parser


@torch.no_grad()
def maps_of(network: torch.nn.Module, picture: Tensor, about: dict[str, Any]) -> list[Tensor]:
    """Where the pixel in the middle attends to in each layer: (height, width), mean over heads.

    A ViT's is the patch in the middle; what it gives the class token is left out.
    """
    if "vit" in about:
        maps = network(picture[None], output_attentions=True).attentions
        maps = [one[:, :, 1:, 1:] for one in maps]
    else:
        _, maps = network(picture[None], need_probs=True)
    found = []
    for one in maps:
        side = round(one.size(-1) ** 0.5)
        middle = side // 2 * side + side // 2
        found.append(one[0, :, middle].mean(0).view(side, side))
    return found


def draw(picture: Tensor, rows: list[tuple[str, list[tuple[int, Tensor]]]], output: Path) -> None:
    """A row of pictures for each network, of layers by their numbers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = 1 + max(len(found) for _, found in rows)
    figure, axes = pyplot.subplots(
        len(rows), columns, figsize=(1.3 * columns, 1.5 * len(rows)), squeeze=False
    )
    shown = picture.mean(0)
    for line, (name, found) in zip(axes, rows, strict=True):
        for axis in line:
            axis.axis("off")
        line[0].imshow(shown.numpy(), cmap="gray")
        line[0].plot(shown.size(1) // 2, shown.size(0) // 2, "o", color="tab:orange", ms=4)
        line[0].set_title(name, fontsize=6)
        for axis, (number, one) in zip(line[1:], found, strict=False):
            axis.imshow(one.numpy(), cmap="Blues")
            axis.set_title(f"{number}: {one.size(0)} x {one.size(1)}", fontsize=6)
    figure.tight_layout()
    output.parent.mkdir(parents=True, exist_ok=True)
    with new_file(output) as temporary:
        figure.savefig(temporary, format=output.suffix[1:], dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    raise SystemExit(main())
