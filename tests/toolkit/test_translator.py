"""`Translator`: every text gets its translation, in its place, whole or with a word why not."""

import copy
import gc
import itertools
import pickle
import subprocess
import sys
import threading
from typing import Literal, get_args, get_overloads, get_type_hints

import pytest
import torch
from small_folders import WORDS, write_folder

from ea_fairseq import Translator
from ea_fairseq.errors import UserError
from ea_fairseq.inference.model_folder import Longest, Search
from ea_fairseq.inference.translator import Translation, space
from ea_fairseq.kernels.cpp.library import torch_alone
from ea_fairseq.text.processing import TextSettings
from ea_fairseq.text.tokens import Tokenization

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w1", "w2 w2", "w9 w3 w1 w4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("translator") / "model")


@pytest.fixture(scope="module")
def translator(folder):
    return Translator(folder)


def test_a_text_a_list_and_a_stream_agree_in_any_batches(translator):
    alone = [translator.translate(text) for text in TEXTS]
    assert all(alone) and len(set(alone)) == len(TEXTS)
    assert translator.translate(TEXTS) == alone
    assert translator.translate(tuple(TEXTS), max_tokens=1) == alone
    for buffer in (1, 2, 100):
        assert list(translator.stream(iter(TEXTS), buffer=buffer)) == alone


def test_a_stream_reads_no_more_than_its_buffer(translator):
    read = []
    texts = (read.append(i) or text for i, text in enumerate(itertools.cycle(TEXTS)))
    answers = translator.stream(texts, buffer=3)
    next(answers)
    assert len(read) == 3
    assert len(list(itertools.islice(answers, 7))) == 7 and len(read) == 9


def test_empty_texts_and_lines_stay_empty_and_where_they_were(translator):
    first, second = translator.translate(["w1 w2", "w4 w3"])
    assert translator.translate(["", "w1 w2", " \t", "w4 w3"]) == ["", first, "", second]
    assert translator.translate("") == "" and translator.translate([]) == []
    assert translator.translate("w1 w2\n\nw4 w3\r\n") == f"{first}\n\n{second}\n"
    nothing = translator.translate("", details=True)
    assert (nothing.parts, nothing.tokens, nothing.score) == ((), [], 0.0)
    assert nothing.attention is None and nothing.problem is None


def test_characters_that_look_alike_are_read_as_those_that_the_model_knows(tmp_path):
    words = tmp_path / "words.txt"
    known = ["w1", "é", ".", "für", "z", *WORDS[2:17]]
    words.write_text("".join(f"{word} 1\n" for word in known))
    text = TextSettings("fr", "en", Tokenization(lowercase=True), "none")
    path = write_folder(tmp_path / "model", words=words, text=text, longest=Longest(12, 1))
    translator = Translator(path)
    found = translator.translate("fu\u0308r\u200b e\u0301 w1", details=True)
    assert found.source_tokens == ["für", "é", "w1", "</s>"]
    assert found.text == translator.translate("für é w1")
    assert found.source == "fu\u0308r\u200b e\u0301 w1"
    # Sentences end where they do in that form: an initial is one letter.
    line = "E\u0301. Z w1. W4"
    for given in (line, "É. Z w1. W4"):
        parts = translator.translate(given, details=True).parts
        assert [part.source_tokens for part in parts] == [
            ["é", ".", "z", "w1", ".", "</s>"],
            ["w4", "</s>"],
        ]
    assert translator.parts(line) == ["É. Z w1.", "W4"]
    assert translator.translate("E\u0301. Z w1", long="refuse") == translator.translate("É. Z w1")


def test_alternatives_come_best_first(translator):
    lists = translator.translate(TEXTS, n_best=3, beam=4, details=True)
    for text, found in zip(TEXTS, lists, strict=True):
        assert [t.source for t in found] == [text] * 3
        assert found[0].score >= found[1].score >= found[2].score
        assert len({tuple(t.tokens) for t in found}) == 3
    assert [f[0].text for f in lists] == translator.translate(TEXTS, beam=4)
    assert translator.translate("w4", n_best=3, beam=4) == [t.text for t in lists[1]]


def test_scores_are_those_of_the_tokens(translator):
    for lenpen in (1.0, 0.5):
        for translation in translator.translate(TEXTS, details=True, lenpen=lenpen):
            (part,) = translation.parts
            assert part.tokens[-1] == part.source_tokens[-1] == "</s>"
            assert len(part.token_scores) == len(part.tokens)
            assert sum(part.token_scores) / len(part.tokens) ** lenpen == pytest.approx(part.score)
            assert part.attention.shape == (len(part.tokens), len(part.source_tokens))
            assert torch.allclose(part.attention.sum(dim=1), torch.ones(()))
            assert translation.text == " ".join(t for t in part.tokens if t[0] != "<")
            assert translation.source_tokens == [*translation.source.split(), "</s>"]


def test_what_is_longer_than_in_training_is_split_at_sentence_ends(tmp_path):
    """Trained on 12 subwords and one sentence in a line."""
    path = write_folder(tmp_path / "model", text=MOSES, longest=Longest(12, 1))
    translator = Translator(path)
    sentences = ["W1 w2.", "W3 w4 w5!", "W6?"]
    alone = [translator.translate(sentence) for sentence in sentences]
    assert translator.translate(" ".join(sentences)) == " ".join(alone)
    whole = translator.translate(" ".join(sentences), long="whole", details=True)
    assert len(whole.parts) == 1 and whole.text != " ".join(alone)
    details = translator.translate(" ".join(sentences), details=True, n_best=2)[0]
    assert [part.source_tokens[0] for part in details.parts] == ["w1", "w3", "w6"]
    assert details.attention.shape == (len(details.tokens), len(details.source_tokens))
    rows = columns = total = 0
    for part in details.parts:
        after = rows + len(part.tokens), columns + len(part.source_tokens)
        assert torch.equal(details.attention[rows : after[0], columns : after[1]], part.attention)
        total += part.score * len(part.tokens)
        rows, columns = after
    assert details.attention.sum() == pytest.approx(rows)  # nothing between parts
    assert details.score == pytest.approx(total / rows)
    assert len({len(part.tokens) for part in details.parts}) > 1
    with pytest.raises(UserError, match="text 2: 3 sentences; the model was trained on 1"):
        translator.translate([sentences[0], " ".join(sentences)], long="refuse")


@pytest.mark.parametrize("source, target", [("de", "en"), ("en", "zh")])
def test_sentences_end_as_in_the_source_and_are_joined_as_in_the_target(tmp_path, source, target):
    """Mrd. is an abbreviation in German alone; Chinese has no space between sentences."""
    text = TextSettings(source, target, Tokenization(lowercase=True), "none")
    translator = Translator(write_folder(tmp_path / "model", text=text, longest=Longest(12, 1)))
    found = translator.translate("W1 w2 Mrd. W3! W6?", details=True)
    ends = {"de": ["w3", "w6"], "en": ["mrd", "w3", "w6"]}[source]
    assert [[t for t in p.source_tokens if t.isalnum()][-1] for p in found.parts] == ends
    written = [translator.text(part.tokens[:-1]) for part in found.parts]
    assert all(written)
    assert found.text == ("" if target == "zh" else " ").join(written)


@pytest.mark.parametrize(
    ("longest", "pieces"),
    [
        # As many sentences as in training stay together.
        (Longest(9, 2), ["W1. W2.", "W3.", "W4 w4 w4 w4 w4 w4 w4.", "W5."]),
        # The last clause of a long sentence stays without the next sentence.
        (Longest(8, 1), ["w1 w1 w1 w1 w1,", "w2 w2 w2 w2,", "w3 w3 w3,", "w4 w4 w4 w4.", "W5 w5."]),
    ],
)
def test_pieces_are_as_long_as_in_training(tmp_path, longest, pieces):
    translator = Translator(write_folder(tmp_path / "model", text=MOSES, longest=longest))
    assert translator.parts(" ".join(pieces)) == pieces
    found = translator.translate(" ".join(pieces), details=True).parts
    assert [p.source_tokens[:-1] for p in found] == [translator.tokens(piece) for piece in pieces]


def test_a_long_sentence_is_split_at_its_clauses_and_else_refused(tmp_path):
    sizes = {"max_source_positions": 30}
    path = write_folder(tmp_path / "model", text=MOSES, longest=Longest(8, 1), options=sizes)
    translator = Translator(path)
    clauses = "w1 w1 w1 w1 w1, w2 w2 w2 w2, w3 w3 w3, w4 w4 w4 w4."
    found = translator.translate(clauses, details=True)
    assert [len(part.source_tokens) - 1 for part in found.parts] == [6, 5, 4, 5]
    assert found.source_tokens.count("w4") == 4
    # A little longer than usual is no reason to break a sentence.
    assert len(translator.translate("w1 w1 w1 w1 w1 w1, w2 w2 w2.", details=True).parts) == 1
    # Nothing is cut, or spaced, but at the ends of clauses.
    for line in (
        "w1 w1 w1 w1 w1 3,5 w1, w2 12:30 w2 w2 w2 w2, https://w3 w3,w3 w3 w4 w4 w4 w4.",
        "w1 w1 w1 w1 w1、w2 w2 w2 w2,  w3 w3 w3 w4 w4 w4 w4 w1 w1 w1 w1.",
        "w1 w1 w1 w1 w1 今,日 w2 w2 w2 w2 w3 w3 w3 3,5 w3 w3,w3 w4 w4 w1 w1 w1 w1.",
    ):
        parts = translator.parts(line)
        assert len(parts) > 1
        assert "".join("".join(parts).split()) == "".join(line.split())
        for number in ("3,5", "12:30", "https://w3", "w3,w3"):
            assert line.count(number) == sum(part.split().count(number) for part in parts)
    endless = "w5 " * 31
    message = "text 1: 31 subwords in one piece; the model takes 29"
    for long in ("split", "whole"):
        with pytest.raises(UserError, match=message):
            translator.translate([endless, "w1"], long=long)
        refused, other = translator.translate([endless, "w1"], long=long, details=True)
        assert refused.text == "" and refused.problem in message and other.text
    with pytest.raises(UserError, match="text 3: "):
        list(translator.stream(["w1", "w1", endless], buffer=2))


def test_several_models_read_what_each_of_them_can(tmp_path):
    folders = [
        write_folder(tmp_path / name, options={"max_source_positions": most})
        for name, most in (("a", 30), ("b", 10))
    ]
    for order in (folders, folders[::-1]):
        translator = Translator(order)
        assert translator.translate("w1 " * 9, long="whole")
        with pytest.raises(UserError, match="10 subwords in one piece; the model takes 9"):
            translator.translate("w1 " * 10, long="whole")


def test_several_models_split_what_any_of_them_was_not_trained_on(tmp_path):
    """Each reads what the one that was trained on the shortest texts can read."""
    longest = {"a": Longest(40, 5), "b": Longest(8, 1), "c": Longest()}
    folders = [
        write_folder(tmp_path / name, text=MOSES, longest=most) for name, most in longest.items()
    ]
    for order in (folders, folders[::-1]):
        translator = Translator(order)
        assert translator.parts("W1 w2. W3 w4.") == ["W1 w2.", "W3 w4."]
        with pytest.raises(UserError, match="2 sentences; the model was trained on 1"):
            translator.translate("W1 w2. W3 w4.", long="refuse")
        with pytest.raises(UserError, match="9 subwords in one piece; the model was trained on 8"):
            translator.translate("w1 " * 9, long="refuse")
    assert Translator(folders[::2]).parts("W1 w2. W3 w4.") == ["W1 w2. W3 w4."]


def test_a_copy_translates_when_the_original_is_gone(folder):
    """It had the address of what was freed."""
    original = Translator(folder)
    expected = original.translate(TEXTS, details=True, attention=False)
    for copied in (copy.deepcopy(original), pickle.loads(pickle.dumps(original._beam_search))):
        held = original._beam_search.compiled
        for part in (held.encoder, held.decoder):
            with pytest.raises(TypeError, match="neither copied nor pickled: make another"):
                copy.copy(part)
        search = getattr(copied, "_beam_search", copied)
        assert search.compiled.decoder.handle.value != held.decoder.handle.value
    copied = copy.deepcopy(original)
    del original, held, part
    gc.collect()
    assert copied.translate(TEXTS, details=True, attention=False) == expected


def test_a_translation_cut_at_the_limit_says_so(tmp_path, caplog):
    path = write_folder(tmp_path / "model", search=Search(max_len_b=2))
    found = Translator(path).translate(TEXTS, details=True)
    cut = [translation for translation in found if len(translation.tokens) == 3]
    assert cut and all(t.problem == CUT for t in cut)
    assert all(t.problem is None for t in found if t not in cut)
    assert caplog.messages == []
    assert Translator(path).translate(TEXTS) == [translation.text for translation in found]
    numbers = [number for number, t in enumerate(found, start=1) if t in cut]
    assert caplog.messages == [f"text {number}: {CUT}" for number in numbers]


def test_scores_that_are_no_numbers_are_no_empty_line(tmp_path):
    """An activation that overflows left an empty line, and success."""
    with torch_alone():
        translator = Translator(write_folder(tmp_path / "model"))
        with torch.no_grad():
            translator.models[0].decoder.layers[0].fc1.bias[0] = torch.nan
        with pytest.raises(UserError, match="text 2: the model's scores are no numbers"):
            translator.translate(["", "w1 w2"])
        empty, lost = translator.translate(["", "w1 w2"], details=True, n_best=2)
    assert [found.problem for found in empty] == [None] * 2
    assert [found.problem for found in lost] == ["the model's scores are no numbers"] * 2
    assert not lost[0].text and not lost[0].parts


def test_text_that_speaks_of_special_symbols_is_no_end_and_no_padding(translator):
    found = translator.translate("w1 </s> <pad> w2 <s> new", details=True)
    assert len(found.source_tokens) == 7 and found.text
    assert found.text == translator.translate("w1 new new w2 new new")


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("w1", {"beam": 0}, "beam is 0"),
        ("w1", {"beam": 1_000_000}, "beam is 1000000: expected a whole number from 1 to 1000"),
        ("w1", {"lenpen": float("nan")}, "lenpen is nan"),
        ("w1", {"lenpen": 200}, "lenpen is 200: expected a number from -10 to 10"),
        ("w1", {"lenpen": -300.0}, "lenpen is -300.0: expected a number from -10 to 10"),
        ("w1", {"max_tokens": 0}, "max_tokens is 0"),
        ("w1", {"long": "cut"}, "long is 'cut': choose from split, refuse, whole"),
        ("w1", {"n_best": 0}, "n_best is 0"),
        ("w1", {"beam": 2, "n_best": 3}, "n_best is 3: choose from 1 to beam, 2"),
        (["w1", None], {}, "None is no text"),
        *((text, {}, "^text is .* expected text") for text in (None, 3, b"w1 " * 90, {"w1"}, {})),
    ],
    ids=str,
)
def test_bad_options_and_texts_are_named(translator, text, options, words):
    with pytest.raises(UserError, match=words) as error:
        translator.translate(text, **options)
    assert len(str(error.value)) < 120


@pytest.mark.parametrize("texts", ["w1 w2", b"w1", {"w1": 1}, 3])
def test_what_is_no_stream_of_texts_is_refused(translator, texts):
    with pytest.raises(UserError, match="^texts is .* expected a list of texts"):
        next(translator.stream(texts))


def test_bad_models_are_named(folder, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for model, options, words in (
        (folder, {"device": "tpu7"}, "device 'tpu7'"),
        (folder, {"dtype": "int3"}, "dtype is 'int3': choose from float32, bfloat16"),
        (folder, {"threads": 0}, "threads is 0"),
        (folder, {"beam": 0}, "beam is 0: expected"),
        (tmp_path / "nowhere", {}, "no such folder"),
        (run, {}, "run: no model folder, without config.json: train"),
        *((m, {}, "^model is .* a model folder, or a list") for m in ([], None, 3, [folder, 3])),
    ):
        with pytest.raises(UserError, match=words):
            Translator(model, **options)
    (run / "model").symlink_to(folder)
    with pytest.raises(UserError, match="no model folder, .*: it is in .*/run/model$"):
        Translator(run)


def test_beam_and_lenpen_are_the_folders_the_translators_or_the_calls(folder, tmp_path):
    plain = Translator(folder)
    wanted = plain.translate(TEXTS, beam=2, lenpen=-3.0)
    assert wanted != plain.translate(TEXTS)
    own = Translator(folder, beam=2, lenpen=-3.0)
    assert own.translate(TEXTS) == list(own.stream(TEXTS)) == wanted
    usual = plain.config.search
    assert own.translate(TEXTS, beam=usual.beam, lenpen=usual.lenpen) == plain.translate(TEXTS)
    tested = write_folder(tmp_path / "model", search=Search(beam=2, lenpen=-3.0, max_len_b=15))
    assert Translator(tested).translate(TEXTS) == wanted


def test_results_have_the_types_that_a_type_checker_is_told(folder):
    translator = Translator(folder)
    told = {}
    for overload in get_overloads(Translator.translate):
        hints = get_type_hints(overload)
        key = hints["text"] is str, hints["n_best"] is int, hints["details"] == Literal[True]
        told[key] = hints["return"]
    assert len(told) == 8
    for (one, several, details), expected in told.items():
        options = {"n_best": 2} if several else {}
        found = translator.translate(TEXTS[0] if one else TEXTS, details=details, **options)
        kind = Translation if details else str
        for level in range((not one) + several):
            assert type(found) is list, level
            found, expected = found[0], get_args(expected)[0]
        assert type(found) is kind is expected


def test_an_ensemble_needs_equal_texts(folder, tmp_path):
    other = write_folder(tmp_path / "other", "transformer_lite", seed=4)
    both = Translator([folder, other])
    alone = [Translator(path).translate(TEXTS) for path in (folder, other)]
    assert both.translate(TEXTS) not in alone
    assert Translator([folder, folder]).translate(TEXTS) == alone[0]
    french = write_folder(tmp_path / "fr", text=TextSettings("de", "fr", PLAIN, "none"))
    words = "fr: has other languages or text settings than .*: target_lang: fr, en$"
    with pytest.raises(UserError, match=words):
        Translator([folder, french])


def test_bfloat16_translates(folder):
    found = Translator(folder, dtype="bfloat16").translate(TEXTS, details=True)
    exact = Translator(folder).translate(TEXTS, details=True)
    assert found[1].score == pytest.approx(exact[1].score, rel=0.1)
    assert [one.score for one in found] != [one.score for one in exact]


def test_threads_share_one(translator):
    texts = [f"{a} {b}" for a in WORDS[:6] for b in WORDS[:5]]
    expected = translator.translate(texts)
    found = [None] * 3

    def work(number):
        found[number] = translator.translate(texts, beam=5, max_tokens=20 + 30 * number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 3


def test_progress_goes_to_standard_error(translator, capsys):
    translator.translate(TEXTS, progress=True)
    list(translator.stream(TEXTS, progress=True))
    output = capsys.readouterr()
    assert output.out == "" and "5/5" in output.err and "5 texts" in output.err
    translator.translate(TEXTS)
    assert capsys.readouterr() == ("", "")


def test_the_package_alone_imports_neither_fairseq_nor_torch():
    code = """
import sys, ea_fairseq
assert not {"torch", "fairseq"} & set(sys.modules)
ea_fairseq.Translator
assert {"torch", "fairseq"} <= set(sys.modules)
assert "torch._dynamo" not in sys.modules  # torch's compiler: seconds, and nothing is compiled
try:
    ea_fairseq.Interpreter
except AttributeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "module 'ea_fairseq' has no attribute 'Interpreter'\n", done.stderr


PLAIN = Tokenization(tokenizer="none")
MOSES = TextSettings("de", "en", Tokenization(lowercase=True), "none")
CUT = "the translation was cut at 2 tokens, the limit of its length"


@pytest.mark.parametrize("language", ["zh", "zho_Hans", "cmn", "jpn_Jpan", "ja", "th"])
def test_sentences_of_some_languages_stand_without_spaces(language):
    assert space(language) == ""


@pytest.mark.parametrize("language", ["en", "jav", "jam", "zha", "ko_KR"])
def test_sentences_of_others_stand_apart(language):
    """Javanese is no Japanese."""
    assert space(language) == " "
