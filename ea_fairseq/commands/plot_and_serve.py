"""``ea-translate --plot`` and ``--serve``: a model in a picture, or in the browser."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..user_dir import import_user_dir

#: Options of translating lines, which neither picture nor page takes.
_OF_TRANSLATING = (
    *("input", "output", "buffer_size", "beam", "lenpen", "long", "n_best"),
    *("scores", "alignments", "json", "max_tokens"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of both."""
    group = parser.add_argument_group("looking inside, in the place of translating")
    group.add_argument(
        "--plot",
        nargs=2,
        metavar=("FILE", "TEXT"),
        help="draw what the model attends to while it translates TEXT: .png, .pdf or .svg "
        "(plot_attention.py draws single layers and heads)",
    )
    group.add_argument(
        "--serve",
        nargs="*",
        type=Path,
        metavar="MODEL",
        help="a page in the browser, on this machine's own address; of two models to compare them",
    )
    group.add_argument("--port", type=int, metavar="N", help="of the page (default: 8000)")
    group.add_argument(
        "--host",
        metavar="ADDRESS",
        help="let other machines reach the page at this address: without password or encryption",
    )


def is_wanted(args: argparse.Namespace) -> bool:
    """Whether an option of this file was given."""
    return any(getattr(args, name) is not None for name in ("plot", "serve", "port", "host"))


def run(args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """What the command line asks for; returns the exit code."""
    if args.serve is None and (args.port is not None or args.host is not None):
        parser.error("--port and --host go with --serve")
    if args.serve is not None and args.plot is not None:
        parser.error("--plot and --serve: give one of them")
    models = [*args.model, *args.ensemble, *(args.serve or [])]
    if not models:
        parser.error("the following arguments are required: model")
    chosen = "--plot" if args.serve is None else "--serve"
    for name in _OF_TRANSLATING:
        if getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} does not go with {chosen}: leave it out")
    try:
        import_user_dir(args.user_dir)
        if args.serve is None:
            _plot(models, args)
        elif args.ensemble:
            raise ValueError("--ensemble does not go with --serve, which shows each model alone")
        else:
            from ..page.server import serve

            serve(
                models,
                args.host,
                8000 if args.port is None else args.port,
                device=args.device,
                dtype=args.dtype,
                threads=args.threads,
            )
    except ValueError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _plot(models: list[Path], args: argparse.Namespace) -> None:
    from ..inference.plots import check_picture, plot_attention, translated_part
    from ..inference.translator import Translator

    if len(models) > 1:
        raise ValueError("--ensemble does not go with --plot, which draws one model")
    output, text = Path(args.plot[0]), args.plot[1]
    check_picture(output)
    translator = Translator(models[0], device=args.device, dtype=args.dtype, threads=args.threads)
    plot_attention(translator, translated_part(translator, text), output)
    print(output)
