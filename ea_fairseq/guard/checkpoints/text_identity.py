"""Refuses data whose languages or dictionaries differ from the checkpoint's.

A model is of use only with the dictionaries that number its tokens. Another dictionary of the same
size, the same entries in another order, or the languages the other way round give translations
without sense and no error. Checkpoints therefore contain ``extra_state["text"]``: the languages,
and of both dictionaries the number of entries and a fingerprint, the SHA-256 of the entries in
their order (their counts play no role). Averaged checkpoints carry it on.

Replaced in fairseq:
- ``Trainer.save_checkpoint``: adds the entry.
- ``Trainer.load_checkpoint``: compares it with the data of the training, before any weight is
  loaded. ``--finetune-from-model`` may go on to other languages, with a warning, but not to other
  dictionaries.
- ``checkpoint_utils.load_checkpoint_to_cpu``, ``checkpoint_utils.load_model_ensemble_and_task``,
  ``FairseqTask.build_model`` and ``LegacyFairseqTask.build_model`` (of language models): compare it
  where a model is built to translate, to be scored or to be validated.

Checkpoints without the entry, of fairseq alone or of earlier versions, get a warning.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.tasks.fairseq_task import FairseqTask, LegacyFairseqTask
from fairseq.trainer import Trainer

from ...errors import UserError

logger = logging.getLogger(__name__)

KEY = "text"
_SIDES = ("source", "target")

Identity = dict[str, Any]

_trainer: Trainer | None = None  # the one that is loading a checkpoint
_read: tuple[str, Identity | None] | None = None  # the file whose model is built next


def fingerprint(dictionary: Dictionary) -> str:
    """The SHA-256 of a dictionary's entries in their order, in hex."""
    return hashlib.sha256("\n".join(dictionary.symbols).encode()).hexdigest()


def identity_of(dictionary: Dictionary, language: str | None) -> Identity:
    """What a checkpoint says about one of its sides: language, number of entries, fingerprint."""
    return {
        "language": language,
        "entries": len(dictionary),
        "sha256": fingerprint(dictionary),
    }


def identity_of_task(task: Any) -> Identity | None:
    """Languages and dictionaries of a task; None for a task that has no dictionaries.

    Returns:
        ``{"source": {"language": "de", "entries": 4000, "sha256": "..."}, "target": ...}``
    """
    sides = {}
    for side in _SIDES:
        try:
            dictionary = getattr(task, f"{side}_dictionary")
        except (AttributeError, NotImplementedError):
            return None
        if not isinstance(dictionary, Dictionary):
            return None
        sides[side] = identity_of(dictionary, getattr(task.cfg, f"{side}_lang", None))
    return sides


def identity_of_checkpoint(state: dict[str, Any]) -> Identity | None:
    """What a checkpoint says about its text; None where it says nothing that can be understood."""
    extra_state = state.get("extra_state")
    found = extra_state.get(KEY) if isinstance(extra_state, dict) else None
    if not isinstance(found, dict) or not all(isinstance(found.get(s), dict) for s in _SIDES):
        return None
    return found


def check(path: str, known: Identity | None, task: Any, new_languages: bool = False) -> None:
    """Compare a checkpoint with the task that its model is to work for.

    Args:
        path: the checkpoint.
        known: what it says, see `identity_of_checkpoint`.
        task: a fairseq task with its dictionaries.
        new_languages: whether other languages are a reason to warn only.

    Raises:
        UserError: the languages or the dictionaries differ.
    """
    now = identity_of_task(task)
    if now is None:
        return
    if known is None:
        logger.warning(
            f"checkpoint {path} does not know its languages and dictionaries (it is older than that"
            " knowledge, or of fairseq alone): make sure that the data is of those it was trained"
            " with"
        )
        return
    languages = [[identity[side].get("language") for side in _SIDES] for identity in (known, now)]
    if languages[0] != languages[1] and None not in languages[0] + languages[1]:
        trained, asked = (f"{source} to {target}" for source, target in languages)
        message = f"checkpoint {path} was trained on {trained}, and is used for {asked}"
        if not new_languages:
            source, target = languages[0]
            raise UserError(f"{message}: give --source-lang {source} --target-lang {target}")
        logger.warning(message)
    for side in _SIDES:
        if known[side].get("sha256") != now[side]["sha256"]:
            raise UserError(_other_dictionary(path, side, known[side], now[side]))


def _other_dictionary(path: str, side: str, known: dict[str, Any], now: dict[str, Any]) -> str:
    before, entries = known.get("entries"), now["entries"]
    if before == entries:
        difference = f"its {entries} entries are others, or in another order"
    else:
        difference = f"{entries} entries instead of {before}"
    return (
        f"checkpoint {path} was trained with another {side} dictionary than that of the data"
        f" ({difference}): use the data and the dict.*.txt that it was trained with"
    )


def _add_identity(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def save_checkpoint(self: Trainer, filename: str, extra_state: dict[str, Any]) -> Any:
        identity = identity_of_task(self.task)
        if identity is not None:
            extra_state = extra_state | {KEY: identity}
        return original(self, filename, extra_state)

    return save_checkpoint


def _compare_with_training(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_checkpoint(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        global _trainer
        _trainer = self
        try:
            return original(self, *args, **kwargs)
        finally:
            _trainer = None

    return load_checkpoint


def _notice(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        global _read
        state = original(path, *args, **kwargs)
        known = identity_of_checkpoint(state)
        if _trainer is None:
            _read = path, known
        else:
            finetuning = path == _trainer.cfg.checkpoint.finetune_from_model
            check(path, known, _trainer.task, new_languages=finetuning)
        return state

    return load_checkpoint_to_cpu


def _notice_given(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_model_ensemble_and_task(
        filenames: Sequence[str],
        arg_overrides: dict[str, Any] | None = None,
        task: Any = None,
        strict: bool = True,
        suffix: str = "",
        num_shards: int = 1,
        state: dict[str, Any] | None = None,
    ) -> Any:
        global _read
        _read = None if state is None else (filenames[0], identity_of_checkpoint(state))
        try:
            return original(filenames, arg_overrides, task, strict, suffix, num_shards, state)
        finally:
            _read = None

    return load_model_ensemble_and_task


def _compare_with_task(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def build_model(self: FairseqTask, cfg: Any, from_checkpoint: bool = False) -> Any:
        global _read
        if from_checkpoint and _read is not None:
            path, known = _read
            _read = None
            check(path, known, self)
        return original(self, cfg, from_checkpoint)

    return build_model


def install() -> None:
    """Make fairseq's checkpoints know their text."""
    Trainer.save_checkpoint = _add_identity(Trainer.save_checkpoint)
    Trainer.load_checkpoint = _compare_with_training(Trainer.load_checkpoint)
    checkpoint_utils.load_checkpoint_to_cpu = _notice(checkpoint_utils.load_checkpoint_to_cpu)
    checkpoint_utils.load_model_ensemble_and_task = _notice_given(
        checkpoint_utils.load_model_ensemble_and_task
    )
    for kind in (FairseqTask, LegacyFairseqTask):
        kind.build_model = _compare_with_task(kind.build_model)
