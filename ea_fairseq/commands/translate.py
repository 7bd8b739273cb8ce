"""``ea-translate``: text in, one line of text out for each line in."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CommandParser
from ..user_dir import import_user_dir
from . import lines
from . import plot_and_serve as seeing

if TYPE_CHECKING:
    from ..inference.translator import Translation

_DESCRIPTION = """Translate lines of text with a model folder.

    ea-translate MODEL < source.txt > translation.txt
    ea-translate MODEL
    ea-translate MODEL --plot maps.png "Ein Satz."
    ea-translate MODEL --serve

Every line has its translation in its place; an empty line an empty one. On a terminal each line is
answered as it is typed. The exit code is 1 where a line could not be translated, which is told at
the end; the others are there."""


def main(argv: list[str] | None = None) -> int:
    """The console script; the exit code is 0 when every line is translated."""
    parser = CommandParser(
        prog="ea-translate",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Several of them only behind --serve, whose other options may stand in between.
    parser.add_argument("model", type=Path, nargs="*", help="model folder, made by ea-export")
    add_options(parser)
    seeing.add_options(parser)
    args = parser.parse_args(argv)
    if seeing.is_wanted(args):
        return seeing.run(args, parser)
    if not args.model:
        parser.error("the following arguments are required: model")
    if len(args.model) > 1 and args.model[1].is_file():
        parser.error(f"{args.model[1]} is a file: give it with --input")
    if len(args.model) > 1:
        parser.error(f"{args.model[1]}: a second model goes behind --ensemble, or with --serve")
    return run([*args.model, *args.ensemble], args, parser.prog)


def add_options(parser: argparse.ArgumentParser) -> None:
    """All options but the model."""
    lines.add_files(parser, "translate")
    search = parser.add_argument_group("search")
    search.add_argument("--beam", type=int, metavar="N", help="(default: the model's own)")
    search.add_argument("--lenpen", type=float, metavar="P", help="(default: the model's own)")
    search.add_argument(
        "--long",
        choices=("split", "refuse", "whole"),
        default="split",
        help="what happens to lines longer than the model was trained on: split at the ends of "
        "sentences (default), refuse, or translate as a whole",
    )
    lines.add_ensemble(search)
    shown = parser.add_argument_group("output")
    shown.add_argument(
        "--n-best", type=int, default=1, metavar="N", help="N lines for each, the best first"
    )
    shown.add_argument(
        "--scores",
        action="store_true",
        help="a score and a tab before each translation, as fairseq-generate prints it: its "
        "log-probability to base 2, divided by the number of its tokens (to the power of the "
        "length penalty)",
    )
    shown.add_argument(
        "--alignments",
        action="store_true",
        help="a tab and pairs of subwords behind each translation: source-target, counted from 0",
    )
    shown.add_argument(
        "--json", action="store_true", help="an object a line instead, with tokens and scores"
    )
    int8 = "int8 is about as good, and faster on a CPU with AVX-512 VNNI"
    dtypes = {"float32": "", "bfloat16": "", "int8": int8}
    lines.add_machine(parser, "source tokens translated", dtypes)


def run(models: list[Path], args: argparse.Namespace, program: str) -> int:
    """What the command line asks for.

    Args:
        models: model folders; several decide together
        args: with the attributes of `add_options`
        program: name for messages

    Returns:
        the exit code
    """
    return lines.run(lambda: _translate(models, args), program)


def _translate(models: list[Path], args: argparse.Namespace) -> lines.Outcome:
    talking = lines.check_files(args)
    import_user_dir(args.user_dir)
    if talking:
        print("loading ...", end="", file=sys.stderr, flush=True)

    from ..inference.translator import Translator, first_problem

    translator = Translator(models, device=args.device, dtype=args.dtype, threads=args.threads)
    options: dict[str, Any] = {"beam": args.beam, "lenpen": args.lenpen, "n_best": args.n_best}
    if args.max_tokens is not None:
        options["max_tokens"] = args.max_tokens
    if talking:
        text = translator.config.text
        print(
            f"\rready: type {text.source_lang}, read {text.target_lang}; Ctrl-D ends",
            file=sys.stderr,
        )
    broken: list[int] = []
    answers = translator.stream(
        lines.lines(args.input, talking, broken),
        buffer=lines.buffer_size(args, talking),
        long=args.long,
        details=True,
        attention=args.alignments,
        progress=sys.stderr.isatty() and not talking,
        **options,
    )
    found = (answer if isinstance(answer, list) else [answer] for answer in answers)
    written = ((_shown(texts, args), first_problem(texts), bool(texts[0].parts)) for texts in found)
    return lines.write(args.output, written, broken)


def _shown(found: list[Translation], args: argparse.Namespace) -> list[str]:
    """What is written of a line's translations."""
    if args.json:
        return [_json(found, args)]
    return [_line(translation, args) for translation in found]


def _line(translation: Translation, args: argparse.Namespace) -> str:
    columns = [translation.text]
    if args.scores:
        columns.insert(0, f"{translation.score:.4f}")
    if args.alignments:
        columns.append(" ".join(f"{i}-{j}" for i, j in _alignments(translation, False)))
    return "\t".join(columns)


def _json(found: list[Translation], args: argparse.Namespace) -> str:
    """All translations of a line as one object."""
    best = found[0]
    content: dict[str, Any] = {
        "source": best.source,
        "source_tokens": best.source_tokens,
        "unknown_tokens": best.unknown_tokens,
    }
    alternatives = []
    for translation in found:
        entry: dict[str, Any] = {
            "text": translation.text,
            "score": translation.score,
            "tokens": translation.tokens,
            "token_scores": translation.token_scores,
        }
        if args.alignments:
            entry["alignments"] = _alignments(translation, True)
        alternatives.append(entry | {"problem": translation.problem})
    content |= alternatives[0] if args.n_best == 1 else {"translations": alternatives}
    content["problem"] = best.problem
    return json.dumps(content, ensure_ascii=False)


def _alignments(translation: Translation, with_ends: bool) -> list[tuple[int, int]]:
    """Each target token with the source token that it looked at most; ends of sentences apart.

    In JSON, tokens are counted with the ends of sentences that stand between a line's parts.
    """
    pairs = []
    source = target = 0
    ends = 0 if with_ends else 1
    for part in translation.parts:
        if part.attention is not None and len(part.source_tokens) > 1:
            most = part.attention[:-1, :-1].argmax(dim=1).tolist()
            pairs += [(source + i, target + j) for j, i in enumerate(most)]
        source += max(len(part.source_tokens) - ends, 0)
        target += max(len(part.tokens) - ends, 0)
    return pairs


if __name__ == "__main__":
    sys.exit(main())
