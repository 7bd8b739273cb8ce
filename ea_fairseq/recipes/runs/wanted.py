"""What is asked for of recipes: where, with which seeds, which steps, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Wanted:
    """The options of ``ea-recipe`` that are about runs, by their names there.

    What each of them does, ``ea-recipe --help`` says.
    """

    work_dir: Path
    #: ``prepare`` and the sections of a recipe
    steps: tuple[str, ...]
    seeds: tuple[int, ...] = (1,)
    name: str | None = None
    raw: Path | None = None
    threads: int | None = None
    workers: int | None = None
    jobs: int = 1
    set: tuple[str, ...] = ()
    ensemble: bool = False
    examples: int = 0
    fresh: bool = False
    verbose: bool = False
    dry_run: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """Variables of each command."""
        return {"OMP_NUM_THREADS": str(self.threads)} if self.threads else {}
