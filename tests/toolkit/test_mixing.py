"""Training text of several parts: weights count pairs, a tag is one token and changes no other."""

import json
from collections import Counter

import prepare
import pytest

from ea_fairseq.corpus import pipeline
from ea_fairseq.corpus.mixing import PartText, divide

WORDS = {"de": "Haus Hund Straße läuft gehen".split(), "en": "house dog street walks go".split()}


def pairs(first, count):
    """Different pairs, whose words have enough in common for merges."""
    sides = {lang: [] for lang in WORDS}
    for number in range(first, first + count):
        for lang, words in WORDS.items():
            sides[lang].append(f"{words[number % 5]} {words[number // 5 % 5]} {number}.")
    return sides


def write(folder, train, more="", name="corpus.yml"):
    """A corpus of two parts of training text; returns its corpus.yml."""
    parts = {"real": (0, 40), "back": (100, 30), "valid": (200, 4), "test": (300, 5)}
    for part, (first, count) in parts.items():
        for lang, lines in pairs(first, count).items():
            (folder / f"{part}.{lang}").write_text("".join(f"{line}\n" for line in lines))
    splits = "" if "hold_out" in more else ", valid: valid, test: test"
    text = (
        f"source_lang: de\ntarget_lang: en\nsubword_size: 60\nfiles: {{train: {train}{splits}}}\n"
    )
    (folder / name).write_text(f"{text}{more}")
    return folder / name


def prepared(corpus, output):
    """The folder that prepare.py writes."""
    assert prepare.main([str(corpus), "--output", str(output), "--workers", "1"]) == 0
    return output


@pytest.fixture
def unbinarized(monkeypatch):
    """fairseq-preprocess, which takes seconds, is left out."""
    monkeypatch.setattr(pipeline, "binarize", lambda corpus, *_: dict.fromkeys(corpus.languages, 4))


def lines(path):
    return path.read_text().splitlines()


def test_a_weight_takes_each_pair_as_often_and_what_is_left_evenly():
    for weight, count, expected in [(2.5, 10, 25), (0.25, 40, 10), (0.29, 100, 29), (1, 7, 7)]:
        part = PartText([], weight)
        copies = [part.copies() for _ in range(count)]
        assert sum(copies) == expected
        assert set(copies) <= {int(weight), int(weight) + 1}
        # Evenly: no beginning of the part has more than its share, or a whole copy less.
        for n in range(1, count + 1):
            assert -1 < round(sum(copies[:n]) - n * weight, 9) <= 0


def test_weighted_parts_are_mixed_and_counted(tmp_path, unbinarized):
    parts = "[{path: 'real.{lang}', weight: 3}, {path: 'back.{lang}', weight: 0.5}]"
    output = prepared(write(tmp_path, parts), tmp_path / "out")
    for lang in WORDS:
        expected = Counter(dict.fromkeys(pairs(0, 40)[lang], 3))
        expected += Counter(pairs(100, 30)[lang][1::2])
        assert Counter(lines(output / "raw" / f"train.{lang}")) == expected
        assert len(lines(output / "bpe" / f"train.{lang}")) == 40 * 3 + 15
    found = json.loads((output / "prepared.json").read_text())
    assert (found["training_pairs_read"], found["pairs"]["train"]) == (70, 135)
    assert found["dropped"] == {}


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_a_tag_is_one_token_in_front_and_all_else_is_as_without_it(tmp_path, unbinarized, kind):
    more = f"subword: {kind}\ntokenize: {{lowercase: true}}\n"
    parts = "[real, {path: 'back.{lang}', tag: <BT>}]"
    tagged = prepared(write(tmp_path, parts, more), tmp_path / "tagged")
    plain = prepared(write(tmp_path, "[real, back]", more, "plain.yml"), tmp_path / "plain")
    pieces = lines(plain / "bpe" / "train.de")
    expected = pieces[:40] + [f"<BT> {line}" for line in pieces[40:]]
    assert lines(tagged / "bpe" / "train.de") == expected
    same = ["codes", "raw/train.de", "bpe/train.en", "bpe/valid.de", "bpe/test.de", "tok/test.de"]
    for name in same:
        assert (tagged / name).read_bytes() == (plain / name).read_bytes()


@pytest.mark.parametrize(
    ("hold_out", "splits", "count"),
    [("{valid: 6, test: 6}", ("valid", "test"), 12), ("5", ("valid",), 8)],
)
def test_what_is_held_out_is_never_of_a_tagged_part(tmp_path, unbinarized, hold_out, splits, count):
    parts = "[{path: 'back.{lang}', tag: <BT>}, {path: 'real.{lang}', weight: 2}]"
    parts += "" if "test" in splits else ", test: test"
    output = prepared(write(tmp_path, parts, f"hold_out: {hold_out}\n"), tmp_path / "out")
    real = pairs(0, 40)["de"]
    held = [line for split in splits for line in lines(output / "raw" / f"{split}.de")]
    assert len(set(held)) == len(held) == count and set(held) < set(real)
    expected = Counter(dict.fromkeys(set(real) - set(held), 2)) + Counter(pairs(100, 30)["de"])
    assert Counter(lines(output / "raw" / "train.de")) == expected
    if hold_out == "5":
        assert held == real[4::5]


def test_a_tagged_copy_of_what_is_held_out_is_not_trained_on(tmp_path, unbinarized):
    parts = "[{path: 'back.{lang}', tag: <BT>}, real]"
    corpus = write(tmp_path, parts, "hold_out: {valid: 6, test: 6}\n")
    for lang, text in pairs(0, 40).items():
        (tmp_path / f"back.{lang}").write_text("".join(line + "\n" for line in text))
    output = prepared(corpus, tmp_path / "out")
    held = {line for split in ("valid", "test") for line in lines(output / f"raw/{split}.de")}
    expected = Counter(dict.fromkeys(set(pairs(0, 40)["de"]) - held, 2))
    assert len(held) == 12 and Counter(lines(output / "raw" / "train.de")) == expected


def test_text_that_begins_with_a_tag_itself_is_refused(tmp_path, capfd):
    more = "tokenize: {tokenizer: none}\n"
    corpus = write(tmp_path, "[real, {path: 'back.{lang}', tag: <BT>}]", more)
    (tmp_path / "back.de").write_text("<BT> x\n" * 30)
    assert prepare.main([str(corpus), "--output", str(tmp_path / "out"), "--workers", "1"]) == 1
    error = capfd.readouterr().err.strip().splitlines()[-1]
    assert "'<BT> x' begins with a tag of corpus.yml" in error
    assert divide("<BT> x", {"<BT>"}) == ("<BT> ", "x")
    assert divide("<BT>x", {"<BT>"}) == ("", "<BT>x") and divide("<BT>", {"<BT>"}) == ("<BT>", "")
