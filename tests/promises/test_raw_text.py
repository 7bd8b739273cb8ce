"""fairseq-preprocess: a line of the file is a sentence of the data, or is named in one line."""

import re

import pytest
from fairseq.data import Dictionary, data_utils
from fairseq_commands import USER_DIR, last_line, run

from ea_fairseq.guard.preprocess import find_offsets, lines_of_part
from ea_fairseq.text.control_words import as_unknown, found_in

LINES = ["a b", "", "c\rd", "e \u2028 f", "ä" * 40, "\x0b g \x1c", "h\r", " "]


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("count", range(len(LINES) + 1))
def test_parts_hold_every_line_once_and_in_order(tmp_path, count, end):
    path = tmp_path / "text"
    path.write_bytes(("\n".join(LINES[:count]) + end).encode())
    expected = path.read_bytes().decode().split("\n")
    if expected[-1] == "":
        expected.pop()
    for parts in range(1, 12):
        offsets = find_offsets(path, parts)
        found = []
        for start, stop in zip(offsets, offsets[1:], strict=False):
            with lines_of_part(path, start, stop) as lines:
                found += lines
        assert found == expected, parts
    with lines_of_part(path, 0, 0) as lines:
        assert list(lines) == expected


def preprocess(folder, *more):
    files = ["--source-lang", "de", "--target-lang", "en", "--trainpref", folder / "train"]
    return run("preprocess", "--user-dir", USER_DIR, *files, "--destdir", folder / "data", *more)


@pytest.mark.parametrize("workers", [1, 3])
def test_sentences_stay_beside_their_translations(tmp_path, workers):
    """fairseq's own reading makes two sentences of a line with a carriage return."""
    source = [f"s{number}{chr(13) if number % 7 == 3 else chr(0x2028)}x" for number in range(50)]
    (tmp_path / "train.de").write_bytes(("\ufeff" + "\n".join(source) + "\n").encode())
    (tmp_path / "train.en").write_bytes("".join(f"t{n}\r\n" for n in range(50)).encode())
    done = preprocess(tmp_path, "--workers", workers)
    assert done.status == 0, done.errors()
    sides = []
    for language in ("de", "en"):
        words = Dictionary.load(str(tmp_path / "data" / f"dict.{language}.txt"))
        stored = data_utils.load_indexed_dataset(
            str(tmp_path / "data" / f"train.de-en.{language}"), words
        )
        sides.append([words.string(sentence) for sentence in stored])
    assert sides == [[f"s{n} x" for n in range(50)], [f"t{n}" for n in range(50)]]


@pytest.mark.parametrize(
    ("content", "workers", "expected"),
    [
        (b"a b\nc \xff d\n", 1, "line 2 is not UTF-8 (invalid start byte: byte 0xff at 2); save"),
        (b"a b\n" * 30 + b"\xe2\x80\n" + b"a\n" * 9, 3, "line 31 is not UTF-8 (invalid cont"),
        (b"\xff\xfea\0", 1, "is UTF-16"),
        ("ab\n".encode("utf-16-le"), 1, "is UTF-16LE"),
        ("ab\n".encode("utf-16-be"), 1, "is UTF-16BE"),
        (b"\x1f\x8b\x08\0", 2, "is compressed (gzip)"),
    ],
)
def test_what_is_no_utf8_is_named_with_its_line(tmp_path, content, workers, expected):
    (tmp_path / "train.de").write_bytes(content)
    (tmp_path / "train.en").write_bytes(b"a\n" * content.count(b"\n"))
    done = preprocess(tmp_path, "--workers", workers)
    assert last_line(done).startswith(f"error: {tmp_path / 'train.de'}: {expected}")
    assert not list((tmp_path / "data").glob("*.idx"))


WORDS = ["a b", "a </s> b", "<unk> a", "<pad>", "a<s> </s>", "<s> <pad> b </s>"]
PLAIN = ["a b", "a <unk> b", "<unk> a", "<unk>", "a<s> <unk>", "<unk> <unk> b <unk>"]


@pytest.mark.parametrize(("line", "plain"), list(zip(WORDS, PLAIN, strict=True)))
def test_only_whole_words_are_fairseqs_symbols(line, plain):
    assert as_unknown(line) == plain
    assert found_in(line) == [w for w in ("<s>", "<pad>", "</s>") if w in line.split()]


@pytest.mark.parametrize("workers", [1, 2])
def test_symbols_that_a_text_names_are_unknown_words_with_a_warning(tmp_path, workers):
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in WORDS))
    files = ["--only-source", "--trainpref", path, "--destdir", tmp_path / "bin"]
    done = run("preprocess", "--user-dir", USER_DIR, *files, "--workers", workers)
    assert done.status == 0, done.errors()
    words = Dictionary.load(str(tmp_path / "bin" / "dict.txt"))
    assert words.symbols[words.nspecial :][:3] == ["a", "b", "a<s>"]
    stored = data_utils.load_indexed_dataset(str(tmp_path / "bin" / "train"), words)
    expected = [[words.index(word) for word in f"{line} </s>".split()] for line in PLAIN]
    assert [sentence.tolist() for sentence in stored] == expected
    named = re.findall(r"text: line (\d+): (<.*) in a text: taken for an unknown", done.output())
    first = [("2", "</s>"), ("4", "<pad>")]  # in a second process all is new
    assert sorted(named) == [*first, ("6", "<s>" if workers == 1 else "<s> and <pad> and </s>")]
