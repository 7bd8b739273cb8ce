"""Cleaning and tokenising one sentence: sacremoses' rules, and text that could mislead subwords."""

import gzip
from pathlib import Path

import pytest
from fairseq.data.data_utils import post_process
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from ea_fairseq.corpus import subwords
from ea_fairseq.corpus.cleaning import trainable
from ea_fairseq.corpus.config import Cleaning
from ea_fairseq.corpus.inputs import Source
from ea_fairseq.corpus.readers import read_lines, read_pairs, read_segments, read_tags
from ea_fairseq.text.processing import TextProcessing, TextSettings
from ea_fairseq.text.subwords import apply
from ea_fairseq.text.tokens import Tokenization, Tokenizer, clean_line, detokenize

SENTENCES = [
    "„Ja“, sagte er – z.B. am 3. Mai um 5.30 Uhr (Dr. Meier)...",
    "It's the Smiths' dog, isn't it? E.g. A.B. paid $5,000.50 & left.",
    "L'été, c'est l'époque «des vacances» : 1 000 €, n'est-ce pas ?",
    "well-known e-mail a@b.de http://x.org/?q=1 [1] <b>|</b> 100 % nº 5",
    "No. 5 vs. No. five. ... .. a.b.c. x. y",
]
WORDS = st.text("@▁ab<>/.", min_size=1, max_size=6)


def source(path: Path, format: str = "lines") -> Source:
    return Source(path, str(path), format, path.name)


@pytest.mark.parametrize("lang", ["de", "en", "fr", "zh"])
@pytest.mark.parametrize("line", SENTENCES)
def test_tokens_are_those_of_sacremoses(lang, line):
    for escape, hyphens in [(False, False), (True, True)]:
        ours = Tokenizer(
            lang,
            Tokenization(normalize=("train",), escape=escape, split_hyphens=hyphens),
            "train",
            "bpe",
        )
        normal = MosesPunctNormalizer(lang).normalize(line)
        tokens = MosesTokenizer(lang).tokenize(
            normal, escape=escape, aggressive_dash_splits=hyphens
        )
        assert ours(line).split(" ") == tokens


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"])))
def test_any_text_gives_the_tokens_of_sacremoses(line):
    ours = Tokenizer("en", Tokenization(), "train", "sentencepiece")
    expected = " ".join(MosesTokenizer("en").tokenize(line, escape=False))
    assert ours(line) == expected.replace("▁", "_")


@pytest.mark.parametrize(
    ("line", "tokens"),
    [
        ("It is 1:35 PM.", "It is 1 : 35 PM ."),
        ("Open 9:00 to 17:45:30 today.", "Open 9 : 00 to 17 : 45 : 30 today ."),
        # No times: what is not two digits behind the colon, or not at most two before it.
        ("It ended 2: 1.", "It ended 2 : 1 ."),
        ("Number 123: 45 of them.", "Number 123 : 45 of them ."),
        ("Note: 35 came.", "Note : 35 came ."),
    ],
)
def test_times_of_day_are_text_as_people_write_them(line, tokens):
    assert detokenize([tokens], "en") == [line]


@pytest.mark.parametrize(
    ("lang", "line", "tokens"),
    [
        ("cs", "Žil 5 let před rokem 1990.", "Žil 5 let před rokem 1990 ."),
        ("cs", "Je a' - li tak.", "Je a' - li tak ."),
        ("ar", "كيف حالك؟ نعم، أنا.", "كيف حالك ؟ نعم ، أنا ."),
        ("hi", "यह ठीक है।", "यह ठीक है ।"),
        ("ru", "Газета «Известия» и «Труд».", "Газета « Известия » и « Труд » ."),
        ("fr", "Le journal « Le Monde ».", "Le journal « Le Monde » ."),
        ("de", "5 » 4", "5 » 4"),
    ],
)
def test_marks_of_each_language_join_their_words(lang, line, tokens):
    assert detokenize([tokens], lang) == [line]


def test_settings_hold_for_the_kinds_of_splits_they_name():
    tokenization = Tokenization(
        normalize=("train",), straight_apostrophes=("test",), printable_only=("train",)
    )
    train, test = (Tokenizer("en", tokenization, kind, "bpe") for kind in ("train", "test"))
    assert train("“so”\u00adon’s") == '" so " on \'s'
    assert test("“so”\u200bx’s").startswith("“ so ”")
    assert "’" not in test("x’s")


def test_lowercase_is_lowercase():
    tokenize = Tokenizer("de", Tokenization(lowercase=True), "test", "bpe")
    assert tokenize("ÄRGER In Köln") == "ärger in köln"


# What French, English and German make of apostrophes, each in its own way.
READ = {"fr": "l' eau , it' s", "en": "l 'eau , it 's", "de": "l ' eau , it ' s"}
WRITTEN = {"fr": "l'eau it 's", "en": "l' eau it's", "de": "l' eau it 's"}


@pytest.mark.parametrize("source, target", [("fr", "en"), ("en", "de"), ("de", "fr")])
def test_a_model_reads_by_its_source_language_and_writes_by_its_target(source, target):
    processing = TextProcessing(TextSettings(source, target, Tokenization(), "none"), None)
    assert " ".join(processing.tokens("l'eau, it's")) == READ[source]
    assert processing.text("l' eau it 's".split()) == WRITTEN[target]


def test_a_models_text_is_treated_as_test_sets_were_not_as_training_was():
    settings = Tokenization("none", normalize=("train", "valid"), straight_apostrophes=("test",))
    processing = TextProcessing(TextSettings("de", "en", settings, "none"), None)
    assert processing.tokens("„ja“ it’s") == ["„ja“", "it's"]


def test_control_characters_and_separators_become_spaces_and_nothing_else_changes():
    for code in [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]:
        assert clean_line(f" a{chr(code)}b\r") == "a b"
    assert clean_line("\ta\u00a0b ’c ") == "a\u00a0b ’c"


@settings(max_examples=30, deadline=None)
@example([["a@@", "b"], ["▁", "a▁b"]])
@given(st.lists(st.lists(WORDS, min_size=1, max_size=6), min_size=1, max_size=5))
@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_words_come_back_from_subwords_whatever_marks_the_text_holds(tmp_path_factory, kind, text):
    tokenize = Tokenizer("en", Tokenization(tokenizer="none"), "train", kind)
    lines = [tokenize(" ".join(words)) for words in text]
    folder = tmp_path_factory.mktemp("subwords")
    # Frequent enough that even marks are merged into the words beside them.
    (folder / "text").write_text("".join(f"{line} ab aab bab @ab\n" for line in lines * 9))
    subwords.learn(kind, [folder / "text"], 30, 1, 1, folder / "codes")
    name = {"bpe": "subword_nmt", "sentencepiece": "sentencepiece"}[kind]
    for line, pieces in zip(lines, apply(kind, folder / "codes", lines), strict=True):
        assert post_process(pieces, name) == line


@settings(deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 4), st.integers(4, 9), st.floats(1, 3))
def test_trainable_is_length_and_ratio(n, m, least, most, ratio):
    expected = True
    for length in (n, m):
        if length == 0 or length < least or length > most:
            expected = False
    if n and m and (n / m > ratio or m / n > ratio):
        expected = False
    cleaning = Cleaning(min=least, max=most, ratio=ratio)
    assert trainable((" ".join("a" * n), " ".join("b" * m)), cleaning, "words") == expected


def test_limits_in_subwords_leave_words_alone_but_never_empty_sides():
    cleaning = Cleaning(max=2, ratio=1.0, unit="subwords")
    assert trainable(("a b c d", "a"), cleaning, "words")
    assert not trainable(("a b c d", "a"), cleaning, "subwords")
    assert not trainable(("", "a"), cleaning, "words")


@settings(deadline=None)
@example(["a\rb", "c\u2028d\u2029e\x0bf\x0cg\x1ch\x85i", "j\r", "", "\0"])
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\ufeff"))))
def test_lines_end_at_line_feeds_only(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    assert list(read_lines(source(path))) == lines


def test_a_last_line_without_line_feed_counts_and_a_byte_order_mark_does_not(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\n\xe2\x80\xa8two")
    assert list(read_lines(source(path))) == ["one\r", "", "\u2028two"]


def test_broken_utf8_names_file_and_line(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"good\n\xe2\x80\xa8also good\nbad \xff\n")
    with pytest.raises(ValueError, match=f"^{path}: line 3 is not valid UTF-8"):
        list(read_lines(source(path)))


def test_a_cut_gzip_file_is_named(tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"some text\n" * 1000)[:-9])
    with pytest.raises(ValueError, match=f"^{path}: broken gzip file"):
        list(read_lines(source(path)))


@pytest.mark.parametrize("counts", [(3, 5), (5, 3), (0, 1)])
def test_files_of_different_length_are_named_with_their_lengths(tmp_path, counts):
    paths = [tmp_path / "x.de", tmp_path / "x.en"]
    for path, count in zip(paths, counts, strict=True):
        path.write_text("line\n" * count)
    expected = f"{paths[0]} has {counts[0]} sentences, {paths[1]} has {counts[1]}"
    with pytest.raises(ValueError, match=expected):
        list(read_pairs(source(paths[0]), source(paths[1])))


def test_tags_of_a_talk_are_dropped_and_titles_kept(tmp_path):
    path = tmp_path / "train.tags"
    path.write_text(
        "<url>http://x</url>\n<keywords>a, b</keywords>\n<speaker>N. N.</speaker>\n"
        "<talkid>1</talkid>\n<title>N. N.: The talk</title>\n"
        '<description>What it is.</description>\n<reviewer href="x">R</reviewer>\n'
        '<translator href="x">T</translator>\n Hello < you. \n\nBye.\n'
    )
    expected = ["N. N.: The talk", "What it is.", " Hello < you. ", "", "Bye."]
    assert list(read_tags(source(path, "tags"))) == expected


def test_segments_come_in_order_with_entities_resolved_and_empty_ones_kept(tmp_path):
    path = tmp_path / "test.sgm"
    path.write_text(
        '<refset setid="x" srclang="any">\n<doc docid="1"><hl>\n<seg id="1"> A &amp; B </seg>\n'
        '</hl>\n<p>\n<seg id="2"></seg>\n<seg id="2a"/>\n'
        '<seg id="3">R&D &lt;&#8217;&copy;\ntwo lines</seg></p>\n'
        "</doc></refset>\n"
    )
    found = list(read_segments(source(path, "segments")))
    assert found == [" A & B ", "", "", "R&D <’&copy; two lines"]


def test_a_file_without_segments_is_an_error(tmp_path):
    path = tmp_path / "test.xml"
    path.write_text("<html>not found</html>")
    with pytest.raises(ValueError, match=f"^{path}: no <seg>"):
        list(read_segments(source(path, "segments")))
