"""Where data and runs lie on disk, and reading what a run left there.

<work-dir>/data/<corpus>/                        made by prepare.py (see data_folders.py)
<work-dir>/runs/<corpus>/<recipe>/seed<k>/
    text/                                        codes, dictionaries, text settings: text_copy.py
    checkpoints/  averaged.pt                    training, averaging
    model/                                       the model folder, exported at the end
    generate/<test set>.txt                      fairseq-generate's output
    generate/<test set>.<language>               the translations, detokenized
    scores/<test set>.json                       evaluate.py's output, or evaluate_lm.py's
    losses/<test set>.json                       a language model's, block by block
    logs/<step>.log  steps/<step>.json           what each step printed; that it is done
    curves.png                                   loss and BLEU of the training
    results.json                                 settings, versions, times, scores
<work-dir>/runs/<corpus>/<recipe>/run.seed<k>.log  what a run beside others printed
<work-dir>/runs/<corpus>/<recipe>.ensemble/seed<k>+<l>/  generate/ and what follows, of several
                                                 models together: ensembles.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...corpus.binarize import subsets
from ...corpus.config import Corpus
from ...files import read_json_or_none
from ..says.recipe import Recipe
from .data_folders import data_of_run, folder_for
from .text_copy import trained_on

#: Bytes of a folder's name: file systems take 255, of which suffixes such as .log need some.
LONGEST = 240

#: Folders of runs, and of what several give together.
_SEEDS = re.compile(r"seed\d+(\+\d+)*")


@dataclass(frozen=True)
class Run:
    """One recipe trained with one seed; or its ``members``, whose models translate together."""

    data: Path
    folder: Path
    seed: int | str
    languages: tuple[str, ...]
    test_sets: list[str]
    members: tuple[Run, ...] = ()

    @property
    def checkpoints(self) -> Path:
        """fairseq-train's --save-dir."""
        return self.folder / "checkpoints"

    @property
    def averaged(self) -> Path:
        """The average of checkpoints, where the recipe has one."""
        return self.folder / "averaged.pt"

    def model(self, recipe: Recipe) -> Path:
        """The checkpoint that translates: the average, or the best where nothing is averaged."""
        if recipe.sections["average"] is None:
            return self.checkpoints / "checkpoint_best.pt"
        return self.averaged

    def models(self, recipe: Recipe) -> list[Path]:
        """The checkpoints that translate: one, or those of the members."""
        return [run.model(recipe) for run in self.members or (self,)]

    @property
    def model_folder(self) -> Path:
        """The model with all that using it needs, see inference/model_folder.py."""
        return self.folder / "model"

    def generated(self, test_set: str) -> Path:
        """fairseq-generate's output for a test set."""
        return self.folder / "generate" / f"{test_set}.txt"

    def text(self, test_set: str) -> Path:
        """The translations, detokenized, in the order of the corpus."""
        return self.folder / "generate" / f"{test_set}.{self.languages[1]}"

    def scores(self, test_set: str) -> Path:
        """evaluate.py's output for a test set."""
        return self.folder / "scores" / f"{test_set}.json"

    def losses(self, test_set: str) -> Path:
        """A language model's loss in every block of a test set."""
        return self.folder / "losses" / f"{test_set}.json"

    def log(self, step: str) -> Path:
        """Everything that a step printed."""
        return self.folder / "logs" / f"{step}.log"

    @property
    def curves(self) -> Path:
        """A picture of the training."""
        return self.folder / "curves.png"

    @property
    def results(self) -> Path:
        """The summary that is written last."""
        return self.folder / "results.json"

    @property
    def subsets(self) -> dict[str, str]:
        """fairseq's name of each test subset (test, test1, test2, ...) -> the test set's name."""
        return subsets(self.test_sets)


def find_run(recipe: Recipe, corpus: Corpus, work_dir: Path, name: str | None, seed: int) -> Run:
    """The run of a recipe on its corpus, whether or not it has begun.

    Its data is what it was trained on, and before that what there is of the corpus as it is now.

    ``name`` is that of the runs' folder, see `run_name`.

    Raises:
        ValueError: folders of these names are of no use, see `check_folder`.
    """
    folder, work_dir = run_folder(recipe, work_dir, name, seed), work_dir.absolute()
    found = data_of_run(work_dir, recipe.corpus_name, folder)
    data = found[0] if found else None
    if data is None:
        data = folder_for(work_dir, recipe.corpus_name, corpus, None, [])
    check_folder(data)
    return Run(data, folder, seed, corpus.languages, corpus.test_sets)


def run_folder(recipe: Recipe, work_dir: Path, name: str | None, seed: int) -> Path:
    """The folder of a run; args and raises: as for `find_run`."""
    runs = work_dir.absolute() / "runs" / recipe.corpus_name
    check_folder(folder := runs / run_name(recipe, name) / f"seed{seed}")
    return folder


def check_folder(path: Path) -> None:
    """Refuse, before hours of work, a folder that fairseq or the system would refuse after them.

    Raises:
        ValueError: a colon, at which fairseq divides paths, or a part that is too long.
    """
    if ":" in str(path):
        raise ValueError(
            f"{path}: fairseq divides paths at colons: choose another --work-dir or --name"
        )
    longest = max(path.parts, key=lambda part: len(os.fsencode(part)))
    if len(os.fsencode(longest)) > LONGEST:
        raise ValueError(f"{longest}: too long for a folder's name, of {LONGEST} bytes at most")


def run_name(recipe: Recipe, name: str | None) -> str:
    """The name of a recipe's runs: its own, or ``name`` with its own in the place of {recipe}."""
    return ("{recipe}" if name is None else name).replace("{recipe}", recipe.name)


def seed_folders(path: Path, seeds: Iterable[int] | None = None) -> list[Path]:
    """The runs in a recipe's folder, by seed, or those of some seeds, there or not, each once; a
    folder without any is a run itself."""
    if seeds is not None:
        return [path / f"seed{seed}" for seed in dict.fromkeys(seeds)]
    named = (folder for folder in path.glob("seed*") if _SEEDS.fullmatch(folder.name))
    return sorted(named, key=lambda seed: (len(seed.name), seed.name)) or [path]


def settings_of(folder: Path) -> dict[str, Any]:
    """All that a run's results depend on but its seed, as far as it is known.

    Of its data, settings, files and dictionaries; the libraries that made the same of them may be
    of other versions.
    """
    results = read_json_or_none(folder / "results.json") or {}
    prepared = trained_on(folder) or results.get("data")  # kept ones have it there
    if prepared is None:
        return results.get("settings", {})
    data = {name: prepared.get(name) for name in ("settings", "inputs", "dictionary")}
    return {"data": data} | results.get("settings", {})
