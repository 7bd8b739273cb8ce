"""fairseq-preprocess: data keep the dictionary that numbers them, and no option is left unused."""

import argparse

import pytest
from fairseq.data import Dictionary, data_utils
from fairseq_commands import USER_DIR, run

from ea_fairseq.errors import UserError
from ea_fairseq.guard.data.prepared_folder import check

TEXT = {"train": "a b\nc a\n", "test": "c\n"}


def preprocess(folder, *more):
    for split, text in TEXT.items():
        for language in ("de", "en"):
            (folder / f"{split}.{language}").write_text(text)
    files = ("--source-lang", "de", "--target-lang", "en", "--destdir", folder / "data")
    return run("preprocess", "--user-dir", USER_DIR, *files, *more)


def options(folder, **given):
    """Of a command on two languages, with fairseq's defaults."""
    names = "srcdict tgtdict trainpref validpref testpref align_suffix bpe tokenizer".split()
    args = dict.fromkeys(names) | {"source_lang": "de", "target_lang": "en", "destdir": str(folder)}
    args |= dict.fromkeys(["thresholdsrc", "thresholdtgt"], 0)
    args |= dict.fromkeys(["nwordssrc", "nwordstgt"], -1)
    args |= dict.fromkeys(["joined_dictionary", "only_source", "dict_only"], False)
    args["dataset_impl"] = "mmap"
    return argparse.Namespace(**args | given)


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
        ({"bpe": "subword_nmt"}, "--bpe has no effect on fairseq-preprocess, which takes text"),
        ({"tokenizer": "moses"}, "--tokenizer has no effect on fairseq-preprocess"),
        ({"trainpref": "t", "nwordssrc": 90, "nwordstgt": 90, "joined_dictionary": True}, None),
        ({"trainpref": "t", "thresholdsrc": 3, "tgtdict": "x"}, None),
        ({"trainpref": "t", "thresholdtgt": 3, "nwordssrc": 7}, None),
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


def test_a_dictionary_is_given_or_made_where_none_is(tmp_path):
    """Tracebacks: of assertions, and of the file that exists."""
    with pytest.raises(UserError, match="^--srcdict is missing, or --trainpref, to make a dict"):
        check(options(tmp_path, testpref="test"))
    with pytest.raises(UserError, match="^--tgtdict is missing, or --trainpref"):
        check(options(tmp_path, testpref="test", srcdict="x"))
    there = tmp_path / "dict.en.txt"
    there.write_text("a 1\n")
    with pytest.raises(UserError, match=f"^{there} exists: .*give --tgtdict {there}; else another"):
        check(options(tmp_path, trainpref="train"))
    with pytest.raises(UserError, match="without --joined-dictionary; else another --destdir"):
        check(options(tmp_path, testpref="test", srcdict=str(there), joined_dictionary=True))
    check(options(tmp_path, testpref="test", srcdict="x", tgtdict=str(there)))


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


@pytest.mark.parametrize("text", ["", "\n \n", "\ufeff\n"])
@pytest.mark.parametrize("more", [{}, {"dict_only": True}, {"joined_dictionary": True}])
def test_training_text_without_a_word_is_named(tmp_path, text, more):
    """fairseq made a dictionary without entries of it, and data that no training takes."""
    lines = text.count("\n")
    (tmp_path / "train.de").write_text("a\n" * lines)
    (tmp_path / "train.en").write_text(text)
    (tmp_path / "alone").write_text(text)
    (tmp_path / "words").write_text("\n" * 3 + "a")
    (tmp_path / "test.de").touch()
    (tmp_path / "test.en").touch()
    given = more | {"trainpref": str(tmp_path / "train")}
    with pytest.raises(UserError, match=rf"train\.{'en' if text else 'de'} has no word in it"):
        check(options(tmp_path, **given))
    one = {"source_lang": None, "target_lang": None, "only_source": True}
    with pytest.raises(UserError, match="alone has no word in it: there is nothing to train on"):
        check(options(tmp_path, **more | one, trainpref=str(tmp_path / "alone")))
    # Text to translate may be empty, and so may lines of text.
    tests = {"testpref": str(tmp_path / "test"), "srcdict": "x", "tgtdict": "x"}
    check(options(tmp_path, **more | tests))
    check(options(tmp_path, **more | one, trainpref=str(tmp_path / "words")))


@pytest.mark.parametrize("impl", ["fasta", "huffman", "lazy", "cached"])
def test_formats_that_do_not_work_are_refused_with_those_that_do(tmp_path, impl):
    """The first two were tracebacks, the last one in training; of lazy see test_binarized_data."""
    expected = f"--dataset-impl {impl}: .*cannot .* it: choose mmap, the default, or raw$"
    with pytest.raises(UserError, match=expected):
        check(options(tmp_path, dataset_impl=impl))


@pytest.mark.parametrize("impl", ["mmap", "raw"])
def test_the_formats_that_are_named_work(tmp_path, impl):
    done = preprocess(tmp_path, "--trainpref", tmp_path / "train", "--dataset-impl", impl)
    assert done.status == 0, done.errors()
    data = tmp_path / "data"
    words = Dictionary.load(str(data / "dict.de.txt"))
    stored = data_utils.load_indexed_dataset(str(data / "train.de-en.de"), words, impl)
    sentences = [words.string(sentence) for sentence in stored]
    assert sentences == TEXT["train"].splitlines()
