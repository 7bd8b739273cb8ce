"""Accents are joined to their letters, and invisible characters left out, as in a model's text."""

import unicodedata

import pytest

from ea_fairseq.text.processing import TextProcessing, TextSettings
from ea_fairseq.text.tokens import Tokenization, clean_line
from ea_fairseq.text.usual_form import UsualForm, accents_apart

MOSES = TextSettings("de", "en", Tokenization(), "bpe")
LINES = [
    "Ein Mädchen über Bäume: Ärger!",
    "Où est l'élève?",
    "Tiếng Việt",
    "한국어 말",
    "ガラス",
    "কো বৌ",
    "கொடு போ கௌ",
]


def apart(text):
    return unicodedata.normalize("NFD", text)


def usual_form(counts, settings=MOSES):
    """Of a text with ASCII of which nothing is seldom."""
    return UsualForm([("a@@", 1000), *counts], settings)


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_read_in_the_form_of_the_training_text(line):
    of_joined = usual_form([(word.lower(), 3) for word in line.split()])
    assert accents_apart(apart(line)) and not accents_apart(line)
    assert of_joined(apart(line)) == of_joined(line) == line
    # A model of text that is apart reads it as it always did.
    of_apart = usual_form([(word, 3) for word in apart(line).split()])
    assert of_apart(apart(line)) == apart(line) and of_apart(line) == line


def test_the_form_that_most_of_the_text_has_decides():
    line = apart("für")
    for torn in ("\u0308", "\u0308ber", "u\u0308@@"):
        assert usual_form([("ü@@", 5), (torn, 4)])(line) == "für"
        assert usual_form([("ü@@", 4), (torn, 5)])(line) == line


def test_accents_that_have_no_joined_letter_say_nothing_about_others():
    """Lower-cased Turkish has a dot behind its i; the Yoruba letter two accents."""
    assert usual_form([("i\u0307stanbul", 9), ("ż", 1)])("I\u0307z\u0307") == "\u0130ż"
    assert usual_form([("ọ\u0300", 9), ("ò", 1)])("o\u0300") == "ò"
    # Nor does a letter that NFC takes apart itself.
    assert usual_form([("\u0958", 9), ("\u093c@@", 1)])("\u0928\u093c") == "\u0928\u093c"


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
    assert usual_form([("ü", 1), ("\u0958", 5), ("Å", 5)])(f"{line} u\u0308") == f"{line} ü"


def test_only_the_accents_that_the_text_has_joined_are_joined():
    """Of two accents in one line each is read as the text has it."""
    words = [("ü", 5), ("e", 9), ("\u0301", 9)]
    assert usual_form(words)(apart("für é")) == "für e\u0301"


def test_invisible_characters_are_left_out_but_those_that_the_text_has():
    line = "\ufeffStraßen\u00adbahn\u200b im\u2060mer\u200e da\u202c\ufe0f"
    assert usual_form([("straße", 3)])(line) == "Straßenbahn immer da"
    assert usual_form([("\u00ad@@", 3)])(line) == "Straßen\u00adbahn immer da"
    # By chance is as good as never.
    assert usual_form([("\u00ad@@", 3), ("the", 400_000)])(line) == "Straßenbahn immer da"
    visible = "a\u00a0b \u0600\u06dd – ’\ufffd\U0001f600 می\u200cروم क्\u200d"
    assert usual_form([])(visible) == visible


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        (TextSettings("de", "en", Tokenization("none"), "none"), "fu\u0308\u200br"),
        (TextSettings("de", "en", Tokenization("none"), "bytes"), "fu\u0308\u200br"),
        (TextSettings("de", "en", Tokenization("none"), "sentencepiece"), "fü\u200br"),
        (TextSettings("de", "en", Tokenization(printable_only=("test",)), "bpe"), "fü\u200br"),
        (TextSettings("de", "en", Tokenization(printable_only=("train",)), "bpe"), "für"),
    ],
)
def test_what_the_models_own_settings_say_is_left_to_them(settings, read):
    assert usual_form([("ü", 3)], settings)("fu\u0308\u200br") == read


def test_the_setting_joins_in_the_kinds_of_splits_it_names():
    line = apart("\tÄrger über é ")
    assert clean_line(line) == apart("Ärger über é")
    assert clean_line(line, nfc=True) == "Ärger über é"
    for kinds, tokens in [(("test",), ["über"]), (("train",), apart("über").split())]:
        settings = Tokenization("none", nfc=kinds)
        processing = TextProcessing(TextSettings("de", "en", settings, "none"), None)
        assert processing.tokens(apart("über")) == tokens


def test_files_keep_the_setting_only_where_it_says_something():
    """Earlier versions do not know it."""
    assert "nfc" not in Tokenization().as_json()
    assert Tokenization(nfc=("test",)).as_json() == {**Tokenization().as_json(), "nfc": ["test"]}
