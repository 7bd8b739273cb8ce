#!/usr/bin/env python3
"""Draw what a model attends to while it translates a sentence.

    python scripts/plot_attention.py model "Ein Mann mit einem Hut." --output maps.png

For encoder, decoder and encoder-decoder attention, in every layer: the fresh map (what the layer's
own queries and keys say), what the convolution adds, and the evolved map, whose rows are the
probabilities that the layer uses. Layers and heads count from 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    """Draw the picture; the exit code is 0 when it is there."""
    args = make_parser().parse_args(argv)
    try:
        draw(args)
    except (ValueError, OSError) as error:
        print(f"plot_attention.py: error: {error}", file=sys.stderr)
        return 1
    print(args.output)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="model folder, made by export_model.py")
    parser.add_argument("text", help="the sentence to translate")
    parser.add_argument("--output", type=Path, required=True, help="picture: .png, .pdf or .svg")
    parser.add_argument(
        "--attention",
        action="append",
        help="encoder, decoder or encoder-decoder; may be given again (default: all)",
    )
    parser.add_argument("--layer", type=int, action="append", help="one layer; may be given again")
    parser.add_argument("--head", type=int, help="one head (default: the mean of all)")
    return parser


def draw(args: argparse.Namespace) -> None:
    """What the command line asks for."""
    from ea_fairseq.attention.options import ATTENTIONS
    from ea_fairseq.inference.plots import check_picture, plot_attention, translated_part
    from ea_fairseq.inference.translator import Translator

    check_picture(args.output)
    translator = Translator(args.model)
    plot_attention(
        translator,
        translated_part(translator, args.text),
        args.output,
        attentions=args.attention or ATTENTIONS,
        layers=args.layer,
        head=args.head,
    )


if __name__ == "__main__":
    sys.exit(main())
