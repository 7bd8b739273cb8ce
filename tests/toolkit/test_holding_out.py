"""Validation and test sets out of training text: reproducible, and none of it is trained on."""

import random
import unicodedata

import pytest

from ea_fairseq.corpus.cleaning import why_dropped
from ea_fairseq.corpus.config import Cleaning, load
from ea_fairseq.corpus.holding_out import draw, key
from ea_fairseq.corpus.mixing import PartText
from ea_fairseq.corpus.pipeline import prepare, tokenize_splits

WORDS = "one two three four five six seven eight nine ten".split()


def pairs(count, seed=1):
    """Pairs of which many have their source in common with others."""
    choose = random.Random(seed)
    sources = [" ".join(choose.choices(WORDS, k=2)) for _ in range(count)]
    return [(source, f"translation {n} of {source}") for n, source in enumerate(sources)]


class Written(list):
    """Takes the place of a file that is written."""

    write = list.append


def prepared(tmp_path, content, hold_out, text):
    (tmp_path / "corpus.yml").write_text(content + f"hold_out: {hold_out}\n")
    corpus = load(tmp_path / "corpus.yml")
    nfc = "train" in corpus.tokenize.nfc
    held = draw(text, corpus.held_out, corpus.seed, corpus.clean, nfc)
    writers = {split: [Written() for _ in range(4)] for split in corpus.splits}
    counts = tokenize_splits(corpus, {"train": [PartText(text)]}, writers, 1, held)
    return {s: list(zip(w[0], w[1], strict=True)) for s, w in writers.items()}, counts


CORPUS = 'source_lang: "de"\ntarget_lang: "en"\nfiles: {train: t}\nclean: {max: 6}\n'


def test_sets_have_their_sizes_and_share_no_source_with_each_other_or_the_training(tmp_path):
    text = [*pairs(400), ("", "empty"), ("one " * 7, "too long"), ("ONE  TWO", "Eins zwei.")]
    splits, counts = prepared(tmp_path, CORPUS, "{valid: 20, test: 15}", text)
    assert [len(splits[name]) for name in ("valid", "test")] == [20, 15]
    sources = {
        name: {" ".join(s.lower().split()) for s, _ in found} for name, found in splits.items()
    }
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        assert not sources[one] & sources[other]
    assert {len(sources["valid"]), len(sources["test"])} == {20, 15}  # none twice
    assert set().union(*splits.values()) < set(text) | {("ONE  TWO", "Eins zwei.")}
    # Counted by hand: what is not held out, and has a source that is.
    held = sources["valid"] | sources["test"]
    again = sum(" ".join(s.lower().split()) in held for s, _ in text) - 35
    assert counts["read"] == len(text) == counts["kept"] + sum(counts["dropped"].values())
    assert counts["dropped"] == {
        "same source as one held out": again,
        "empty": 1,
        "more than 6 words": 1,
    }
    assert len(splits["train"]) == counts["kept"] - 35


def test_what_is_held_out_is_fit_where_another_pair_with_its_source_is_not(tmp_path):
    unfit = ("danke", "one two three four five six seven")
    text = [unfit, ("danke", "thanks"), unfit, ("b", "c")]
    seed = next(s for s in range(1, 20) if key("danke", s) < key("b", s))  # which it is drawn by
    content = CORPUS.replace("{train: t}", "{train: t, valid: v}") + f"seed: {seed}\n"
    splits, _ = prepared(tmp_path, content, "{test: 1}", text)
    assert splits["test"] == [("danke", "thanks")] and splits["train"] == [("b", "c")]


def test_accents_that_are_joined_make_no_difference(tmp_path):
    """The same sentences are held out, and none is lost between drawing and writing."""
    text = [(f"{source} ü", target) for source, target in pairs(200)]
    torn = [tuple(unicodedata.normalize("NFD", line) for line in pair) for pair in text]
    content = CORPUS + "tokenize: {nfc: true}\n"
    splits, _ = prepared(tmp_path, content, "{valid: 12, test: 10}", torn)
    assert [len(splits[name]) for name in ("valid", "test")] == [12, 10]
    assert splits == prepared(tmp_path, content, "{valid: 12, test: 10}", text)[0]


def test_the_choice_is_that_of_the_seed_and_not_of_the_order(tmp_path):
    text = pairs(300)
    sizes = {"valid": 10, "test": 10}
    first = draw(text, sizes, 1, Cleaning())
    assert first == draw(text[::-1], sizes, 1, Cleaning()) != draw(text, sizes, 2, Cleaning())
    # Held to a slow way: all keys sorted, the smallest taken.
    assert list(first) == sorted({key(source, 1) for source, _ in text})[:20]
    assert list(first.values()) == ["valid"] * 10 + ["test"] * 10
    assert key("One  two", 1) == key("one two", 1) != key("one two", 2)


def test_more_is_left_to_train_on_than_is_held_out(tmp_path):
    for number, lang in enumerate(("de", "en")):
        lines = [f"{pair[number]}{n}\n" for n, pair in enumerate(pairs(20))]
        (tmp_path / f"t.{lang}").write_text("".join(lines))
    for held, refused in ((5, False), (6, True), (10, True)):
        output = tmp_path / f"out{held}"
        text = f"{CORPUS}hold_out: {{valid: {held}, test: {held}}}\nsubword_size: 9\n"
        (tmp_path / "corpus.yml").write_text(text)
        given = load(tmp_path / "corpus.yml"), tmp_path, output, None, tmp_path, 1
        if refused:
            words = f"hold_out takes {2 * held} pairs .* leaves {20 - 2 * held} to train on"
            with pytest.raises(ValueError, match=words):
                prepare(*given)
            assert not (output / "raw").exists()
        else:
            assert prepare(*given)["pairs"]["train"] == 10


def test_more_than_there_is_cannot_be_held_out():
    with pytest.raises(
        ValueError, match=r"hold_out asks for 9 pairs \(valid: 9\).* has 2 different"
    ):
        draw([("a", "b"), ("A", "c"), ("d", "e")], {"valid": 9}, 1, Cleaning())


@pytest.mark.parametrize(
    "change, words",
    [
        ("hold_out: {valid: 0, test: 3}", "hold_out: valid is 0"),
        ("hold_out: {test: 3}", "files has no 'valid'"),
        ("hold_out: {valid: 3}", "files has no test set"),
        ("hold_out: {train: 3, valid: 3}", "both hold_out and files: train"),
        ("hold_out: {valid: 3, ../x: 3}", "../x"),
        (
            "hold_out: {valid: 3, test: 3}\ntokenize: {normalize: [train]}",
            "tokenize: normalize is [train]: hold_out takes test out of the training text",
        ),
        (
            "hold_out: {valid: 3, test: 3}\ntokenize: {straight_apostrophes: [valid]}",
            "tokenize: straight_apostrophes is [valid]: hold_out takes valid out of",
        ),
        ("hold_out: 1", "hold_out is 1"),
        ("hold_out: yes please", "hold_out is 'yes please'"),
    ],
)
def test_what_cannot_be_held_out_is_refused(tmp_path, change, words):
    (tmp_path / "corpus.yml").write_text(CORPUS + change + "\n")
    with pytest.raises(ValueError) as error:
        load(tmp_path / "corpus.yml")
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "source, target, reason",
    [
        ("a b", "c", None),
        ("", "c", "empty"),
        ("a", "b c d e", "one side more than 3 times as long"),
        ("a", "b", "less than 3 words"),
        ("a b c d e f", "a b c d", "more than 5 words"),
    ],
)
def test_reasons_for_dropping_are_named(source, target, reason):
    least = 3 if reason and "less" in reason else 1
    cleaning = Cleaning(min=least, max=5, ratio=3)
    assert why_dropped((source, target), cleaning, "words") == reason
