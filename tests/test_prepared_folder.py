"""fairseq-preprocess: data keep the dictionary that numbers them, and no option is left unused."""

import argparse

import pytest
from fairseq_commands import USER_DIR, run

from ea_fairseq.compat.prepared_folder import check
from ea_fairseq.errors import UserError

TEXT = {"train": "a b\nc a\n", "test": "c\n"}


def preprocess(folder, *more):
    for split, text in TEXT.items():
        for language in ("de", "en"):
            (folder / f"{split}.{language}").write_text(text)
    files = ("--source-lang", "de", "--target-lang", "en", "--destdir", folder / "data")
    return run("preprocess", "--user-dir", USER_DIR, *files, *more)


def options(folder, **given):
    """Of a command on two languages, with fairseq's defaults."""
    names = "srcdict tgtdict trainpref validpref testpref align_suffix".split()
    args = dict.fromkeys(names) | {"source_lang": "de", "target_lang": "en", "destdir": str(folder)}
    args |= dict.fromkeys(["thresholdsrc", "thresholdtgt"], 0)
    args |= dict.fromkeys(["nwordssrc", "nwordstgt"], -1)
    args |= dict.fromkeys(["joined_dictionary", "only_source", "dict_only"], False)
    return argparse.Namespace(**args | given)


def test_data_keep_their_dictionary(tmp_path):
    train = ("--trainpref", tmp_path / "train", "--joined-dictionary")
    done = preprocess(tmp_path, *train)
    assert done.status == 0, done.errors()
    mine, other = tmp_path / "data" / "dict.de.txt", tmp_path / "other.txt"
    before = mine.read_text()
    other.write_text("".join(f"{line}\n" for line in reversed(before.splitlines())))
    test = ("--testpref", tmp_path / "test", "--joined-dictionary", "--srcdict")
    done = preprocess(tmp_path, *test, other)
    last = done.errors().strip().splitlines()[-1]
    assert done.status == 1 and last.startswith(f"error: {other} has other entries than {mine}")
    assert "train.de-en.de.idx is numbered by the latter" in last and mine.read_text() == before
    # The same one, or one with all data made anew, is taken.
    recounted = "".join(f"{line.split()[0]} 1\n" for line in before.splitlines())
    other.write_text(recounted)
    check(options(tmp_path / "data", srcdict=str(other), joined_dictionary=True, testpref="test"))
    other.write_text("b 1\n" + recounted.replace("b 1\n", ""))
    check(options(tmp_path / "data", srcdict=str(other), trainpref="train"))
    with pytest.raises(UserError, match=r"train\.de-en\.en\.idx is numbered"):
        given = {"srcdict": str(other), "tgtdict": str(other), "trainpref": "train"}
        check(options(tmp_path / "data", **given | {"source_lang": "en", "target_lang": "de"}))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"thresholdtgt": 5, "joined_dictionary": True},
            "--thresholdtgt 5 has no effect with --joined-dictionary: give --thresholdsrc 5",
        ),
        ({"nwordstgt": 90, "nwordssrc": 80, "joined_dictionary": True}, "--nwordstgt 90 has no"),
        ({"nwordssrc": 90, "srcdict": "x"}, "--nwordssrc 90 has no effect on a dictionary"),
        (
            {"thresholdsrc": 2, "tgtdict": "x", "joined_dictionary": True},
            "--thresholdsrc 2 has no effect on a dictionary that is given",
        ),
        ({"align_suffix": "align", "trainpref": "none"}, "--align-suffix align: none.align does"),
        ({"nwordssrc": 90, "nwordstgt": 90, "joined_dictionary": True}, None),
        ({"thresholdsrc": 3, "tgtdict": "x"}, None),
        ({"thresholdtgt": 3, "nwordssrc": 7}, None),
    ],
)
def test_options_without_effect_are_named(tmp_path, given, expected):
    if expected is None:
        check(options(tmp_path, **given))
        return
    with pytest.raises(UserError) as error:
        check(options(tmp_path, **given))
    assert str(error.value).startswith(expected)


def test_text_of_one_language_keeps_its_dictionary_too(tmp_path):
    for name, words in (("dict.txt", "ab"), ("other.txt", "ba")):
        (tmp_path / name).write_text("".join(f"{word} 1\n" for word in words))
    (tmp_path / "train.idx").touch()
    given = {"source_lang": None, "target_lang": None, "only_source": True, "validpref": "v"}
    given |= {"srcdict": str(tmp_path / "other.txt")}
    with pytest.raises(UserError, match=r"train\.idx is numbered by the latter"):
        check(options(tmp_path, **given))
    check(options(tmp_path, **given | {"trainpref": "t"}))
