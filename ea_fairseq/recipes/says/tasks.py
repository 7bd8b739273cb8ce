"""The two tasks of recipes: what differs between translating and modelling a language."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from . import paths


@dataclass(frozen=True)
class Task:
    """A task of fairseq's, and what the recipes of it have.

    Attributes:
        name: what ``train: task`` says
        sections: the steps of a run behind the preparation, which are a recipe's sections as well
        baseline: fairseq's own model in Lite's size, which comes with the plugin but is no variant
        evolving: the architecture that any ``--ea-variant`` goes with
        variants: the folder of settings of models, for all corpora, by name
        architectures: the names of the plugin's models
    """

    name: str
    sections: tuple[str, ...]
    baseline: str
    evolving: str
    variants: Path
    architectures: Callable[[], Iterable[str]]


TRANSLATION = Task(
    "translation",
    ("train", "average", "generate", "evaluate"),
    "transformer_lite",
    "ea_transformer_lite",
    paths.EXAMPLES / "translation" / "variants",
    lambda: _variants().architectures(),
)
LANGUAGE_MODELING = Task(
    "language_modeling",
    ("train", "average", "evaluate"),
    "transformer_lm_lite",
    "ea_transformer_lm_lite",
    paths.EXAMPLES / "language_modeling" / "variants",
    lambda: _variants().language_models().values(),
)


def _variants() -> ModuleType:
    from ...attention import variants  # takes torch

    return variants


def task_of(train: dict) -> Task:
    """The task that the options of a recipe's section train are of."""
    named = train.get("task") == LANGUAGE_MODELING.name
    return LANGUAGE_MODELING if named else TRANSLATION
