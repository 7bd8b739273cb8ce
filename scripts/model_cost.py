#!/usr/bin/env python3
"""Parameters and FLOPs of architectures, in the convention of the paper's Table 5.

    python scripts/model_cost.py --arch transformer_lite ea_transformer_lite
    python scripts/model_cost.py --arch ea_transformer_base --set ea-kernel-size=5

Parameters leave out embeddings and the output layer. FLOPs are those of one sentence, 30 source and
30 target tokens unless told otherwise, two for a multiply-add, again without embeddings and output
layer; they are counted while the model runs, products of attention included. A convolution branch
counts as what fairseq makes of it, a product with a matrix of length x length.
"""

from __future__ import annotations

import argparse
import json
import sys

from ea_fairseq.user_dir import add_user_dir, import_user_dir


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
    parser.add_argument("--src-len", type=int, help="source tokens (default: 30)")
    parser.add_argument("--tgt-len", type=int, default=30, help="target tokens (default: 30)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_user_dir(parser)
    args = parser.parse_args(argv)

    from ea_fairseq.models.cost import cost, every_architecture, parse  # take torch and fairseq

    for name in ("src_len", "tgt_len"):
        if (length := getattr(args, name)) is not None and length < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    options = dict(_option(text) for text in args.set)
    try:
        import_user_dir(args.user_dir)
        archs = args.arch or every_architecture()
        for arch in archs:
            if unknown := parse(arch, options)[1]:
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
