"""Adds defaults of options that fairseq's commands read without defining.

Replaced in fairseq:
- ``options.parse_args_and_arch``: ``fairseq-validate`` alone has no default for ``--task``, and
  ended in ``KeyError: None``. It is translation, as in the other commands; the model's own task
  comes from its checkpoint.
- ``Trainer._build_optimizer``: ``--fp16`` or ``--bf16`` alone ended in a traceback about CUDA where
  no GPU is used. One line names the option that is missing.
- ``TranslationTask.setup_task``: where the languages are neither given nor to be seen in the data,
  as in the folder above it or in a language model's, the line names the folder and the options.
- ``LanguageModelingTask.setup_dictionary``: data of a language pair, which have no ``dict.txt``.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq import options, utils
from fairseq.data import data_utils
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer

from ...errors import UserError


def _with_task(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def parse_args_and_arch(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        if "--task" in parser._option_string_actions and parser.get_default("task") is None:
            parser.set_defaults(task="translation")
        return original(parser, *args, **kwargs)

    return parse_args_and_arch


def _half_precision_on_the_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def build_optimizer(self: Trainer) -> Any:
        common = self.cfg.common
        given = [f"--{name}" for name in ("fp16", "bf16") if getattr(common, name)]
        flat = not (common.memory_efficient_fp16 or common.memory_efficient_bf16)
        if given and flat and not self.cuda and not common.fp16_no_flatten_grads:
            raise UserError(f"{given[0]} on the CPU needs --fp16-no-flatten-grads as well")
        return original(self)

    return build_optimizer


def _with_languages(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def setup_task(cls: type[TranslationTask], cfg: Any, **kwargs: Any) -> Any:
        if cfg.data and (cfg.source_lang is None or cfg.target_lang is None):
            folder = Path(utils.split_paths(cfg.data)[0])
            if folder.is_dir() and None in data_utils.infer_language_pair(str(folder)):
                raise UserError(_no_languages(folder))
        return original(cls, cfg, **kwargs)

    return setup_task


def _no_languages(folder: Path) -> str:
    if (folder / "dict.txt").is_file():
        return (
            f"{folder}: holds the text of a language model (dict.txt), no language pair: give "
            "--task language_modeling, or the folder of another fairseq-preprocess"
        )
    missing = "" if any(folder.glob("dict.*.txt")) else " and no dict.*.txt"
    below = sorted({file.parent for file in folder.glob("*/dict.*.txt")})
    meant = f": perhaps you meant {below[0]}" if below else ""
    return (
        f"{folder}: holds no binarized language pair{missing}{meant}; give the folder of "
        "fairseq-preprocess, or name the languages by --source-lang and --target-lang"
    )


def _with_text(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def setup_dictionary(cls: type[LanguageModelingTask], args: Any, **kwargs: Any) -> Any:
        if args.data:
            folder = Path(utils.split_paths(args.data)[0])
            pair = sorted(file.name for file in folder.glob("dict.*.txt"))
            if pair and not (folder / "dict.txt").exists():
                raise UserError(
                    f"{folder}: holds {' and '.join(pair)}, data of a language pair; the task "
                    "language_modeling wants dict.txt, as of fairseq-preprocess --only-source"
                )
        return original(cls, args, **kwargs)

    return setup_dictionary


def install() -> None:
    """Make fairseq do with the options given, or name the one that is missing."""
    options.parse_args_and_arch = _with_task(options.parse_args_and_arch)
    Trainer._build_optimizer = _half_precision_on_the_cpu(Trainer._build_optimizer)
    setup_task = vars(TranslationTask)["setup_task"].__func__
    TranslationTask.setup_task = classmethod(_with_languages(setup_task))
    setup_dictionary = vars(LanguageModelingTask)["setup_dictionary"].__func__
    LanguageModelingTask.setup_dictionary = classmethod(_with_text(setup_dictionary))
