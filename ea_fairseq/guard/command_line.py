"""The options of fairseq's commands: all of them in the help, and none that is wrong or unused.

Replaced in fairseq:
- ``options.parse_args_and_arch``: prints the help before the parser knows the options of what was
  chosen, so that ``fairseq-train --arch transformer --help`` showed no ``--dropout``, and no help
  the options of this plugin. ``fairseq-validate`` alone has no default for ``--task``, and ended in
  ``KeyError: None``: it is translation, as in the other commands; the model's own task comes from
  its checkpoint. Where a checkpoint is used, ``--ea-alpha`` and the like were ignored. Values on
  the command line, not those of a list of words from a program, are looked at before anything
  else (see `ea_fairseq.fairseq_options.values`).
- ``checkpoint_utils.overwrite_args_by_name``: a name in ``--model-overrides`` that the checkpoint
  does not have was left without effect.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fairseq import checkpoint_utils, options
from omegaconf import DictConfig

from ..errors import UserError, perhaps_meant
from ..fairseq_options import values
from .around import around

#: Options whose values decide which further options there are.
CHOOSING = ("arch", "task", "criterion", "optimizer", "lr-scheduler", "scoring", "tokenizer", "bpe")

_HELP = ("-h", "--help")


@dataclass
class Command:
    """What the command of this process was given, as far as others ask for it.

    Attributes:
        prints_pieces: whether it prints what it translates as it is, in subwords
        overrides: the names in its ``--model-overrides``
    """

    prints_pieces: bool = False
    overrides: set[str] = field(default_factory=set)


command = Command()


@around(options, "parse_args_and_arch")
def _parse(
    original: Any,
    parser: argparse.ArgumentParser,
    input_args: Sequence[str] | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    words = sys.argv[1:] if input_args is None else input_args
    if "--task" in parser._option_string_actions and parser.get_default("task") is None:
        parser.set_defaults(task="translation")
    if any(word in _HELP for word in words):
        # fairseq fails where an architecture is wanted and none is named.
        with contextlib.suppress(RuntimeError):
            original(parser, ["data", *chosen(words)], parse_known=True)
        parser.print_help()
        raise SystemExit(0)
    if "--model-overrides" in parser._option_string_actions:
        refuse_model_options(words)
    found = original(parser, input_args, *args, **kwargs)
    namespace = found[0] if isinstance(found, tuple) else found
    given = vars(namespace)
    # With --bpe, fairseq joins pieces by itself, and says so where its BLEU is of others.
    command.prints_pieces = given.get("post_process", "") is None and given.get("bpe") is None
    if given.get("model_overrides"):
        command.overrides = overridden(given["model_overrides"])
    if input_args is None:
        values.check(parser, namespace)
    return found


def chosen(words: Sequence[str]) -> list[str]:
    """Those of a command's words that decide which options it has, one word for each."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-a", "--arch")
    for name in CHOOSING[1:]:
        parser.add_argument(f"--{name}")
    found, _ = parser.parse_known_args([word for word in words if word not in _HELP])
    return [f"--{n.replace('_', '-')}={v}" for n, v in vars(found).items() if v is not None]


def refuse_model_options(words: Sequence[str]) -> None:
    """Refuses options of the model in a command that uses a checkpoint.

    Raises:
        UserError: naming the first one.
    """
    for name in (word.partition("=")[0] for word in words):
        if name.startswith("--ea-"):
            entry = name.removeprefix("--").replace("-", "_")
            raise UserError(
                f"{name}: the model's options come from its checkpoint: leave it out; to translate "
                f"with another value than it was trained with: --model-overrides \"{{'{entry}': "
                'VALUE}"'
            )


def overridden(text: str) -> set[str]:
    """The names in ``--model-overrides``.

    Raises:
        UserError: it is no dictionary of names.
    """
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise UserError(
            f"--model-overrides is {text}: expected a dictionary, such as \"{{'dropout': 0.1}}\""
        )
    return set(found)


def _names(settings: Any) -> set[str]:
    """All names in a checkpoint's settings, those within sections too."""
    if isinstance(settings, argparse.Namespace):
        return set(vars(settings))
    if not isinstance(settings, DictConfig):
        return set()
    given = [name for name in settings if name in settings]  # some have no value
    return {str(name) for name in given}.union(*(_names(settings[name]) for name in given))


@around(checkpoint_utils, "overwrite_args_by_name")
def _override_known_names(original: Any, cfg: DictConfig, overrides: dict[str, Any]) -> None:
    known = _names(cfg)
    for name in sorted(command.overrides.intersection(overrides) - known):
        if name.startswith("ea_") and "ea_variant" in known:
            continue  # the model itself says what its variant has
        raise UserError(
            f"--model-overrides: {name!r} is no setting of the checkpoint"
            + perhaps_meant(name, known)
        )
    original(cfg, overrides)
