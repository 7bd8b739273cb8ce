#!/usr/bin/env python3
"""Translate raw text with a model that a recipe has trained.

    python scripts/translate.py examples/translation/multi30k.de-en/ea_transformer_lite.yml \
        < new.de > new.en

Lines are cleaned, tokenized and split into subwords as the recipe's corpus was, translated by
fairseq-interactive with the recipe's search, and detokenized: one line out for each line in.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread
from typing import IO

from ea_fairseq.corpus import config as corpus_config
from ea_fairseq.corpus.pipeline import data_settings
from ea_fairseq.files import read_json
from ea_fairseq.recipes import commands, places
from ea_fairseq.recipes.arguments import add_arguments
from ea_fairseq.recipes.options import check_options, load_plugin
from ea_fairseq.recipes.recipe import load_recipe
from ea_fairseq.recipes.runs import Run, find_run
from ea_fairseq.text.subwords import apply
from ea_fairseq.text.tokens import Tokenizer, clean_line, detokenizer

#: A best translation as fairseq-interactive prints it: number, score, words.
_ANSWER = re.compile(r"D-(\d+)\t[^\t]*\t(.*)\n")

#: What fairseq logs without being asked; where it goes, and how, depends on what was imported.
_CHATTER = re.compile(r"(INFO|DEBUG):|[-\d]+ [:\d]+ \| (INFO|DEBUG) \|")


def main(argv: list[str] | None = None) -> int:
    """Translate standard input; the exit code is 0 when every line is answered."""
    args = make_parser().parse_args(argv)
    try:
        if args.buffer_size is not None and args.buffer_size < 1:
            raise ValueError(f"--buffer-size {args.buffer_size}: give 1 or more")
        recipe = load_recipe(args.recipe, args.set)
        load_plugin(places.USER_DIR)
        check_options(recipe, places.USER_DIR)
        corpus = corpus_config.load(recipe.corpus)
        run = find_run(recipe, corpus, args.work_dir, args.name, args.seed)
        check_prepared(corpus, run.data)
        if not run.model(recipe).exists():
            raise ValueError(f"{run.model(recipe)}: no such file; train first: run_recipe.py")
        buffer_size = args.buffer_size or (1 if sys.stdin.isatty() else 256)
        command = commands.interactive_command(recipe, run, buffer_size)
        print(f"$ {commands.printable(command, {})}", file=sys.stderr)
        translate(command, splitter(corpus, run), detokenizer(corpus.target_lang))
    except BrokenPipeError:  # whoever reads our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError) as error:
        print(f"translate.py: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", type=Path, help="recipe file (.yml) that was run")
    add_arguments(parser)
    parser.add_argument("--name", help="name of the runs' folder (default: the recipe's name)")
    parser.add_argument("--seed", type=int, default=1, help="which of the runs (default: 1)")
    parser.add_argument(
        "--buffer-size",
        type=int,
        metavar="N",
        help="translate N lines at a time (default: 256; 1 from a terminal)",
    )
    return parser


def check_prepared(corpus: corpus_config.Corpus, data: Path) -> None:
    """Refuse text settings other than those of the data that the model was trained on."""
    prepared = read_json(data / "prepared.json")
    if prepared["settings"] != data_settings(corpus):
        raise ValueError(f"{data}: was prepared with other settings than the recipe's corpus.yml")


def splitter(corpus: corpus_config.Corpus, run: Run) -> Callable[[str], str]:
    """What makes subwords of a raw line, as preparation did with the sources of test sets."""
    tokenizer = Tokenizer(corpus.source_lang, corpus.tokenize, "test", corpus.subword)
    codes = run.data / "codes"

    def split(line: str) -> str:
        return apply(corpus.subword, codes, [tokenizer(clean_line(line))])[0]

    return split


def translate(
    command: list[str], split: Callable[[str], str], detokenize: Callable[[list[str]], str]
) -> None:
    """Send standard input through a command, line by line, and print its answers.

    Args:
        command: fairseq-interactive, reading from standard input
        split: makes subwords of a line
        detokenize: makes a line of words

    Raises:
        ValueError: the command failed, or did not answer every line.
    """
    from ea_fairseq.compat.dirty_input import read_lines

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONWARNINGS": "ignore", **os.environ},
    )
    sent: list[int] = []
    # A daemon, as it may wait for input that nobody will answer.
    feeding = (process.stdin, map(split, read_lines("-")), sent)
    feeder = Thread(target=_feed, args=feeding, daemon=True)
    complaints = Thread(target=_pass_on, args=(process.stderr,))
    try:
        feeder.start()
        complaints.start()
        answered = 0
        for line in process.stdout:
            answer = _ANSWER.fullmatch(line.decode())
            if answer and int(answer[1]) == answered:  # the best one, where several are printed
                print(detokenize(answer[2].split()), flush=True)
                answered += 1
        complaints.join()
        code = process.wait()
        if code:
            raise ValueError(f"fairseq-interactive ended with exit code {code}; see above")
        feeder.join()
        if [answered] != sent:
            raise ValueError(f"{answered} lines were answered, of {sent or 'unknown number'}")
    finally:
        process.kill()
        process.wait()


def _pass_on(pipe: IO[bytes]) -> None:
    """Show what the command prints to its standard error, but for chatter."""
    for line in pipe:
        text = line.decode(errors="replace")
        if not _CHATTER.match(text):
            sys.stderr.write(text)


def _feed(pipe: IO[bytes], lines: Iterable[str], sent: list[int]) -> None:
    """Write the lines, and note their number when all are written."""
    count = 0
    try:
        with pipe:
            for line in lines:
                pipe.write(f"{line}\n".encode())
                pipe.flush()
                count += 1
    except BrokenPipeError:
        return  # the command's exit code tells
    sent.append(count)


if __name__ == "__main__":
    sys.exit(main())
