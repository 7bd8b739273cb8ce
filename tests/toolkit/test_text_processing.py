"""A model's text is read by the rules of its source language and written by its target's."""

import pytest

from ea_fairseq.text.processing import TextProcessing, TextSettings
from ea_fairseq.text.tokens import Tokenization

READ = {"fr": "l' eau , it' s", "en": "l 'eau , it 's", "de": "l ' eau , it ' s"}
WRITTEN = {"fr": "l'eau it 's", "en": "l' eau it's", "de": "l' eau it 's"}


@pytest.mark.parametrize("source, target", [("fr", "en"), ("en", "de"), ("de", "fr")])
def test_each_side_has_the_rules_of_its_language(source, target):
    """Both keep apostrophes in their own way."""
    processing = TextProcessing(TextSettings(source, target, Tokenization(), "none"), None)
    assert " ".join(processing.tokens("l'eau, it's")) == READ[source]
    assert processing.text("l' eau it 's".split()) == WRITTEN[target]


def test_text_is_treated_as_test_sets_were_not_as_training_was():
    settings = Tokenization("none", normalize=("train", "valid"), straight_apostrophes=("test",))
    processing = TextProcessing(TextSettings("de", "en", settings, "none"), None)
    assert processing.tokens("„ja“ it’s") == ["„ja“", "it's"]
