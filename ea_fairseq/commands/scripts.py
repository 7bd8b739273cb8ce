"""``ea-evaluate``, ``ea-compare``, ``ea-export``, ``ea-average`` and ``ea-plot``."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from ..recipes.says.paths import SCRIPTS


def evaluate() -> int:
    """``ea-evaluate``: scores translations."""
    return _main(SCRIPTS / "evaluate.py")


def compare() -> int:
    """``ea-compare``: compares two systems, with intervals."""
    return _main(SCRIPTS / "compare.py")


def export() -> int:
    """``ea-export``: makes a model folder of a run or a checkpoint."""
    return _main(SCRIPTS / "export_model.py")


def average() -> int:
    """``ea-average``: averages checkpoints."""
    return _main(SCRIPTS / "average_checkpoints.py")


def plot() -> int:
    """``ea-plot``: draws the curves of trainings."""
    return _main(SCRIPTS / "plot_training.py")


def _main(script: Path) -> int:
    """Runs a script's main function; returns its exit code."""
    spec = spec_from_file_location(script.stem, script)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there for what annotations name
    spec.loader.exec_module(module)
    try:
        return module.main()
    except KeyboardInterrupt:
        return 130
