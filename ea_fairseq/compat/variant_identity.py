"""A checkpoint of one variant is never continued or decoded as another.

Weights alone do not tell: residual attention and evolving attention without convolutions have the
same. The checkpoint's settings do.

Replaced in fairseq:
- ``Trainer.load_checkpoint``: compares the shapes of parameters only.
- ``checkpoint_utils.load_model_ensemble_and_task``: ``--model-overrides`` may name any variant.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from ..config import EAOptions, parse_chain
from ..errors import UserError
from .safe_loading import read_checkpoint

logger = logging.getLogger(__name__)


def refuse_another_variant(stored: Any, wanted: Any, filename: str) -> None:
    """Compares the variants of two models.

    Args:
        stored: settings of the checkpoint's model; those of a plain Transformer fit all
        wanted: settings of the model asked for
        filename: the checkpoint

    Raises:
        UserError: naming both variants
    """
    before, now = (getattr(settings, "ea_variant", None) for settings in (stored, wanted))
    if before is None or now is None or parse_chain(before) == parse_chain(now):
        return
    raise UserError(
        f"checkpoint {filename} is of --ea-variant {before}, and {now} was asked for: give the "
        "same variant, or train anew in another --save-dir"
    )


def _changed_options(stored: Any, wanted: Any) -> str:
    """The variant's options that differ, as ``--ea-alpha 0.1 -> 0.5``; empty if none do."""
    if getattr(stored, "ea_variant", None) is None:
        return ""
    before, now = (EAOptions.from_namespace(settings).as_given() for settings in (stored, wanted))
    return ", ".join(
        f"--{name.replace('_', '-')} {before.get(name)} -> {value}"
        for name, value in now.items()
        if name != "ea_variant" and before.get(name) != value
    )


def _settings(filename: str) -> Any:
    """The settings of a checkpoint's model, or None where it has none that can be read."""
    state = read_checkpoint(filename)
    if state.get("cfg") is not None:
        return state["cfg"]["model"]
    return state.get("args")


def _resume(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_checkpoint(self: Trainer, filename: str, *args: Any, **kwargs: Any) -> Any:
        wanted = self.cfg.model
        if getattr(wanted, "ea_variant", None) is not None and os.path.exists(filename):
            stored = _settings(filename)
            refuse_another_variant(stored, wanted, filename)
            if changed := _changed_options(stored, wanted):
                logger.warning("%s goes on with other options: %s", filename, changed)
        return original(self, filename, *args, **kwargs)

    return load_checkpoint


def _load_ensemble(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_model_ensemble_and_task(
        filenames: Sequence[str],
        arg_overrides: dict[str, Any] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if variant := (arg_overrides or {}).get("ea_variant"):
            for filename in filenames:
                stored = _settings(filename)
                before = getattr(stored, "ea_variant", None)
                if before is None or parse_chain(before) != parse_chain(variant):
                    raise UserError(
                        f"--model-overrides: ea_variant {variant} was asked for, and checkpoint "
                        f"{filename} is of {before or 'a plain Transformer'}: leave it out"
                    )
        return original(filenames, arg_overrides, *args, **kwargs)

    return load_model_ensemble_and_task


def install() -> None:
    """Make fairseq compare."""
    Trainer.load_checkpoint = _resume(Trainer.load_checkpoint)
    checkpoint_utils.load_model_ensemble_and_task = _load_ensemble(
        checkpoint_utils.load_model_ensemble_and_task
    )
