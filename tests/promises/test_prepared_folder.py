"""fairseq-preprocess: data keep the dictionary that numbers them, and no option is left unused."""

import argparse

import pytest
from fairseq.options import get_preprocessing_parser
from fairseq_commands import USER_DIR, run

from ea_fairseq.errors import UserError
from ea_fairseq.guard.preprocess import check

TEXT = {"train": "a b\nc a\n", "test": "c\n"}


def preprocess(folder, *more):
    for split, text in TEXT.items():
        for language in ("de", "en"):
            (folder / f"{split}.{language}").write_text(text)
    files = ("--source-lang", "de", "--target-lang", "en", "--destdir", folder / "data")
    return run("preprocess", "--user-dir", USER_DIR, *files, *more)


def options(folder, **given):
    """Of a command on two languages, with fairseq's defaults."""
    args = get_preprocessing_parser().parse_args(["-s", "de", "-t", "en", "--destdir", str(folder)])
    return argparse.Namespace(**vars(args) | given)


def test_data_keep_their_dictionary(tmp_path):
    train = ("--trainpref", tmp_path / "train")
    done = preprocess(tmp_path, *train, "--joined-dictionary")
    assert done.status == 0, done.errors()
    mine, other = tmp_path / "data" / "dict.de.txt", tmp_path / "other.txt"
    before = mine.read_text()
    other.write_text("".join(f"{line}\n" for line in reversed(before.splitlines())))
    test = ("--testpref", tmp_path / "test", "--tgtdict", mine, "--srcdict")
    done = preprocess(tmp_path, *test, other)
    last = done.errors().strip().splitlines()[-1]
    assert done.status == 1 and last.startswith(f"error: {other} has other entries than {mine}")
    assert "train.de-en.de.idx is numbered by the latter" in last and mine.read_text() == before
    # The same one, or one with all data made anew, is taken.
    recounted = "".join(f"{line.split()[0]} 1\n" for line in before.splitlines())
    other.write_text(recounted)
    both = {"srcdict": str(other), "tgtdict": str(other)}
    check(options(tmp_path / "data", **both, testpref="test"))
    other.write_text("b 1\n" + recounted.replace("b 1\n", ""))
    check(options(tmp_path / "data", **both, trainpref="train"))
    with pytest.raises(UserError, match=r"train\.de-en\.en\.idx is numbered"):
        given = {"trainpref": "train", "source_lang": "en", "target_lang": "de"}
        check(options(tmp_path / "data", **both, **given))


def test_text_of_one_language_keeps_its_dictionary_too(tmp_path):
    for name, words in (("dict.txt", "ab"), ("other.txt", "ba")):
        (tmp_path / name).write_text("".join(f"{word} 1\n" for word in words))
    (tmp_path / "train.idx").touch()
    given = {"source_lang": None, "target_lang": None, "only_source": True, "validpref": "v"}
    given |= {"srcdict": str(tmp_path / "other.txt")}
    with pytest.raises(UserError, match=r"train\.idx is numbered by the latter"):
        check(options(tmp_path, **given))
    check(options(tmp_path, **given | {"trainpref": "t"}))


@pytest.mark.parametrize(("target", "count"), [("a\n", 1), ("a\nb\nc", 3), ("", 0)])
def test_files_of_different_length_are_no_translations(tmp_path, target, count):
    """Training refused such data; making them went well, without a word."""
    (tmp_path / "train.de").write_text("a\n")
    (tmp_path / "train.en").write_text("a")  # whose one line does not end
    (tmp_path / "test.de").write_text("a\n\n")
    (tmp_path / "test.en").write_text(target)
    given = {"trainpref": str(tmp_path / "train"), "validpref": str(tmp_path / "train")}
    check(options(tmp_path, **given))
    with pytest.raises(UserError, match=rf"test.de has 2 lines and .*test.en has {count}: each"):
        check(options(tmp_path, **given, testpref=f"{tmp_path / 'train'},{tmp_path / 'test'}"))
