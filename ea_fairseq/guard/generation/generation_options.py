"""Refuses options of generation that have no effect or fail.

Replaced in fairseq:
- ``options.parse_args_and_arch``: where a checkpoint is used, ``--ea-alpha`` and the like were
  ignored beside ``--arch``, and without it ended in screens of usage. ``--replace-unk`` ended in
  one of several tracebacks, or put ``<unk>`` in the place of ``<unk>``: it needs raw text,
  alignments that the search does not make, and words where there are subwords.
- ``checkpoint_utils.overwrite_args_by_name``: a name in ``--model-overrides`` that the checkpoint
  does not have was left without effect.
"""

from __future__ import annotations

import argparse
import ast
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fairseq import checkpoint_utils, options
from omegaconf import DictConfig

from ...errors import UserError, perhaps_meant


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


_overridden: set[str] = set()  # the names in --model-overrides of this process' command


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


def _known_names_only(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def overwrite_args_by_name(cfg: DictConfig, overrides: dict[str, Any]) -> None:
        known = _names(cfg)
        for name in sorted(_overridden.intersection(overrides) - known):
            if name.startswith("ea_") and "ea_variant" in known:
                continue  # the model itself says what its variant has
            raise UserError(
                f"--model-overrides: {name!r} is no setting of the checkpoint"
                + perhaps_meant(name, known)
            )
        original(cfg, overrides)

    return overwrite_args_by_name


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
        found = original(parser, input_args, *args, **kwargs)
        given = found[0] if isinstance(found, tuple) else found
        if getattr(given, "model_overrides", None):
            _overridden.clear()
            _overridden.update(overridden(given.model_overrides))
        return found

    return parse_args_and_arch


def install() -> None:
    """Make fairseq look at its words first, and at what they would change."""
    options.parse_args_and_arch = _checked(options.parse_args_and_arch)
    checkpoint_utils.overwrite_args_by_name = _known_names_only(
        checkpoint_utils.overwrite_args_by_name
    )
