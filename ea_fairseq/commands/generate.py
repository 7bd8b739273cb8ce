"""``ea-generate``: beginnings of texts in, whole texts out, a line for each."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CommandParser
from ..user_dir import import_user_dir
from . import lines

if TYPE_CHECKING:
    from ..inference.language_model import Continuation

_DESCRIPTION = """Go on with lines of text, with a language model's folder.

    ea-generate MODEL < beginnings.txt > texts.txt
    ea-generate MODEL
    ea-generate MODEL --sampling --top-p 0.9 --n-best 3

Every line is read as the beginning of one, and printed with what the model goes on with: the most
probable text that beam search finds, or with --sampling one that is drawn. An empty line is the
beginning of any. On a terminal each line is answered as it is typed. The exit code is 1 where a
line is too long for the model, which is told at the end; the others are there."""

# Options of the one search that mean nothing to the other.
_OF_BEAM_SEARCH = ("beam", "lenpen")
_OF_SAMPLING = ("top_k", "top_p", "temperature", "seed")


def main(argv: list[str] | None = None) -> int:
    """The console script; the exit code is 0 when every line is gone on with."""
    parser = make_parser()
    args = parser.parse_args(argv)
    return lines.run(lambda: _generate(args), parser.prog)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = CommandParser(
        prog="ea-generate",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, help="model folder, made by ea-export")
    lines.add_files(parser, "go on with")
    search = parser.add_argument_group("beam search")
    search.add_argument("--beam", type=int, metavar="N", help="(default: the model's own)")
    search.add_argument("--lenpen", type=float, metavar="P", help="(default: the model's own)")
    drawing = parser.add_argument_group("sampling")
    drawing.add_argument(
        "--sampling", action="store_true", help="draw each token by its probability"
    )
    drawing.add_argument(
        "--top-k", type=int, metavar="K", help="among the K most probable (default: all)"
    )
    drawing.add_argument(
        "--top-p",
        type=float,
        metavar="P",
        help="among the fewest that have probability P together (default: all)",
    )
    drawing.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="divides the logits: below 1 the probable becomes more probable (default: 1)",
    )
    drawing.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="of the draws: the same one gives the same texts (default: 1)",
    )
    both = parser.add_argument_group("both")
    both.add_argument(
        "--max-len",
        type=int,
        metavar="N",
        help="at most N tokens behind the beginning (default: the model's own, or as many as it "
        "reads)",
    )
    lines.add_ensemble(both)
    shown = parser.add_argument_group("output")
    shown.add_argument(
        "--n-best",
        type=int,
        default=1,
        metavar="N",
        help="N lines for each, the best first; of sampling as they were drawn",
    )
    shown.add_argument(
        "--scores",
        action="store_true",
        help="a score and a tab before each text, as fairseq-interactive prints it: its "
        "log-probability to base 2, divided by the number of its tokens, those of the beginning "
        "too (to the power of the length penalty)",
    )
    shown.add_argument(
        "--json", action="store_true", help="an object a line instead, with tokens and scores"
    )
    dtypes = {"float32": "", "bfloat16": ""}  # what is compiled does not serve language models
    lines.add_machine(parser, "tokens of beginnings read", dtypes)
    return parser


def _generate(args: argparse.Namespace) -> lines.Outcome:
    _check_search(args)
    talking = lines.check_files(args)
    import_user_dir(args.user_dir)
    if talking:
        print("loading ...", end="", file=sys.stderr, flush=True)

    from ..inference.language_model import LanguageModel
    from ..inference.sampling import Sampling

    given = {name: getattr(args, name) for name in _OF_SAMPLING}
    given = {name: value for name, value in given.items() if value is not None}
    sampling = Sampling(**given) if args.sampling else None
    models = [args.model, *args.ensemble]
    model = LanguageModel(models, device=args.device, dtype=args.dtype, threads=args.threads)
    options: dict[str, Any] = {} if args.max_tokens is None else {"max_tokens": args.max_tokens}
    if talking:
        print("\rready: type the beginning of a line; Ctrl-D ends", file=sys.stderr)
    broken: list[int] = []
    answers = model.stream(
        lines.lines(args.input, talking, broken),
        beam=args.beam,
        n_best=args.n_best,
        lenpen=args.lenpen,
        max_len=args.max_len,
        sampling=sampling,
        details=True,
        progress=sys.stderr.isatty() and not talking,
        buffer=lines.buffer_size(args, talking),
        **options,
    )
    found = (answer if isinstance(answer, list) else [answer] for answer in answers)
    written = ((_shown(texts, args), texts[0].problem, bool(texts[0].tokens)) for texts in found)
    return lines.write(args.output, written, broken)


def _check_search(args: argparse.Namespace) -> None:
    """Refuses options of the search that is not asked for."""
    others = _OF_BEAM_SEARCH if args.sampling else _OF_SAMPLING
    for name in (name for name in others if getattr(args, name) is not None):
        option = f"--{name.replace('_', '-')}"
        if args.sampling:
            raise ValueError(f"{option} goes with beam search: leave it or --sampling out")
        raise ValueError(f"{option} goes with --sampling: give that too, or leave it out")


def _shown(found: list[Continuation], args: argparse.Namespace) -> list[str]:
    """What is written of a line's texts."""
    if args.json:
        return [_json(found, args)]
    return [f"{one.score:.4f}\t{one.text}" if args.scores else one.text for one in found]


def _json(found: list[Continuation], args: argparse.Namespace) -> str:
    """All texts of a line as one object."""
    best = found[0]
    names = ("text", "score", "tokens", "token_scores", "cut")
    entries = [{name: getattr(one, name) for name in names} for one in found]
    content: dict[str, Any] = {"prefix": best.prefix, "prefix_tokens": best.prefix_tokens}
    content |= entries[0] if args.n_best == 1 else {"texts": entries}
    content["problem"] = best.problem
    return json.dumps(content, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
