"""Which languages and dictionaries a checkpoint was trained with.

A model is of use only with the dictionaries that number its tokens. Another dictionary of the same
size, the same entries in another order, or the languages the other way round give translations
without sense and no error. Checkpoints therefore contain ``extra_state["text"]``: the languages,
and of both dictionaries the number of entries and a fingerprint, the SHA-256 of the entries in
their order (their counts play no role). Averaged checkpoints carry it on. Checkpoints without the
entry, of fairseq alone or of earlier versions, get a warning.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from ..errors import UserError

logger = logging.getLogger(__name__)

KEY = "text"
_SIDES = ("source", "target")

Identity = dict[str, Any]


def fingerprint(dictionary: Any) -> str:
    """The SHA-256 of the entries of a fairseq dictionary in their order, in hex."""
    return hashlib.sha256("\n".join(dictionary.symbols).encode()).hexdigest()


def identity_of(dictionary: Any, language: str | None) -> Identity:
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
        if not hasattr(dictionary, "symbols"):
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
