"""fairseq's own symbols, written as words of a text, are unknown words of it, with a warning."""

import re

import pytest
from fairseq.data import Dictionary, data_utils
from fairseq_commands import USER_DIR, run

from ea_fairseq.text.control_words import as_unknown, found_in

LINES = ["a b", "a </s> b", "<unk> a", "<pad>", "a<s> </s>", "<s> <pad> b </s>"]
PLAIN = ["a b", "a <unk> b", "<unk> a", "<unk>", "a<s> <unk>", "<unk> <unk> b <unk>"]


@pytest.mark.parametrize(("line", "plain"), list(zip(LINES, PLAIN, strict=True)))
def test_only_whole_words_are_meant(line, plain):
    assert as_unknown(line) == plain
    assert found_in(line) == [w for w in ("<s>", "<pad>", "</s>") if w in line.split()]


@pytest.mark.parametrize("workers", [1, 2])
def test_data_have_no_symbol_that_a_text_names(tmp_path, workers):
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in LINES))
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
