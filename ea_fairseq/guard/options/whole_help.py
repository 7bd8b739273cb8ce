"""``--help`` shows all options that a command has with its architecture, task, criterion and so on.

Replaced in fairseq:
- ``options.parse_args_and_arch``: prints the help before the parser knows the options of what was
  chosen, so that ``fairseq-train --arch transformer --help`` shows no ``--dropout``, and no help
  shows the options of this plugin.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fairseq import options

#: Options whose values decide which further options there are.
CHOOSING = ("arch", "task", "criterion", "optimizer", "lr-scheduler", "scoring", "tokenizer", "bpe")

_HELP = ("-h", "--help")


def chosen(words: Sequence[str]) -> list[str]:
    """Those of a command's words that decide which options it has, one word for each."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-a", "--arch")
    for name in CHOOSING[1:]:
        parser.add_argument(f"--{name}")
    found, _ = parser.parse_known_args([word for word in words if word not in _HELP])
    return [f"--{n.replace('_', '-')}={v}" for n, v in vars(found).items() if v is not None]


def _learn_then_help(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def parse_args_and_arch(
        parser: argparse.ArgumentParser,
        input_args: Sequence[str] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        words = sys.argv[1:] if input_args is None else input_args
        if any(word in _HELP for word in words):
            # fairseq fails where an architecture is wanted and none is named.
            with contextlib.suppress(RuntimeError):
                original(parser, ["data", *chosen(words)], parse_known=True)
            parser.print_help()
            raise SystemExit(0)
        return original(parser, input_args, *args, **kwargs)

    return parse_args_and_arch


def install() -> None:
    """Make fairseq's help whole. After `missing_options`, whose default of ``--task`` it shows."""
    options.parse_args_and_arch = _learn_then_help(options.parse_args_and_arch)
