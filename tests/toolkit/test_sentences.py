"""Where a sentence ends."""

import pytest
from time_limit import in_time

from ea_fairseq.text.sentences import split_sentences

TEXTS = {
    "two": ("en", ["A man runs.", "Two dogs play."]),
    "small letters": ("en", ["a man runs.", "two dogs play!"]),
    "no full stop": ("en", ["A dog barks.", "The end"]),
    "abbreviations": ("en", ["Mr. Smith met J. Doe at 5 p.m. today.", "They left."]),
    "letters with full stops": ("en", ["The U.S. Army met J.R.R. Tolkien.", "He left."]),
    "a title with full stops": ("en", ["Her Ph.D. Advisor left.", "He stayed till 5 p.m.", "Ok."]),
    "number or answer": ("en", ["No. 5 is alive.", "No.", "That is wrong."]),
    "decimals": ("en", ["It cost 3.50 dollars.", "No more."]),
    "dots": ("en", ["Well... that is it.", "Really?!", "Yes…"]),
    "quotation": ("en", ['"Really?"', "She nodded.", "(It was late.)", "They slept."]),
    "ordinals": ("de", ["Am 3. Mai kam Dr. Müller z. B. nach Bonn.", "Er blieb bis 1990.", "Gut."]),
    "German quotation": ("de", ["„Was?“ fragte sie.", "„Nichts.“", "Er ging."]),
    "French": ("fr", ["Où est M. Dupont ?", "« Ici ! »", "Il est là."]),
    "Chinese": ("zh", ["你好。", "我很好！", "「走吧。」", "再见"]),
}


@pytest.mark.parametrize(("lang", "sentences"), TEXTS.values(), ids=TEXTS.keys())
def test_sentences_are_found(lang, sentences):
    joint = "" if lang == "zh" else " "
    assert split_sentences(joint.join(sentences), lang) == sentences
    assert split_sentences(f"  {joint.join(sentences)}\t", lang) == sentences


@pytest.mark.parametrize("text", ["", "  ", ".", "...", "a.b.c", "?! ?!", "« » .", "1. 2. 3."])
def test_nothing_but_white_space_is_lost(text):
    assert "".join("".join(split_sentences(text, "en")).split()) == "".join(text.split())


def test_a_long_text_takes_time_in_proportion():
    with in_time(600):
        assert len(split_sentences("Es ist b. Das war gut. " * 20_000, "de")) == 20_000
        assert len(split_sentences("a" * 200_000 + ". Ende", "de")) == 2
        # Of contents, or of who keeps a key down: half an hour for these.
        assert len(split_sentences("Kapitel " + "." * 100_000 + "7", "de")) == 1
        assert len(split_sentences("Ach" + "!…" * 50_000 + "!! Ende", "de")) == 2
