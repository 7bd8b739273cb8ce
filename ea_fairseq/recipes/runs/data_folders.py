"""Which folder holds the data of a run: data that a trained run needs is never written over.

The first data of a corpus lies in ``<work-dir>/data/<corpus>``. Once a run was trained on it, data
made with other settings, or of other files, lies beside it: ``<corpus>-2``, ``<corpus>-3`` ...

Whoever looks for a folder and prepares it holds the lock of `choosing_data`, and whoever uses one
its own lock, with others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import Any

from ...corpus.binarize import subsets
from ...corpus.config import Corpus
from ...corpus.inputs import listed_sha256
from ...corpus.pipeline import data_settings
from ...files import is_locked, locked, read_json_or_none
from ..results.differences import listed
from .text_copy import Inputs, changes, trained_on


def identity(prepared: dict[str, Any]) -> str:
    """A hash of the content of prepared.json, which changes when the prepared data does."""
    return hashlib.sha256(json.dumps(prepared, sort_keys=True).encode()).hexdigest()[:16]


def data_of_run(
    work_dir: Path, corpus_name: str, run: Path
) -> tuple[Path | None, dict[str, Any]] | None:
    """The data that a run was trained on; None for a run that has not begun.

    Returns:
        its folder (None where it is gone), and the content of its prepared.json
    """
    kept = trained_on(run)
    started = read_json_or_none(run / "steps" / "train.started.json")
    if kept is None and started is None:
        return None
    for folder in _present(work_dir, corpus_name):
        prepared = read_json_or_none(folder / "prepared.json")
        if prepared is None:
            continue
        # A run of an earlier version kept nothing but the hash.
        if prepared == kept or (kept is None and identity(prepared) == started["settings"]["data"]):
            return folder, prepared
    return None if kept is None else (None, kept)


def check_data(
    work_dir: Path, corpus_name: str, run: Path, corpus: Corpus, inputs: Inputs | None
) -> None:
    """Check that a run, if it has begun, was trained on what its corpus is now.

    Args: as for `folder_for`; ``run`` is the run's folder.

    Raises:
        ValueError: naming the settings and files that differ.
    """
    found = data_of_run(work_dir, corpus_name, run)
    if found is None:
        return
    changed = _changes(found[1], corpus, inputs)
    if changed:
        moved = inputs is not None and inputs.keys() != found[1]["inputs"].keys()
        raise ValueError(
            f"{run}: was trained on other data ({listed(changed)}); "
            f"{'give --raw, or leave it out, as it was then, ' if moved else ''}choose --name OTHER"
            " to keep it and train beside it, or --fresh to throw it away"
        )


def _changes(prepared: dict[str, Any], corpus: Corpus, inputs: Inputs | None) -> dict[str, str]:
    """How a corpus as it is now differs from prepared data, see `text_copy.changes`."""
    test_sets = subsets(corpus.test_sets)
    return changes(prepared, data_settings(corpus), test_sets, inputs, listed_sha256(corpus))


def choosing_data(work_dir: Path, corpus_name: str) -> AbstractContextManager[int]:
    """The lock under which a folder is looked for and prepared; another run's is waited for."""
    first = work_dir / "data" / corpus_name
    return locked(first, ".choosing", waits_for="another run, which prepares this corpus")


def folder_for(
    work_dir: Path, corpus_name: str, corpus: Corpus, inputs: Inputs | None, anew: list[Path]
) -> Path:
    """The folder that holds the data of a corpus, or else one to prepare it in.

    Args:
        work_dir: the folder of data/ and runs/
        corpus_name: the name of the corpus' folder
        corpus: its settings
        inputs: the corpus' original files, see `text_copy.changes`
        anew: runs that are thrown away, and so need no data
    """
    if found := folders_with(work_dir, corpus_name, corpus, inputs):
        return found[0]
    present = list(_present(work_dir, corpus_name))
    needed = _needed(work_dir, anew)
    for folder in present:
        if folder not in needed and not is_locked(folder):
            return folder
    beside = (present[0].with_name(f"{corpus_name}-{number}") for number in count(2))
    return next(f for f in beside if f not in present and not _is_a_corpus(work_dir, f))


def folders_with(
    work_dir: Path, corpus_name: str, corpus: Corpus, inputs: Inputs | None
) -> list[Path]:
    """The folders that hold the data of a corpus, prepared or begun; args as for `folder_for`."""
    found = []
    for folder in _present(work_dir, corpus_name):
        contents = (read_json_or_none(folder / name) for name in ("prepared.json", "state.json"))
        if any(c is not None and not _changes(c, corpus, inputs) for c in contents):
            found.append(folder)
    return found


def _present(work_dir: Path, corpus_name: str) -> Iterator[Path]:
    """The corpus' first folder, there or not, and those beside it, by number."""
    root = work_dir / "data"
    yield root / corpus_name
    numbered = re.compile(re.escape(corpus_name) + r"-(\d+)")
    found = [
        (match, path)
        for path in root.glob("*")
        if (match := numbered.fullmatch(path.name)) and not _is_a_corpus(work_dir, path)
    ]
    yield from (path for _, path in sorted(found, key=lambda item: int(item[0][1])))


def _is_a_corpus(work_dir: Path, folder: Path) -> bool:
    """Whether a numbered folder is another corpus' first data: one of that name has runs."""
    return (work_dir / "runs" / folder.name).exists()


def _needed(work_dir: Path, anew: list[Path]) -> set[Path]:
    """The folders of data that runs were trained on: of any corpus, for names may be alike."""
    runs = (run for run in (work_dir / "runs").glob("*/*/seed*") if run not in anew)
    found = [data_of_run(work_dir, run.parents[1].name, run) for run in runs]
    return {folder for folder, _ in filter(None, found) if folder is not None}
