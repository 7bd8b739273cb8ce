"""Finished runs kept small, to be compared where their models and data are gone.

    <folder>/<recipe>/seed<k>/results.json              settings, versions, times, scores
    <folder>/<recipe>/seed<k>/<test set>.<language>.gz  the translations that were scored

results.json has three things more: the settings, files and dictionaries of the data (``data``), the
validations of the training (``validations``), and SHA-256 of the translations and of the references
(in ``scores``). Sources and references themselves are not kept: the corpus may not be passed on.
They are taken from data that was prepared anew, if they are the same to the byte.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...files import (
    check_file_name,
    check_shape,
    new_folder,
    read_json_or_none,
    sha256,
    write_json,
)
from ..runs.folders import seed_folders
from ..runs.text_copy import trained_on
from .independence import check_own_scores
from .milestones import read_progress
from .scoring import (
    Translation,
    checked_record,
    read_record,
    read_results,
    read_scored,
    scored_translation,
)

#: Bytes of a test set's translations, unpacked; those of 3,000 sentences are half a million.
LIMIT = 100_000_000

#: What every results.json that is kept has.
NEEDED = ("corpus", "scores")


def is_kept(folder: Path) -> bool:
    """Whether a run's folder is one that `keep` made."""
    return "validations" in (read_json_or_none(folder / "results.json") or {})


def keep(run: Path, into: Path) -> tuple[Path, bool]:
    """Keep a finished run of a translation model.

    Args:
        run: its folder
        into: the folder of kept runs; it and those in it are made where they are not there

    Returns:
        the kept run's folder; whether it is new

    Raises:
        ValueError: the run is not finished, damaged or of a language model, or another one is kept
            already.
    """
    run = run.resolve()
    target = into / run.parent.name / run.name
    if not (run / "results.json").exists():
        raise ValueError(f"{run}: not finished: there is no results.json")
    results = read_results(run / "results.json", NEEDED)
    check_own_scores(run)
    texts: dict[str, bytes] = {}
    for test_set in results["scores"]:
        scored = run / "scores" / f"{test_set}.json"
        results["scores"][test_set], name, lines = _kept_record(scored, test_set)
        texts[name] = lines
    prepared = trained_on(run) or {}
    results["data"] = {key: prepared.get(key) for key in ("settings", "inputs", "dictionary")}
    has_log = (run / "logs" / "train.log").exists()  # an ensemble has none
    results["validations"] = [
        {"epoch": found.epoch, "updates": found.updates, "perplexity": found.perplexity}
        for found in (read_progress(run).validations if has_log else [])
    ]
    if target.exists():
        if read_json_or_none(target / "results.json") != results:
            raise ValueError(
                f"{target}: keeps another run of this name and seed: remove it first, or keep this "
                "one in another folder"
            )
        return target, False
    with new_folder(target) as folder:
        for name, text in texts.items():
            (folder / name).write_bytes(gzip.compress(text, 9, mtime=0))  # the same bytes each time
        write_json(folder / "results.json", results)
    return target, True


def _kept_record(scored: Path, test_set: str) -> tuple[dict[str, Any], str, bytes]:
    """What is kept of the scores of a test set, and of the translations; the name of their file."""
    record = read_record(scored)
    if "losses" in record["files"]:
        run = scored.parents[1]
        raise ValueError(f"{run}: is of a language model, which has no translations to keep")
    translation = read_scored(scored)
    if translation.tokens is None:
        kind, lines = "translations", translation.text
    else:
        kind, lines = "hypotheses", translation.tokens
    text = "".join(f"{line}\n" for line in lines).encode()
    name = f"{test_set}.{record['target_lang'] or 'txt'}.gz"
    references = {
        key: scored.parent / record["files"][key]
        for key in ("references", "tokenized_references")
        if key in record["files"]
    }
    named = {key: f"{path.resolve().parent.name}/{path.name}" for key, path in references.items()}
    checksums = {key: sha256(path) for key, path in references.items()}
    checksums[kind] = hashlib.sha256(text).hexdigest()
    record |= {"files": {kind: name} | named, "sha256": checksums}
    _check_kept(record, str(scored))
    return record, name, text


def _check_kept(record: dict[str, Any], name: str) -> None:
    """Refuse a record that lacks a checksum, or of which a file lies somewhere else.

    Raises:
        ValueError: beginning with ``name``.
    """
    files = record["files"]
    if files.keys() - {"tokenized_references"} not in (
        {"references", "translations"},
        {"references", "hypotheses"},
    ):
        raise ValueError(
            f"{name}: files has {', '.join(files)}: expected references, and translations or "
            "hypotheses"
        )
    check_shape(record, {"sha256": dict.fromkeys(files, str)}, name)
    if record["target_lang"]:
        check_file_name(f"{name}: target_lang", record["target_lang"])
    for key, file in files.items():
        for part in file.split("/") if "references" in key else [file]:
            check_file_name(f"{name}: files: {key}", part)


def kept_translations(
    folder: Path, work_dir: Path
) -> Iterator[tuple[str, dict[str, Any], Translation]]:
    """The translations of a kept run, with the references of prepared data.

    Args:
        folder: the kept run
        work_dir: the folder of data/, see `runs.folders`

    Yields:
        test set, what was recorded of its scores, translation

    Raises:
        ValueError: the corpus is not prepared, or has other references than those that the run was
            scored with; or what is kept is damaged, or not the translations that were scored.
    """
    path = folder / "results.json"
    results = read_results(path, NEEDED)
    records = results["scores"]
    for test_set, record in records.items():
        name = f"{path}: scores: {test_set}"
        _check_kept(checked_record(record, name), name)
    data = _data_with_references(folder, results["corpus"], records, work_dir)
    for test_set, record in records.items():
        files = {
            key: (data if "references" in key else folder) / file
            for key, file in record["files"].items()
        }
        (kind,) = files.keys() & {"translations", "hypotheses"}
        if record["sha256"][kind] != _unpacked_sha256(files[kind]):
            raise ValueError(f"{folder}: the translations of {test_set} are not those kept")
        yield test_set, record, scored_translation(record, files)


def _unpacked_sha256(path: Path) -> str:
    """The checksum of what was packed; of no more than a test set can have."""
    try:
        with gzip.open(path) as file:
            text = file.read(LIMIT + 1)
    except (EOFError, OSError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"{path}: cannot be read: {why}") from None
    if len(text) > LIMIT:
        raise ValueError(f"{path}: unpacks to more than {LIMIT:,} bytes: expected translations")
    return hashlib.sha256(text).hexdigest()


def _data_with_references(
    folder: Path, corpus: str, records: dict[str, dict[str, Any]], work_dir: Path
) -> Path:
    """The prepared data whose references a kept run was scored with."""
    wanted = {
        (file, record["sha256"][key])
        for record in records.values()
        for key, file in record["files"].items()
        if "references" in key
    }
    other = ""
    for data in sorted((work_dir / "data").glob(f"{glob.escape(corpus)}*")):
        if not all((data / file).is_file() for file, _ in wanted):
            continue
        differing = sorted(f for f, checksum in wanted if sha256(data / f) != checksum)
        if not differing:
            return data
        other = other or f"was scored with another {differing[0]} than that of {data}; "
    raise ValueError(
        f"{folder}: {other}the references of {corpus} are taken from prepared data, of which "
        f"{work_dir / 'data'} has none that fits: prepare it (ea-recipe {corpus} --variant "
        f"{folder.parent.name.partition('.')[0]} --steps prepare), or name another --work-dir"
    )


def finished_runs(path: Path) -> list[Path]:
    """The finished runs of a recipe's folder, kept or not, or the run that it is itself."""
    return [folder for folder in seed_folders(path) if (folder / "results.json").exists()]
