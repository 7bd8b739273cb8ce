"""Options that commands which use a model would take without effect, or fail at.

Replaced in fairseq:
- ``options.parse_args_and_arch``: where a checkpoint is used, ``--ea-alpha`` and the like were
  ignored beside ``--arch``, and without it ended in screens of usage. ``--replace-unk`` ended in
  one of several tracebacks, or put ``<unk>`` in the place of ``<unk>``: it needs raw text,
  alignments that the search does not make, and words where there are subwords.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fairseq import options

from ..errors import UserError


def check_words(words: Sequence[str]) -> None:
    """Refuses such options among the words of a command that uses a checkpoint.

    Raises:
        UserError: naming the first one.
    """
    for word in words:
        name = word.partition("=")[0]
        if name == "--replace-unk":
            raise UserError(
                "--replace-unk: leave it out: fairseq no longer finds the source word of an "
                "unknown one, and text in subwords has hardly any"
            )
        if name.startswith("--ea-"):
            entry = name.removeprefix("--").replace("-", "_")
            raise UserError(
                f"{name}: the model's options come from its checkpoint: leave it out; to translate "
                f"with another value than it was trained with: --model-overrides \"{{'{entry}': "
                'VALUE}"'
            )


def _checked(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def parse_args_and_arch(
        parser: argparse.ArgumentParser,
        input_args: Sequence[str] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if "--model-overrides" in parser._option_string_actions:
            check_words(sys.argv[1:] if input_args is None else input_args)
        return original(parser, input_args, *args, **kwargs)

    return parse_args_and_arch


def install() -> None:
    """Make fairseq look at its words first."""
    options.parse_args_and_arch = _checked(options.parse_args_and_arch)
