"""Damaged or mismatching data is refused in one line; unusual sentences are trained and translated.

Every fault is made in files that fairseq-preprocess wrote, and met by fairseq's own commands.
"""

import re
import shutil
import struct

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq_commands import binarize, corpus, generation, last_line, run, trained, training
from small_models import build_strong, padded, score, sentences
from trained_language_models import corpus as text
from trained_language_models import training as language_training

from ea_fairseq.checkpoints.reading import read_checkpoint
from ea_fairseq.errors import UserError
from ea_fairseq.guard import binarized_data
from ea_fairseq.guard.binarized_data import check_files, check_folders, check_tokens

PAD, EOS = 1, 2


@pytest.fixture
def data(tmp_path):
    """A copy of the corpus to damage."""
    return shutil.copytree(corpus(), tmp_path / "data")


def write(path, sentences, kind=np.uint16, code=8):
    """Write .idx and .bin by the description of the format, without fairseq."""
    sizes = [len(sentence) for sentence in sentences]
    places = [np.dtype(kind).itemsize * sum(sizes[:i]) for i in range(len(sizes))]
    header = b"MMIDIDX\x00\x00" + struct.pack("<QBQ", 1, code, len(sizes))
    arrays = np.array(sizes, np.int32).tobytes() + np.array(places, np.int64).tobytes()
    path.with_name(path.name + ".idx").write_bytes(header + arrays)
    path.with_name(path.name + ".bin").write_bytes(
        b"".join(np.array(sentence, kind).tobytes() for sentence in sentences)
    )


def words(size):
    """A dictionary of that many entries, its four special ones among them."""
    dictionary = Dictionary()
    for number in range(size - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return dictionary


def changed(name, change):
    """What changes the bytes of one of a folder's files."""
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def shorten(name, length):
    return changed(name, lambda old: old[:length])


def overwrite(name, place, content):
    return changed(name, lambda old: old[:place] + content + old[place + len(content) :])


def remove(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


# 60 sentences: 26 bytes of header, 60 * 4 of sizes, 60 * 8 of places.
FAULTS = {
    "data cut": (
        shorten("train.de-en.de.bin", -5),
        r"train\.de-en\.de\.bin is cut short: \d+ bytes instead of the \d+ of its index",
    ),
    "data of another text": (
        lambda folder: shutil.copy(folder / "valid.de-en.en.bin", folder / "train.de-en.en.bin"),
        r"train\.de-en\.en\.bin is cut short",
    ),
    "data longer": (
        changed("train.de-en.en.bin", lambda old: old + b"\0\0"),
        r"train\.de-en\.en\.bin is not of its index: (\d+) bytes instead of \d+",
    ),
    "end of the data never written": (
        overwrite("train.de-en.en.bin", 600, b"\0" * 92),
        r"train\.de-en\.en\.bin is damaged: sentence \d+ of 60 ends with token number 0 instead",
    ),
    "index cut": (
        shorten("train.de-en.en.idx", -5),
        r"train\.de-en\.en\.idx is cut short: 741 bytes instead of 746 for 60 sentences",
    ),
    "index without end of header": (
        shorten("valid.de-en.de.idx", 20),
        r"valid\.de-en\.de\.idx is cut short: 20 bytes, where the header alone has 26",
    ),
    "index empty": (shorten("train.de-en.de.idx", 0), r"train\.de-en\.de\.idx is cut short: 0 by"),
    "index of something else": (
        overwrite("train.de-en.de.idx", 0, b"PK\3\4"),
        r"train\.de-en\.de\.idx is no index of binarized data: it begins with b'PK",
    ),
    "data missing": (remove("train.de-en.en.bin"), r"train\.de-en\.en\.bin is missing"),
    "index missing": (remove("valid.de-en.de.idx"), r"valid\.de-en\.de\.idx is missing"),
    "no sentences": (
        lambda folder: write(folder / "train.de-en.de", []),
        r"train\.de-en\.de\.idx: the data has no sentences",
    ),
    "dictionary of fewer words": (
        changed("dict.en.txt", lambda old: b"".join(old.splitlines(keepends=True)[:10])),
        r"de-en\.en\.bin does not fit its dictionary of 14 entries: token number \d+ in sentence",
    ),
}


def load(folder):
    """What fairseq-train does with the data before it trains."""
    settings = TranslationConfig(data=str(folder), source_lang="de", target_lang="en")
    settings.dataset_impl, settings.train_subset = None, "train"
    task = TranslationTask.setup_task(settings)
    for split in ("valid", "train"):
        task.load_dataset(split)


@pytest.mark.parametrize("fault", FAULTS)
def test_loading_is_refused_with_the_file_and_the_place(data, fault):
    change, message = FAULTS[fault]
    load(data)
    change(data)
    with pytest.raises(UserError, match=message):
        load(data)


def test_training_ends_in_one_line_before_it_starts(data, tmp_path):
    change, message = FAULTS["data cut"]
    change(data)
    done = run("train", *training(data, tmp_path / "checkpoints", "--max-epoch", "1"))
    assert re.search(message, last_line(done))
    assert "Start iterating over samples" not in done.output()
    assert list((tmp_path / "checkpoints").glob("*.pt")) == []


def test_sources_alone_are_translated(data):
    remove("test.de-en.en.bin", "test.de-en.en.idx")(data)
    done = run("generate", *generation(data, trained() / "checkpoint_last.pt"))
    assert done.status == 0 and done.output().count("\nH-") == 11


def test_generation_ends_in_one_line_without_a_translation(data):
    shorten("test.de-en.de.bin", -5)(data)
    done = run("generate", *generation(data, trained() / "checkpoint_last.pt"))
    assert "test.de-en.de.bin is cut short" in last_line(done) and "H-" not in done.output()


@pytest.mark.parametrize("kind, code", [(np.uint16, 8), (np.uint32, 9), (np.int64, 5)])
def test_the_first_token_beyond_the_dictionary_is_found_anywhere(tmp_path, kind, code, monkeypatch):
    monkeypatch.setattr(binarized_data, "_AT_ONCE", 7)  # many steps over few tokens
    random = np.random.default_rng(0)
    good = [[*random.integers(3, 30, random.integers(0, 6)), EOS] for _ in range(20)]
    path = tmp_path / "text"
    write(path, good, kind, code)
    assert check_files(str(path)) == kind
    check_tokens(str(path), np.dtype(kind), words(30))
    for number in range(20):
        for bad in (30, 31, 65_000, *([-1] if kind is np.int64 else [])):
            sentences = [list(sentence) for sentence in good]
            for later in range(number, 20):
                sentences[later][0] = bad
            write(path, sentences, kind, code)
            check_files(str(path))
            message = f"30 entries: token number {bad} in sentence {number + 1} of 20"
            with pytest.raises(UserError, match=message):
                check_tokens(str(path), np.dtype(kind), words(30))


def test_an_index_cut_or_changed_anywhere_is_refused(tmp_path):
    """Each of its bits counts: a file that differs in one passes no check."""
    path = tmp_path / "text"
    write(path, [[5, 6, EOS], [EOS], [7, EOS]])
    check_files(str(path))
    index = path.with_name("text.idx")
    whole = index.read_bytes()
    for length in range(len(whole)):
        index.write_bytes(whole[:length])
        with pytest.raises(UserError, match="text.idx is cut short"):
            check_files(str(path))
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        index.write_bytes(changed)
        with pytest.raises(UserError, match="text"):
            check_files(str(path))


def test_a_sentence_without_its_end_is_refused(tmp_path):
    path = str(tmp_path / "text")
    for last, message in (
        ([], "sentence 2 of 2 has no token"),
        ([5], "sentence 2 of 2 ends with token number 5"),
        ([PAD, PAD], "sentence 2 of 2 ends with token number 1"),
    ):
        write(tmp_path / "text", [[5, EOS], last])
        with pytest.raises(UserError, match=message):
            check_tokens(path, check_files(path), words(30))


LONGEST = " ".join(["w1 w2 w3"] * 341)  # 1,023 words: with its end as long as the model reads


def test_shortest_and_longest_sentences_are_trained_and_translated(tmp_path):
    """Empty lines, one word, a line that reads as padding, 1,024 tokens; in batches of one too."""
    odd = [("", ""), ("w1", "w1"), ("<pad> <pad>", "<pad>"), ("", "w1"), ("w2", "")]
    pairs = [*odd, ("w1 w2", "w2 w1"), (LONGEST, "w3 w2"), ("w3", LONGEST)]
    data = binarize(tmp_path, {"train": pairs, "valid": pairs, "test": pairs}, corpus())
    folder = tmp_path / "checkpoints"
    arguments = training(data, folder, "--arch", "ea_transformer_lite", "--max-epoch", "1")
    done = run("train", *arguments, "--batch-size", "1", "--max-tokens", "1024")
    assert done.status == 0, done.errors()
    assert "num_updates=8" in done.output() and "invalid sizes" not in done.output()
    assert re.search(r"[ |]loss[= ]", done.output())
    assert not re.search(r"(loss|gnorm)[= ](nan|inf)", done.output())
    model = read_checkpoint(str(folder / "checkpoint_last.pt"))["model"]
    assert all(value.isfinite().all() for value in model.values())
    for batches in (["--max-tokens", "1024"], ["--max-tokens", "20000"]):
        done = run("generate", *generation(data, folder / "checkpoint_last.pt", *batches))
        assert done.status == 0, done.errors()
        assert sorted(map(int, re.findall(r"^D-(\d+)\t", done.output(), re.M))) == list(range(8))
        assert not re.search(r"^H-\d+\t-?(nan|inf)", done.output(), re.M)


def test_one_token_too_many_is_left_out_of_training_and_named_elsewhere(tmp_path):
    pairs = [(LONGEST + " w1", "w1"), ("w1 w2", "w2 w1")]
    splits = {"train": pairs, "valid": pairs[1:], "test": pairs}
    data = binarize(tmp_path, splits, corpus())
    folder = tmp_path / "checkpoints"
    arguments = training(data, folder, "--max-epoch", "1", "--max-tokens", "1100")
    done = run("train", *arguments)
    assert done.status == 0, done.errors()
    assert "1 samples have invalid sizes and will be skipped" in done.output() + done.errors()
    arguments = generation(data, folder / "checkpoint_last.pt", "--max-tokens", "1100")
    done = run("generate", *arguments)
    assert done.status == 1 and "H-" not in done.output()
    last = done.errors().splitlines()[-1]
    assert "Size of sample #0 is invalid" in last and "1025" in last


@pytest.mark.parametrize("left", [False, True])
def test_sources_of_nothing_but_padding_leave_the_others_and_the_gradients_alone(left):
    model = build_strong()
    sources, prefixes = sentences([4, 6], 1, last=EOS), sentences([5, 3], 2)
    empty, filler = torch.full((6,), PAD), torch.full((5,), PAD)
    alone = score(model, sources, prefixes, left_pad_source=left)
    mixed = score(model, [*sources, empty], [*prefixes, filler], left_pad_source=left)
    for one, other in zip(alone, mixed[:2], strict=True):
        assert torch.allclose(one, other, atol=1e-9)
    for rows in ([*sources, empty], [empty, empty]):  # some of the batch, and all of it
        targets = [*prefixes, filler][-len(rows) :]
        scores, _ = model.train()(padded(rows, left), None, padded(targets))
        model.zero_grad()
        scores.square().sum().backward()
        assert scores.isfinite().all()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        assert len(gradients) > 50 and all(gradient.isfinite().all() for gradient in gradients)


def test_folders_share_their_dictionaries(data, tmp_path):
    """Every other epoch was trained on the second folder's numbers as the first one's words."""
    path = data / "dict.en.txt"
    used = {path.name: Dictionary.load(str(corpus() / path.name))}
    both = f"{corpus()}:{data}"
    check_folders(both, used)
    path.write_text("".join(f"{line}\n" for line in reversed(path.read_text().splitlines())))
    check_folders(str(data), used)
    done = run("train", *training(both, tmp_path / "saved", "--max-update", "1"))
    assert last_line(done).startswith(f"error: {path} has other entries than {corpus()}")
    path.unlink()
    check_folders(both, used)


def test_folders_of_a_text_share_their_dictionary(tmp_path):
    both = f"{text()}:{tmp_path}"
    arguments = language_training(tmp_path / "saved", "--max-update", "1")
    (tmp_path / "dict.txt").write_text("w1 1\n")
    done = run("train", both, *arguments[1:])
    assert last_line(done).startswith(f"error: {tmp_path / 'dict.txt'} has other entries")


def test_all_parts_of_a_training_set_are_taken_once(data):
    """fairseq loads them with --upsample-primary 1 alone; its own default is -1."""
    for file in data.glob("valid.*"):
        shutil.copyfile(file, data / file.name.replace("valid", "train1"))
    task = TranslationTask.setup_task(TranslationConfig(data=str(data), dataset_impl="mmap"))
    task.cfg.train_subset = "train"
    task.load_dataset("train", combine=True)
    both, (first, second) = task.datasets["train"], (60, 8)
    assert len(both) == len(both.sizes) == first + second
    task.load_dataset("valid")
    for row in range(second):
        assert both[first + row]["target"].equal(task.datasets["valid"][row]["target"])
