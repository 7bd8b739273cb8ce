"""A model is never used with other dictionaries or languages than it was trained with."""

import functools
import random
import shutil

import average_checkpoints
import pytest
import torch
from fairseq_commands import (
    USER_DIR,
    WORDS,
    binarize,
    corpus,
    generation,
    last_line,
    run,
    temporary_folder,
    trained,
    training,
)

from ea_fairseq.checkpoints.reading import read_checkpoint
from ea_fairseq.checkpoints.text_identity import KEY, fingerprint
from ea_fairseq.checkpoints.writing import save_checkpoint_file


@functools.cache
def reordered():
    """The data of `corpus`, binarized with dictionaries of the same entries in another order."""
    folder = temporary_folder()
    for lang in ("de", "en"):
        lines = (corpus() / f"dict.{lang}.txt").read_text().splitlines()
        assert lines != sorted(lines)
        (folder / f"dict.{lang}.txt").write_text("".join(f"{line}\n" for line in sorted(lines)))
    text = temporary_folder()
    choose = random.Random(2).choices
    pairs = {s: [(" ".join(choose(WORDS, k=4)),) * 2 for _ in range(8)] for s in SPLITS}
    return binarize(text, pairs, folder)


SPLITS = ("train", "valid", "test")


def checkpoint():
    return trained() / "checkpoint_last.pt"


def use(command, data, path, folder, *more):
    """One of the commands that load a checkpoint, with that data."""
    if command in ("resume", "finetune"):
        option = {"resume": "--restore-file", "finetune": "--finetune-from-model"}[command]
        return run("train", *training(data, folder, option, path, "--max-epoch", "3", *more))
    if command == "validate":
        task = ("--task", "translation", "--user-dir", USER_DIR, "--max-tokens", "99")
        return run("validate", data, "--path", path, *task, *more)
    if command == "interactive":
        source = folder / "input"
        source.write_text("w1 w2\n")
        options = ("--user-dir", USER_DIR, "--input", source, "--source-lang", "de")
        return run("interactive", data, "--path", path, *options, "--target-lang", "en", *more)
    return run("generate", *generation(data, path, *more))


COMMANDS = ("resume", "finetune", "generate", "interactive", "validate")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_same_entries_in_another_order_are_refused(command, tmp_path):
    last = last_line(use(command, reordered(), checkpoint(), tmp_path))
    assert str(checkpoint()) in last and "another source dictionary" in last
    assert "others, or in another order" in last


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_of_the_other_direction_is_refused_or_named(command, tmp_path):
    state = read_checkpoint(str(checkpoint()))
    known = state["extra_state"][KEY]
    known["source"]["language"], known["target"]["language"] = "en", "de"
    path = tmp_path / "other.pt"
    save_checkpoint_file(state, str(path))
    done = use(command, corpus(), path, tmp_path)
    assert "trained on en to de, and is used for de to en" in done.errors() + done.output()
    if command == "finetune":
        assert done.status == 0
    else:
        assert "give --source-lang en --target-lang de" in last_line(done)


def older(folder):
    """The checkpoint without what it knows about its text."""
    state = read_checkpoint(str(checkpoint()))
    del state["extra_state"][KEY]
    save_checkpoint_file(state, str(folder / "older.pt"))
    return folder / "older.pt"


def test_a_size_that_differs_is_told_of_the_dictionary(tmp_path):
    data = shutil.copytree(corpus(), tmp_path / "bin")
    with open(data / "dict.en.txt", "a") as file:
        file.write("more 1\n")
    entries = 4 + len((corpus() / "dict.en.txt").read_text().splitlines())
    last = last_line(use("generate", data, checkpoint(), tmp_path))
    assert f"another target dictionary than that of the data ({entries + 1} entries" in last
    # An older checkpoint does not know its dictionary, but has a row for each of its entries.
    last = last_line(use("generate", data, older(tmp_path), tmp_path))
    assert f"target dictionary of the data has {entries + 1} entries" in last
    assert f"that of the checkpoint {entries}" in last and "embed_tokens" not in last


def test_an_older_checkpoint_is_used_with_a_warning(tmp_path):
    for path, warned in ((older(tmp_path), True), (checkpoint(), False)):
        done = use("generate", corpus(), path, tmp_path)
        assert done.status == 0, done.errors()
        text = done.errors() + done.output()
        assert ("does not know its languages and dictionaries" in text) == warned


def test_averages_know_what_their_checkpoints_know(tmp_path, capsys):
    known = read_checkpoint(str(checkpoint()))["extra_state"][KEY]
    assert known["source"]["language"] == "de" and known["target"]["language"] == "en"
    one, older, other = (str(tmp_path / name) for name in ("one.pt", "older.pt", "other.pt"))
    state = read_checkpoint(str(checkpoint()))
    other_text = known | {"target": known["target"] | {"sha256": "0" * 64}}
    for path, text in ((one, known), (older, None), (other, other_text)):
        state["extra_state"][KEY] = text
        save_checkpoint_file(state, path)
    output = tmp_path / "average.pt"
    for inputs in ([one, older], [older, one], [one, str(checkpoint())]):
        assert average_checkpoints.main(["--inputs", *inputs, "--output", str(output)]) == 0
        assert torch.load(output, weights_only=True)["extra_state"][KEY] == known
    output.unlink()
    assert average_checkpoints.main(["--inputs", one, other, "--output", str(output)]) == 1
    error = capsys.readouterr().err
    assert "other target dictionaries" in error and "other.pt" in error and not output.exists()


def test_the_fingerprint_is_of_the_entries_and_not_of_their_counts():
    from fairseq.data import Dictionary

    def made(words):
        dictionary = Dictionary()
        for word, count in words:
            dictionary.add_symbol(word, count)
        return dictionary

    one, counted, swapped = [("a", 2), ("b", 1)], [("a", 9), ("b", 9)], [("b", 2), ("a", 1)]
    assert fingerprint(made(one)) == fingerprint(made(counted)) != fingerprint(made(swapped))
