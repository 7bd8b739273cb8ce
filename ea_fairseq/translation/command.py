"""``ea-translate``: text in, one line of text out for each line in."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ..files import check_is_text, check_output, is_stream, named_error, new_file, writing_mode
from . import seeing

if TYPE_CHECKING:
    from .translator import Translation

_DESCRIPTION = """Translate lines of text with a model folder.

    ea-translate MODEL < source.txt > translation.txt
    ea-translate MODEL
    ea-translate MODEL --plot maps.png "Ein Satz."
    ea-translate MODEL --serve

Every line has its translation in its place; an empty line an empty one. On a terminal each line is
answered as it is typed. The exit code is 1 where a line could not be translated, which is told at
the end; the others are there."""

#: Lines that are read, sorted by length and translated together where nobody waits for an answer.
_BUFFER = 2000
_PROBLEMS_SHOWN = 20


def main(argv: list[str] | None = None) -> int:
    """The console script; the exit code is 0 when every line is translated."""
    parser = argparse.ArgumentParser(
        prog="ea-translate",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Several of them only behind --serve, whose other options may stand in between.
    parser.add_argument("model", type=Path, nargs="*", help="model folder, see export_model.py")
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
    files = parser.add_argument_group("files")
    files.add_argument("--input", type=Path, metavar="FILE", help="(default: standard input)")
    files.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="there when complete; FILE.part of an interrupted one (default: standard output)",
    )
    files.add_argument(
        "--buffer-size",
        type=int,
        metavar="N",
        help=f"translate N lines at a time (default: {_BUFFER}; 1 from a terminal)",
    )
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
    search.add_argument(
        "--ensemble",
        type=Path,
        nargs="+",
        default=[],
        metavar="MODEL",
        help="more models that decide together with the first",
    )
    shown = parser.add_argument_group("output")
    shown.add_argument(
        "--n-best", type=int, default=1, metavar="N", help="N lines for each, the best first"
    )
    shown.add_argument(
        "--scores",
        action="store_true",
        help="a score and a tab before each translation: mean log-probability of its tokens, to "
        "base 2, as fairseq-generate prints it",
    )
    shown.add_argument(
        "--alignments",
        action="store_true",
        help="a tab and pairs of subwords behind each translation: source-target, counted from 0",
    )
    shown.add_argument(
        "--json", action="store_true", help="an object a line instead, with tokens and scores"
    )
    machine = parser.add_argument_group("machine")
    machine.add_argument("--threads", type=int, metavar="N", help="(default: torch's choice)")
    machine.add_argument("--device", default="cpu", help="torch's name of it (default: cpu)")
    machine.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "int8"),
        default="float32",
        help="of numbers (default: float32); int8 is about as good and faster on a CPU",
    )
    machine.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="source tokens translated at once (default: what is fast)",
    )


def run(models: list[Path], args: argparse.Namespace, program: str) -> int:
    """What the command line asks for.

    Args:
        models: model folders; several decide together
        args: with the attributes of `add_options`
        program: name for messages

    Returns:
        the exit code
    """
    logging.basicConfig(format=f"{program}: %(message)s", level=logging.WARNING)
    try:
        problems, untranslated = _translate(models, args)
    except (ValueError, OSError) as error:
        reason: object = error
        if isinstance(error, OSError) and error.filename is not None:
            reason = f"{error.strerror}: {error.filename}"
        if isinstance(error, BrokenPipeError):  # whoever reads our output has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        else:
            print(f"{program}: error: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        if interrupt.args:
            print(f"{program}: {interrupt}", file=sys.stderr)
        return 130
    for number, problem in problems[:_PROBLEMS_SHOWN]:
        print(f"{program}: line {number}: {problem}", file=sys.stderr)
    if len(problems) > _PROBLEMS_SHOWN:
        numbers = ", ".join(str(number) for number, _ in problems[_PROBLEMS_SHOWN:])
        print(f"{program}: likewise lines {numbers}", file=sys.stderr)
    return 1 if untranslated else 0


def _translate(models: list[Path], args: argparse.Namespace) -> tuple[list[tuple[int, str]], bool]:
    """Translates; returns the lines with problems (numbers from 1, and what is the matter), and
    whether any of them is without translation."""
    if args.buffer_size is not None and args.buffer_size < 1:
        raise ValueError(f"--buffer-size {args.buffer_size}: give 1 or more")
    talking = args.input is None and sys.stdin is not None and sys.stdin.isatty()
    if args.input is not None and not args.input.exists():
        raise ValueError(f"{args.input}: no such file")
    if args.output is not None:
        check_output(args.output, "--output", [args.input or Path("/dev/stdin")])
    if args.input is not None and args.input.is_file():
        with open(args.input, "rb") as file:
            check_is_text(file.read(10), str(args.input))
    if talking:
        print("loading ...", end="", file=sys.stderr, flush=True)

    from .translator import Translator

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
    answers = translator.stream(
        _lines(args.input, talking),
        buffer=args.buffer_size or (1 if talking else _BUFFER),
        long=args.long,
        details=True,
        attention=args.alignments,
        progress=sys.stderr.isatty() and not talking,
        **options,
    )
    problems, untranslated = [], False
    with _output(args.output) as output:
        for number, answer in enumerate(answers, start=1):
            found = answer if isinstance(answer, list) else [answer]
            for line in [_json(found, args)] if args.json else [_line(t, args) for t in found]:
                output.write(f"{line}\n")
            output.flush()
            if found[0].problem is not None:
                problems.append((number, found[0].problem))
                untranslated |= not found[0].parts
    return problems, untranslated


def _lines(path: Path | None, talking: bool) -> Iterator[str]:
    from ..compat.dirty_input import read_lines

    lines = read_lines("-" if path is None else str(path))
    while True:
        if talking:
            print("> ", end="", file=sys.stderr, flush=True)
        line = next(lines, None)
        if line is None:
            break
        yield line
    if talking:
        print(file=sys.stderr)


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that is there when it is complete; UTF-8 whatever the locale.

    Raises:
        OSError: naming the file
        KeyboardInterrupt: which says where the lines are that were written before it
    """
    if path is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        yield sys.stdout
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with new_file(path) as temporary:
            try:
                mode = writing_mode(temporary)
                with open(temporary, mode, encoding="utf-8", newline="\n") as file:
                    yield file
            except KeyboardInterrupt:
                if is_stream(path) or not temporary.stat().st_size:
                    raise
                part = temporary.with_suffix(".part")
                os.replace(temporary, part)
                raise KeyboardInterrupt(f"interrupted: {part} has what was translated") from None
    except OSError as error:
        raise error if error.filename is not None else named_error(error, path) from None


def _line(translation: Translation, args: argparse.Namespace) -> str:
    columns = [translation.text]
    if args.scores:
        columns.insert(0, f"{translation.score:.4f}")
    if args.alignments:
        columns.append(" ".join(f"{i}-{j}" for i, j in _alignments(translation)))
    return "\t".join(columns)


def _json(found: list[Translation], args: argparse.Namespace) -> str:
    """All translations of a line as one object."""
    best = found[0]
    content: dict[str, Any] = {"source": best.source, "source_tokens": best.source_tokens}
    alternatives = []
    for translation in found:
        entry: dict[str, Any] = {
            "text": translation.text,
            "score": translation.score,
            "tokens": translation.tokens,
            "token_scores": translation.token_scores,
        }
        if args.alignments:
            entry["alignments"] = _alignments(translation)
        alternatives.append(entry)
    content |= alternatives[0] if args.n_best == 1 else {"translations": alternatives}
    content["problem"] = best.problem
    return json.dumps(content, ensure_ascii=False)


def _alignments(translation: Translation) -> list[tuple[int, int]]:
    """Each target token with the source token that it looked at most; ends of sentences apart."""
    pairs = []
    source = target = 0
    for part in translation.parts:
        if part.attention is not None and len(part.source_tokens) > 1:
            most = part.attention[:-1, :-1].argmax(dim=1).tolist()
            pairs += [(source + i, target + j) for j, i in enumerate(most)]
        source += len(part.source_tokens)
        target += len(part.tokens)
    return pairs


if __name__ == "__main__":
    sys.exit(main())
