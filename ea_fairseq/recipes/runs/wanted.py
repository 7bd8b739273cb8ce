"""What is asked for of recipes: where, with which seeds, which steps, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Wanted:
    """The options of ``ea-recipe`` that are about runs, by their names there.

    Attributes:
        work_dir: folder of data/ and runs/
        steps: to do, of ``prepare`` and the sections of a recipe
        seeds: a run for each
        name: of the runs' folder, see `folders.run_name`
        raw: folder of the corpus as downloaded
        threads: of each command
        workers: processes that prepare the corpus
        jobs: runs side by side
        set: changes of recipes, as ``OPTION=VALUE``
        ensemble: whether the models of all seeds translate together, too
        examples: translations to show
        fresh: whether to throw away what runs hold
        verbose: whether to show all that commands print
        dry_run: whether to print the commands alone
    """

    work_dir: Path
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
