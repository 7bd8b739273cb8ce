"""Accents are joined to their letters, and invisible characters left out, as in a model's text."""

import unicodedata

import pytest

from ea_fairseq.text.processing import TextProcessing, TextSettings
from ea_fairseq.text.tokens import Tokenization, clean_line
from ea_fairseq.text.usual_form import UsualForm, accents_apart

LINES = ["Ein Mädchen über Bäume: Ärger!", "Où est l'élève?", "Tiếng Việt", "한국어 말", "ガラス"]


def apart(text):
    return unicodedata.normalize("NFD", text)


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_read_in_the_form_of_the_training_text(line):
    joined = UsualForm([(word.lower(), 3) for word in line.split()] + [("a", 9)])
    assert accents_apart(apart(line)) and not accents_apart(line)
    assert joined(apart(line)) == joined(line) == line
    # A model of text that is apart reads it as it always did.
    torn = UsualForm([(word, 3) for word in apart(line).split()] + [("a", 9)])
    assert torn(apart(line)) == apart(line) and torn(line) == line


def test_the_form_that_most_of_the_text_has_decides():
    line = apart("für")
    mostly_joined, mostly_apart = [("ü@@", 5), ("\u0308", 4)], [("ü@@", 4), ("\u0308", 5)]
    assert UsualForm(mostly_joined)(line) == "für"
    assert UsualForm(mostly_apart)(line) == line


@pytest.mark.parametrize(
    "line",
    [
        "plain",
        "q\u0308",  # there is no such letter
        "\u0958 \u0915\u093c",  # NFC takes the first apart, and never joins the second
        "\u212b",  # a sign, and no letter with an accent
        "\u05d1\u05bc\u05b0",
        "\u0308",
        "",
    ],
)
def test_what_nfc_would_not_join_stays_as_it_is(line):
    assert not accents_apart(line)
    assert UsualForm([("ü", 1), ("\u0958", 5), ("Å", 5)])(f"{line} u\u0308") == f"{line} ü"


def test_only_the_accents_that_the_text_has_joined_are_joined():
    """Of two accents in one line each is read as the text has it."""
    words = [("ü", 5), ("e", 9), ("\u0301", 9)]
    assert UsualForm(words)(apart("für é")) == "für e\u0301"


def test_invisible_characters_are_left_out_but_those_that_the_text_has():
    line = "\ufeffStraßen\u00adbahn\u200b im\u2060mer\u200c da\u202c"
    assert UsualForm([("straße", 3)])(line) == "Straßenbahn immer da"
    # Persian text has some within its words.
    assert UsualForm([("می\u200cروم", 3)])(line) == "Straßenbahn immer\u200c da"
    visible = "a\u00a0b \u0600\u06dd – ’\ufffd\U0001f600"
    assert UsualForm([])(visible) == visible


def test_the_setting_joins_in_the_kinds_of_splits_it_names():
    line = apart("\tÄrger über é ")
    assert clean_line(line) == apart("Ärger über é")
    assert clean_line(line, nfc=True) == "Ärger über é"
    for kinds, tokens in [(("test",), ["über"]), (("train",), apart("über").split())]:
        settings = Tokenization("none", nfc=kinds)
        processing = TextProcessing(TextSettings("de", "en", settings, "none"), None)
        assert processing.tokens(apart("über")) == tokens
