"""A run's own copy of what its model needs to read and write text, safe from later preparations.

    <run>/text/corpus.json       languages, tokenization, subwords; the data it was trained on
    <run>/text/codes             BPE merges, or the sentencepiece model
    <run>/text/dict.<lang>.txt   fairseq's dictionaries; of a language model dict.txt

The key ``prepared`` of corpus.json is prepared.json of that data as it was (see pipeline.py).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from ...corpus.binarize import dictionary_name
from ...corpus.config import Corpus
from ...corpus.inputs import corrected, named_as_prepared, sha256_once
from ...files import new_folder, read_json, read_json_or_none, write_json
from ..results.differences import differences

#: In the run's folder, and what is in there beside the copies.
FOLDER, NAME = "text", "corpus.json"

#: Original files of a corpus, by name; None for one that is a download.
Inputs = dict[str, Path | None]


def keep_text(run: Path, data: Path, corpus: Corpus) -> None:
    """Copy codes, dictionaries and text settings of its data into a run's folder, once."""
    if (run / FOLDER).exists():
        return
    with new_folder(run / FOLDER) as folder:
        shutil.copyfile(data / "codes", folder / "codes")
        for lang in corpus.languages:
            name = dictionary_name(corpus, lang)
            shutil.copyfile(data / "bin" / name, folder / name)
        content = {
            **corpus.named_languages,
            "tokenize": corpus.tokenize.as_json(),
            "subword": corpus.subword,
            "post_process": corpus.post_process,
            "data": os.path.relpath(data, run),
            "prepared": read_json(data / "prepared.json"),
        }
        write_json(folder / NAME, content)


def trained_on(folder: Path) -> dict[str, Any] | None:
    """prepared.json of the data that a run was trained on; None where the run kept none."""
    kept = read_json_or_none(folder / FOLDER / NAME)
    return None if kept is None else kept["prepared"]


def changes(
    prepared: dict[str, Any],
    settings: dict[str, Any],
    test_sets: dict[str, str],
    inputs: Inputs | None,
    listed: dict[str, str] | None = None,
) -> dict[str, str]:
    """How data that is asked for differs from prepared data, by the names of the settings.

    Args:
        prepared: the content of prepared.json
        settings: the settings asked for, as pipeline.data_settings gives them
        test_sets: the test sets asked for, as prepared.json has them
        inputs: the original files; None where nobody looked
        listed: the SHA-256 of original files that corpus.yml gives, by their names
    """
    if inputs is not None:
        settings, inputs = named_as_prepared(prepared, settings, inputs)
    found = {
        f"corpus.yml: {name.replace('.', ': ')}": change
        for name, change in differences(prepared["settings"], settings).items()
    }
    if not found and prepared["test_sets"] != test_sets:
        old, new = (", ".join(sets.values()) for sets in (prepared["test_sets"], test_sets))
        found["corpus.yml: order of the test sets"] = f"{old} -> {new}"
    for name, given in corrected(listed or {}, prepared["inputs"]).items():
        found[f"corpus.yml: checksum of {name}"] = f"{prepared['inputs'][name]} -> {given}"
    if inputs is None:
        return found
    sizes = prepared.get("input_bytes", {})
    for name in sorted(prepared["inputs"].keys() | inputs.keys()):
        before = prepared["inputs"].get(name)
        if name not in inputs or before is None:
            found[name] = "there -> not there" if before else "not there -> there"
        elif (file := inputs[name]) is not None and sha256_once(file) != before:
            size = file.stat().st_size
            old = f"{sizes[name]:,} bytes" if name in sizes else "other content"
            other = " of other content" if sizes.get(name) == size else ""
            found[name] = f"{old} -> {size:,} bytes{other}"
    return found
