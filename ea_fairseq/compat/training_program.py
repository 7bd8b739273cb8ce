"""fairseq's training program, of which some functions are replaced once it runs."""

from __future__ import annotations

import sys
from types import ModuleType


def training_programs() -> list[ModuleType]:
    """``fairseq_cli.train`` where it is loaded; ``python -m`` gives it another name."""
    names = ("fairseq_cli.train", "__main__", "__mp_main__")
    modules = [sys.modules[name] for name in names if name in sys.modules]
    functions = ("train", "validate_and_save", "should_stop_early")
    return [m for m in modules if all(hasattr(m, function) for function in functions)]
