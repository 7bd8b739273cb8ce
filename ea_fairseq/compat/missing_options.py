"""Options that fairseq's commands need without saying so.

Replaced in fairseq:
- ``options.parse_args_and_arch``: ``fairseq-validate`` alone has no default for ``--task``, and
  ended in ``KeyError: None``. It is translation, as in the other commands; the model's own task
  comes from its checkpoint.
- ``Trainer._build_optimizer``: ``--fp16`` or ``--bf16`` alone ended in a traceback about CUDA where
  no GPU is used. One line names the option that is missing.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

from fairseq import options
from fairseq.trainer import Trainer

from ..errors import UserError


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


def install() -> None:
    """Make fairseq do with the options given, or name the one that is missing."""
    options.parse_args_and_arch = _with_task(options.parse_args_and_arch)
    Trainer._build_optimizer = _half_precision_on_the_cpu(Trainer._build_optimizer)
