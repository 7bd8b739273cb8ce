"""The options of a variant: a dataclass whose fields say how they are read, and their help."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..errors import UserError

#: The kinds of attention of a translation model.
ATTENTIONS = ("encoder", "decoder", "encoder-decoder")

Parse = Callable[[str, Any], Any]


def option(default: Any, parse: Parse, metavar: str, help: str, later: bool = False) -> Any:
    """A field of a :class:`VariantOptions`.

    Args:
        default: its value where nobody gives one
        parse: takes the option's name and a value, as text or already parsed, and returns the
            value that it means; raises :class:`UserError` naming option, value and choices
        metavar: what help shows in the place of a value
        help: what it does, and the source
        later: whether it came after a version whose checkpoints have the variant: at its default
            it is left out of a checkpoint, which that version then still reads
    """
    metadata = {"parse": parse, "metavar": metavar, "help": help, "later": later}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class VariantOptions:
    """Base class of options; field ``x_y`` is the command line's ``--ea-x-y``.

    Raises:
        UserError: naming the option, its value and the choices
    """

    def __post_init__(self) -> None:
        for item in fields(self):
            value = item.metadata["parse"](flag(item.name), getattr(self, item.name))
            object.__setattr__(self, item.name, value)

    def without_effect(self, attentions: Sequence[str]) -> dict[str, str]:
        """Options that change nothing in a model of which the variant has these attentions.

        Returns:
            their names -> why
        """
        del attentions
        return {}


def flag(name: str) -> str:
    """The command line's name of an option."""
    return "--ea-" + name.replace("_", "-")


def as_text(value: Any) -> Any:
    """An option's value as checkpoints keep it: lists as text."""
    return (",".join(value) or "none") if isinstance(value, tuple) else value


def listed(choices: Iterable[Any]) -> str:
    """Choices as messages show them."""
    return ", ".join(str(choice) for choice in choices)


def fraction(name: str, value: Any) -> float:
    """A number in [0, 1], which does not learn."""
    if getattr(value, "requires_grad", False):
        raise UserError(f"{name} is a number; learned_mixing=True learns it, not a parameter here")
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0.0 <= number <= 1.0 or isinstance(value, bool):
        raise UserError(f"{name} must be a number in [0, 1], not {value!r}")
    return number


def positive(name: str, value: Any) -> float:
    """A number above 0."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = 0.0
    if not 0.0 < number < math.inf or isinstance(value, bool):
        raise UserError(f"{name} must be a number above 0, not {value!r}")
    return number


def positive_integer(name: str, value: Any) -> int:
    """A whole number from 1."""
    text = str(value)
    if isinstance(value, float | bool) or not re.fullmatch(r"0*[1-9]\d{0,8}", text, re.ASCII):
        raise UserError(f"{name} must be a whole number from 1, not {value!r}")
    return int(text)


def one_of(*choices: Any, kind: str = "") -> Parse:
    """One of some names or whole numbers."""

    def parse(name: str, value: Any) -> Any:
        if isinstance(value, float | bool) or str(value) not in map(str, choices):
            raise UserError(f"{name} must be {kind}one of {listed(choices)}, not {value!r}")
        return type(choices[0])(value)

    return parse


def switch(name: str, value: Any) -> bool:
    """``true`` or ``false``."""
    if str(value).lower() not in ("true", "false"):
        raise UserError(f"{name} must be one of true, false, not {value!r}")
    return str(value).lower() == "true"


def some_of(*choices: str) -> Parse:
    """Some of a few names, separated by commas, or ``none``."""

    def parse(name: str, value: Any) -> tuple[str, ...]:
        parts = (
            [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
        )
        if parts == ["none"] or value == ():
            return ()
        if not parts or not set(parts) <= set(choices) or len(parts) != len(set(parts)):
            raise UserError(
                f"{name} must be 'none' or a comma-separated subset of {','.join(choices)}, "
                f"not {value!r}"
            )
        return tuple(choice for choice in choices if choice in parts)

    return parse


#: Kinds of attention, separated by commas, or ``none``.
some_attentions = some_of(*ATTENTIONS)
