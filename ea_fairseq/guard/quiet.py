"""Silences start-up messages that call for no action.

Warnings of hydra and torch are about how fairseq uses them; they are left out by their exact
beginnings, unless Python was told what to do with warnings (``-W``, ``PYTHONWARNINGS``). Log
records about fairseq's own workings, and the line of 12,000 characters with every option there is,
are shown with ``LOGLEVEL=DEBUG``; the options that were given stand in the line's place. That
variable is fairseq's own, but one of its modules sets the root's level to DEBUG at its import.
sacrebleu's guess that somebody forgot to detokenize is left out with ``--eval-tokenized-bleu``.

Replaced in fairseq: ``TranslationTask._inference_with_bleu``. Its loggers get filters.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import sys
import warnings
from typing import Any

from fairseq.tasks.translation import TranslationTask
from omegaconf import DictConfig

from ..errors import running_a_command
from .around import around

#: Beginnings, as patterns, of what is said about fairseq's code.
_WARNINGS = (
    r"hydra\.experimental\.\w+\(\) is no longer experimental",
    r"\s*The version_base parameter is not specified",
    r"In 'config': Usage of deprecated keyword",
    r"\s*'config' is validated against ConfigStore schema",
    r"\s*The strict flag in the compose API is deprecated",
    r"'pin_memory' argument is set as true but no accelerator is found",
    r"`torch\.cuda\.amp\.\w+\(args\.\.\.\)` is deprecated",
    r"`torch\.jit\.script` is deprecated",
    r"Support for mismatched key_padding_mask and attn_mask is deprecated",
)
_COMMANDS = tuple(
    f"fairseq_cli.{name}"
    for name in ("preprocess", "train", "generate", "interactive", "validate", "eval_lm")
)
#: The three lines that sacrebleu says together.
_ABOUT_TOKENS = (
    "That's 100 lines that end in a tokenized period",
    "It looks like you forgot to detokenize",
    "If you insist your data is detokenized",
)
_INNER_WORKINGS = ("fairseq.tasks.fairseq_task", "fairseq.data.iterators", "hydra.core.utils")


def shorten_settings(record: logging.LogRecord) -> bool:
    """Puts the options given in the place of all options."""
    whole = isinstance(record.msg, DictConfig | argparse.Namespace) and not record.args
    if whole and running_a_command() and not _debugging():
        record.msg = "options: %s (with fairseq's defaults: LOGLEVEL=DEBUG)"
        record.args = (shlex.join(sys.argv[1:]),)
    return True


def leave_out(record: logging.LogRecord) -> bool:
    """Whether a record of fairseq's inner workings is shown."""
    return record.levelno > logging.INFO or _debugging() or not running_a_command()


@around(TranslationTask, "_inference_with_bleu")
def _score_tokens_on_purpose(
    original: Any, self: TranslationTask, *args: Any, **kwargs: Any
) -> Any:
    if not self.cfg.eval_tokenized_bleu:
        return original(self, *args, **kwargs)
    logger = logging.getLogger("sacrebleu")
    logger.addFilter(_not_about_tokens)
    try:
        return original(self, *args, **kwargs)
    finally:
        logger.removeFilter(_not_about_tokens)


def _not_about_tokens(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_ABOUT_TOKENS)


def _debugging() -> bool:
    return os.environ.get("LOGLEVEL", "").upper() == "DEBUG"


def leave_out_warnings() -> None:
    """Ignore warnings about fairseq's code, unless Python was told what to do with warnings."""
    for message in () if sys.warnoptions else _WARNINGS:
        warnings.filterwarnings("ignore", message)


leave_out_warnings()
for _name in _COMMANDS:
    logging.getLogger(_name).addFilter(shorten_settings)
for _name in _INNER_WORKINGS:
    logging.getLogger(_name).addFilter(leave_out)
