"""How the functions of fairseq, and what they read from other modules, are replaced."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any


def around(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: puts a function around ``owner.name``, which it gets as its first argument.

    Args:
        owner: a module, or a class, which may inherit what is replaced: its parents keep it
        name: of a function, or of a method of any kind
    """

    def replace(function: Callable[..., Any]) -> Callable[..., Any]:
        found = inspect.getattr_static(owner, name)
        kind = type(found) if isinstance(found, staticmethod | classmethod) else None
        original = found.__func__ if kind else found

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        # fairseq asks some functions which arguments they take (inspect.getfullargspec).
        replacement.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
        setattr(owner, name, kind(replacement) if kind else replacement)
        return function

    return replace


def module_with(module: ModuleType, **names: Any) -> ModuleType:
    """A module with other values for some names, to be seen by one module of fairseq alone."""
    changed = ModuleType(module.__name__)
    vars(changed).update(names, __getattr__=functools.partial(getattr, module))
    return changed
