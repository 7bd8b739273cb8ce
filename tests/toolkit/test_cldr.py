"""The generated corpus: disjoint splits, the same every time, each pair one meaning."""

import datetime
import json
import os
import subprocess
import sys
from decimal import Decimal
from functools import cache
from random import Random

import pytest
from babel import Locale

from ea_fairseq.corpus import cldr, cldr_content
from ea_fairseq.corpus.cldr_voice import Voice

SIZES = {"train": 400, "valid": 50, "test": 50}
DAY = datetime.date(2025, 3, 4)  # a Tuesday


@cache
def corpus(source: str, target: str) -> dict[str, list[tuple[str, str]]]:
    return cldr.generate(source, target, SIZES, seed=1)


PAIRS = [
    ("de", "en"),
    ("en", "fr"),
    ("de", "es"),
    ("en", "ru"),
    ("cs", "en"),  # num2words has no Czech ordinals
    ("en", "ja"),  # no spaces between words, no amounts of money in words
    ("en", "pt_BR"),
]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_pair_of_languages_gives_whole_clean_disjoint_splits(source, target):
    splits = corpus(source, target)
    assert {split: len(pairs) for split, pairs in splits.items()} == SIZES
    for side in (0, 1):
        texts = [pair[side] for pairs in splits.values() for pair in pairs]
        assert len({text.casefold() for text in texts}) == sum(SIZES.values())
        for text in texts:
            assert text and text == " ".join(text.split(" "))
            assert text.isprintable()  # a plain space is the only space that is printable
            assert "_" not in text and "{" not in text


@pytest.mark.parametrize(("source", "target"), [("de", "en"), ("en", "fr"), ("de", "es")])
def test_sentences_have_8_to_25_words_and_about_12_on_average(source, target):
    for side in (0, 1):
        lengths = [len(pair[side].split()) for pair in corpus(source, target)["train"]]
        assert min(lengths) >= 8 and max(lengths) <= 25
        assert 11 <= sum(lengths) / len(lengths) <= 14


def test_the_same_in_every_process_whatever_the_hash_seed():
    code = "import json, sys; from ea_fairseq.corpus import cldr; "
    code += f"json.dump(cldr.generate('de', 'en', {SIZES}, seed=1), sys.stdout)"
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        assert {k: list(map(tuple, pairs)) for k, pairs in found.items()} == corpus("de", "en")


def test_held_out_splits_depend_on_the_seed_but_not_on_the_size_of_train():
    smaller = cldr.generate("de", "en", SIZES | {"train": 10}, seed=1)
    assert smaller["test"] == corpus("de", "en")["test"]
    assert smaller["valid"] == corpus("de", "en")["valid"]
    assert cldr.generate("de", "en", {"test": 50}, seed=2)["test"] != smaller["test"]


SAID = [  # as people write it; CLDR's own spaces may be special ones
    (lambda v: v.date(DAY, "full"), "Dienstag, 4. März 2025", "Tuesday, March 4, 2025"),
    (lambda v: v.date(DAY, "short"), "04.03.25", "3/4/25"),
    (lambda v: v.time(datetime.time(15, 5)), "15:05", "3:05 PM"),
    (lambda v: v.relative(-3, "day"), "vor 3 Tagen", "3 days ago"),
    (lambda v: v.relative(5, "month"), "in 5 Monaten", "in 5 months"),
    (lambda v: v.money(Decimal("12.5"), "EUR", "standard"), "12,50 €", "€12.50"),
    (lambda v: v.money(Decimal("12.5"), "NOK", "standard"), "12,50 NOK", "NOK 12.50"),
    (lambda v: v.money(Decimal("12.5"), "EUR", "name"), "12,50 Euro", "12.50 euros"),
    (lambda v: v.money_in_words(23, "EUR"), "dreiundzwanzig Euro", "twenty-three euros"),
    (lambda v: v.spoken(23, "ordinal"), "dreiundzwanzigste", "twenty-third"),
    (lambda v: v.spoken(1985, "year"), "neunzehnhundertfünfundachtzig", "nineteen eighty-five"),
    (lambda v: v.unit(1234, "length-kilometer"), "1.234 Kilometer", "1,234 kilometers"),
    (
        lambda v: v.rate(7, "volume-liter", "duration-day"),
        "7 Liter pro Tag",
        "7 liters per day",
    ),
    (lambda v: v.week(7, 2025), "Woche 7 des Jahres 2025", "week 7 of 2025"),
    (lambda v: v.name("dialect", "de_AT"), "Deutsch (Österreich)", "German (Austria)"),
    (lambda v: v.name("local time", "PL"), "Polen (Ortszeit)", "Poland Time"),
    (lambda v: v.list(["1", "2", "3"], "standard"), "1, 2 und 3", "1, 2, and 3"),
    (lambda v: v.aside("1", "2"), "1 (2)", "1 (2)"),
    (lambda v: v.at("1", "2"), "1, 2", "1, 2"),
]


@pytest.mark.parametrize(("meaning", "german", "english"), SAID)
def test_a_voice_speaks_as_its_language_writes(meaning, german, english):
    said = [" ".join(meaning(Voice(language)).split()) for language in ("de", "en")]
    assert said == [german, english]


def test_a_language_keeps_its_own_names_whatever_was_spoken_before():
    # Without data of its own, Japanese names its months as the language used before it.
    assert Locale("az").months["stand-alone"]["wide"][6] == "iyun"
    voices = [Voice(language) for language in ("he", "de", "ja", "fr")]
    said = [voice.name("month", "6") for voice in voices]
    assert said == ["יוני", "Juni", "6月", "juin"]


def test_styles_that_the_source_does_not_tell_apart_are_left_out():
    # German writes March in full in "4. März 2025" where English has Mar or March.
    def abbreviated(rng, stock):
        date = cldr_content._date(rng, stock)
        return lambda voice: voice.skeleton(date, "yMMMd")

    german = cldr.Speaker(Voice("de"), Voice("en"))
    english = cldr.Speaker(Voice("en"), Voice("de"))
    assert not german._usable(abbreviated)
    assert english._usable(abbreviated)


@pytest.mark.parametrize(("source", "target"), [("de", "en"), ("en", "de"), ("en", "fr")])
def test_what_is_drawn_means_one_thing(source, target):
    speaker = cldr.Speaker(Voice(source), Voice(target))
    meant: dict[str, str] = {}
    rng = Random(5)
    for kind in [kind for kinds in speaker.kinds.values() for kind in kinds] * 40:
        said, means = speaker._draw(rng, kind)
        assert meant.setdefault(said, means) == means


def test_what_a_language_lacks_is_left_out():
    kinds = cldr_content.KINDS["amount"]
    usable = {language: cldr.Speaker(Voice(language), Voice("en")) for language in ("de", "cs")}
    assert kinds["ordinal"] in usable["de"].kinds["amount"]
    assert kinds["ordinal"] not in usable["cs"].kinds["amount"]
    assert kinds["cardinal"] in usable["cs"].kinds["amount"]


def test_most_kinds_are_used_and_most_names_known():
    speaker = cldr.Speaker(Voice("de"), Voice("en"))
    assert {family: len(kinds) for family, kinds in speaker.kinds.items()} == {
        family: len(kinds) for family, kinds in cldr_content.KINDS.items()
    }
    for name, codes in cldr_content.NAMES.items():
        assert len(speaker.stock[name]) > 0.7 * len(codes)


def test_sizes_out_of_reach_are_refused():
    rng = Random(0)

    def draw() -> tuple[str, str]:  # 10 sources, but only 5 targets
        number = rng.randrange(10)
        return f"source {number}", f"Target {number // 2}"

    splits = cldr.distinct_pairs(draw, {"train": 3, "test": 2})
    assert {split: len(pairs) for split, pairs in splits.items()} == {"train": 3, "test": 2}
    with pytest.raises(ValueError, match="train is 6: only 5 pairs"):
        cldr.distinct_pairs(draw, {"train": 6})
    with pytest.raises(ValueError, match="test is -1"):
        cldr.distinct_pairs(draw, {"test": -1})


@pytest.mark.parametrize(
    ("source", "target", "train", "message"),
    [
        ("zz", "en", 5, "source_lang is 'zz': choose one of am, ar, "),
        ("de", "zh", 5, "target_lang is 'zh': choose one of am, ar, "),
        ("de", "de", 5, "target_lang is 'de': choose a language unlike"),
        ("de", "en", -5, "train is -5"),
    ],
)
def test_bad_settings_get_one_line(source, target, train, message):
    with pytest.raises(ValueError, match=f"^{message}") as error:
        cldr.generate(source, target, {"train": train}, seed=1)
    assert "\n" not in str(error.value)
