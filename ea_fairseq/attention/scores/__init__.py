"""Score functions, one file for each family: what a query and a key have to do with each other.

They make the logits L that a variant then transforms; any goes with any. This package knows nothing
of fairseq.

base.py    what a score function is, and all of them by name

Every other file registers its own. To add one: one file here, or anywhere else that is imported.
"""

from importlib import import_module
from pkgutil import iter_modules

from .base import SCORES, Score, ScoreFunction, register

for _module in iter_modules(__path__):
    import_module(f".{_module.name}", __name__)

__all__ = ["SCORES", "Score", "ScoreFunction", "register"]
