"""Subwords against subword-nmt's own command, and work spread over processes."""

import random
import subprocess
import sys

import pytest

from ea_fairseq.corpus import subwords
from ea_fairseq.corpus.parallel import ordered_map
from ea_fairseq.text import subwords as applying
from ea_fairseq.text.subwords import apply

LEARN, APPLY = ([sys.executable, "-m", f"subword_nmt.{name}_bpe"] for name in ("learn", "apply"))


@pytest.fixture
def text(tmp_path):
    draw = random.Random(3)
    words = ["".join(draw.choices("abcdeß", k=draw.randint(1, 7))) for _ in range(300)]
    files = [tmp_path / "train.de", tmp_path / "train.en"]
    for file in files:
        lines = [" ".join(draw.choices(words, k=draw.randint(0, 9))) for _ in range(500)]
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return files


@pytest.mark.parametrize("workers", [1, 2])
def test_merges_are_those_of_subword_nmt_on_both_files_together(tmp_path, text, workers):
    both = b"".join(file.read_bytes() for file in text)
    expected = subprocess.run(
        [*LEARN, "-s", "200"], input=both, capture_output=True, check=True
    ).stdout
    subwords.learn("bpe", text, 200, 1, workers, tmp_path / "codes")
    assert (tmp_path / "codes").read_bytes() == expected
    assert expected.count(b"\n") == 201


def test_pieces_are_those_of_subword_nmt(tmp_path, text):
    subwords.learn("bpe", text, 200, 1, 1, tmp_path / "codes")
    expected = subprocess.run(
        [*APPLY, "-c", str(tmp_path / "codes")],
        input=text[0].read_bytes(),
        capture_output=True,
        check=True,
    ).stdout.decode()
    lines = list(subwords.read_tokens(text[0]))
    pieces = apply("bpe", tmp_path / "codes", lines)
    assert "".join(piece + "\n" for piece in pieces) == expected
    assert "@@ " in expected


def test_the_memory_of_known_words_is_bounded(tmp_path, text, monkeypatch):
    subwords.learn("bpe", text, 20, 1, 1, tmp_path / "codes")
    lines = list(subwords.read_tokens(text[0]))
    expected = apply("bpe", tmp_path / "codes", lines)
    monkeypatch.setattr(applying, "CACHE", 5)
    again = [apply("bpe", tmp_path / "codes", [line])[0] for line in lines]
    assert again == expected
    codes = tmp_path / "codes"
    assert len(applying._loaded_once("bpe", codes, codes.stat().st_mtime_ns).args[0].cache) < 20


def test_the_memory_of_words_to_learn_from_is_bounded(tmp_path, text, monkeypatch, capsys):
    """The rarest are forgotten, which changes nothing where common words decide all merges."""
    common = tmp_path / "common"
    common.write_text("lower lowest newer newest wider widest\n" * 50)
    rare = tmp_path / "rare"
    rare.write_text("".join(f"x{number}y\n" for number in range(300)))
    subwords.learn("bpe", [common], 10, 1, 1, tmp_path / "codes")
    assert capsys.readouterr().err.count("forgotten") == 0
    monkeypatch.setattr(subwords, "MOST_WORDS", 100)
    subwords.learn("bpe", [common, rare], 10, 1, 1, tmp_path / "bounded")
    assert (tmp_path / "bounded").read_bytes() == (tmp_path / "codes").read_bytes()
    assert "those seen up to 1 times are forgotten, 6 stay" in capsys.readouterr().err


def test_new_codes_in_the_same_place_are_noticed(tmp_path, text):
    codes = tmp_path / "codes"
    line = [text[0].read_text(encoding="utf-8").split("\n")[0]]
    results = []
    for merges in (1, 200):
        subwords.learn("bpe", text, merges, 1, 1, codes)
        results.append(apply("bpe", codes, line))
    assert len(results[0][0].split()) > len(results[1][0].split())


def test_text_without_words_is_an_error(tmp_path):
    (tmp_path / "text").write_text("\n a b \n\n")
    with pytest.raises(ValueError, match="no word"):
        subwords.learn("bpe", [tmp_path / "text"], 10, 1, 1, tmp_path / "codes")
    assert not (tmp_path / "codes").exists()


def test_what_sentencepiece_learns_does_not_depend_on_the_number_of_workers(tmp_path, text):
    """It did, and so on the machine: there are as many as it has cores."""
    learned = []
    for workers in (1, 3, 3):
        subwords.learn("sentencepiece", text, 60, 1, workers, tmp_path / "model")
        learned.append((tmp_path / "model").read_bytes())
    assert learned[0] == learned[1] == learned[2]


def test_sentencepiece_that_cannot_be_learned_names_the_setting(tmp_path, text):
    with pytest.raises(ValueError, match="^subword_size 3: sentencepiece refused: .+"):
        subwords.learn("sentencepiece", text, 3, 1, 1, tmp_path / "codes")
    assert not (tmp_path / "codes").exists()


def double(chunk):
    if 77 in chunk:
        raise ValueError("seventy-seven")
    return [2 * number for number in chunk]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("size", [0, 1, 10, 70])
def test_results_keep_the_order(workers, size):
    chunks = ordered_map(double, range(size), workers, "test", chunk=4)
    assert [number for chunk in chunks for number in chunk] == [2 * n for n in range(size)]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_stream_is_not_read_far_ahead(workers):
    read = 0

    def stream():
        nonlocal read
        while read < 60:
            read += 1
            yield read

    results = ordered_map(double, stream(), workers, "test", chunk=1)
    for taken in range(1, 61):
        next(results)
        assert read <= taken + 3 * workers
    assert list(results) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_worker_reaches_the_caller(workers):
    with pytest.raises(ValueError, match="^seventy-seven$"):
        list(ordered_map(double, range(200), workers, "test", chunk=3))
