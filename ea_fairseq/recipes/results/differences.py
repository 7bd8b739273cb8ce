"""What differs between two nested settings, by name."""

from __future__ import annotations

from typing import Any


def differences(old: Any, new: Any, name: str = "") -> dict[str, str]:
    """Differences of two nested dictionaries: ``{"train.dropout": "0.2 -> 0.3"}``."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = {}
        for key in sorted(old.keys() | new.keys()):
            deeper = f"{name}.{key}" if name else key
            found |= differences(old.get(key, "not set"), new.get(key, "not set"), deeper)
        return found
    return {} if _plain(old) == _plain(new) else {name: f"{old} -> {new}"}


def _plain(value: Any) -> Any:
    """A number however it is written: YAML takes 2e-3 for text and 0.002 for a number."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    # True is no 1: the one is a switch that is given, the other a value.
    return str(value) if isinstance(value, bool) else value


def listed(changes: dict[str, str]) -> str:
    """Differences in one line."""
    return "; ".join(f"{name}: {change}" for name, change in changes.items())
