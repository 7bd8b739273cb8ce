"""fairseq's training program, of which some functions are replaced once it runs."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

logger = logging.getLogger(__name__)


def training_programs() -> list[ModuleType]:
    """``fairseq_cli.train`` where it is loaded; ``python -m`` gives it another name."""
    names = ("fairseq_cli.train", "__main__", "__mp_main__")
    modules = [sys.modules[name] for name in names if name in sys.modules]
    functions = ("train", "validate_and_save", "should_stop_early")
    return [m for m in modules if all(hasattr(m, function) for function in functions)]


def replace(name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put ``wrap(original)`` in the place of a function of the program.

    Called again, it replaces what it put there; a ``wrap`` that returns the original restores it.
    """
    for program in training_programs():
        current = getattr(program, name)
        original = getattr(current, "replaces", current)
        wrapped = wrap(original)
        if wrapped is not original:
            wrapped.replaces = original  # type: ignore[attr-defined]
        setattr(program, name, wrapped)


def end_at_once(reason: str) -> None:
    """Let the training that begins say why there is nothing to do, and save nothing."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def train(*_: Any) -> tuple[list[None], bool]:
            logger.info(reason)
            return [None], True

        return train

    replace("train", wrap)
