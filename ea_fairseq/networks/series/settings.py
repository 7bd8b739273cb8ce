"""Numbers that people set, checked before anything is built of them."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from ...errors import UserError
from ...files import shortened

#: The largest size: what is larger takes the memory before it fails.
MOST = 1_000_000
#: Blocks of an encoder: the dilation of the last layer is then 2 to the power of 29.
MOST_BLOCKS = 15


def whole_number(name: str, value: Any, least: int = 1, most: int = MOST) -> int:
    """A whole number, Python's or numpy's.

    Raises:
        UserError: naming the setting, its value and what is expected
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise UserError(f"{name} must be a whole number, not {shortened(repr(value), 60)}")
    if value < least:
        raise UserError(f"{name} must be at least {least}, not {value}")
    if value > most:
        raise UserError(f"{name} must be at most {most:,}, not {value}")
    return int(value)


def is_number(value: Any) -> bool:
    """Whether something is a number, Python's or numpy's; NaN is."""
    return isinstance(value, Real) and not isinstance(value, bool)
