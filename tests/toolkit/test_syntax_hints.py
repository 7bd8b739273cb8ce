"""Hints from dependency trees, against trees that were climbed by hand."""

import random
import re
import sys
from types import SimpleNamespace

import pytest
import syntax_hints

from ea_fairseq.syntax.hints import Hints, hints_of, words_of
from ea_fairseq.syntax.parsers import parse_with
from ea_fairseq.syntax.trees import parse


def conllu(*sentences):
    """CoNLL-U of sentences of (ID, FORM, HEAD)."""
    lines = []
    for sentence in sentences:
        lines.append("# a comment")
        for number, form, head in sentence:
            lines.append("\t".join([str(number), form, *["_"] * 4, str(head), *["_"] * 3]))
        lines.append("")
    return "\n".join(lines) + "\n"


#            catches
#       cat     .     mouse
#    the                 a
CAT = [(1, "The", 2), (2, "cat", 3), (3, "catches", 0), (4, "a", 5), (5, "mouse", 3), (6, ".", 3)]

#    sitzt:  Sie <- sitzt -> Haus -> in, dem, das; "im" is "in dem"
HAUS = [
    (1, "Sie", 2), (2, "sitzt", 0), ("3-4", "im", "_"), (3, "in", 5), (4, "dem", 5),
    ("4.1", "leer", "_"), (5, "Haus", 2),
]  # fmt: skip


@pytest.fixture
def made(tmp_path):
    """The lines that the script writes for subwords and CoNLL-U, and its exit code."""

    def run(text, trees, *more):
        (tmp_path / "text").write_text(text, encoding="utf-8")
        (tmp_path / "trees").write_text(trees, encoding="utf-8")
        arguments = ["--text", "text", "--conllu", "trees", "--output", "hints"]
        arguments = [tmp_path / a if not a.startswith("--") else a for a in arguments]
        status = syntax_hints.main([*map(str, arguments), *more])
        output = tmp_path / "hints"
        return status, output.read_text() if output.exists() else None

    return run


def test_a_hint_is_the_nearest_ancestor_to_the_left_or_the_token_before(made):
    # Nobody stands to the left of the, cat and catches; a hangs on mouse, which comes later, and
    # mouse on catches, word 3.
    assert made("the cat catches a mouse .\n", conllu(CAT)) == (0, "0 1 2 3 3 3\n")


def test_bpe_points_at_the_last_subword_of_the_ancestor(made):
    text = "the c@@ at cat@@ ches a mou@@ se .\n"
    # catches is subwords 4 and 5; both subwords of mouse look at it.
    assert made(text, conllu(CAT)) == (0, "0 1 2 3 4 5 5 5 5\n")


def test_sentencepiece_may_cut_words_otherwise_than_the_trees(made):
    text = "▁The ▁ cat ▁catch es ▁a ▁mouse.\n"
    # "▁" has no letters and goes with cat; "▁mouse." begins in mouse.
    assert made(text, conllu(CAT), "--subword", "sentencepiece") == (0, "0 1 2 3 4 5 5\n")


def test_a_token_of_several_words_is_one(made):
    # im hangs on Haus, which comes later, and so on sitzt; Haus on sitzt.
    assert made("sie sitzt im Haus\n", conllu(HAUS)) == (0, "0 1 2 2\n")


def test_an_ancestor_inside_of_a_token_of_several_words_is_climbed_over():
    # b of the token "ab" hangs on a, a on c; c on nobody: c, at the left, is what "ab" looks at.
    assert parse(["c", "ab"], [-1, 0, 1], [0, 1, 1]).ancestors == (-1, 0)
    # a hangs on c, which comes later and hangs on b of the same token, and b on d.
    assert parse(["d", "ab", "c"], [-1, 3, 0, 2], [0, 1, 1, 2]).ancestors == (-1, 0, 1)


def test_every_line_has_its_own_trees_one_or_several(made):
    both = "the cat catches a mouse . sie sitzt im Haus\n"
    status, hints = made("\n" + both + "sie sitzt im Haus\n", conllu(CAT, HAUS, HAUS))
    # The second sentence of a line begins at subword 7, and knows nothing of the first.
    assert (status, hints) == (0, "\n0 1 2 3 3 3 6 7 8 8\n0 1 2 2\n")


def test_what_moses_escapes_and_letters_of_either_form_are_the_same(made):
    text = "don &apos;t foo @-@ bär &#91; ﬁ …\n"
    words = ["don't", "foo-ba\u0308r", "[", "fi", "..."]
    trees = conllu([(i, word, 1 if i > 1 else 0) for i, word in enumerate(words, start=1)])
    # "don" and "&apos;t" are don't; foo, @-@ and bär look at its last subword, 2.
    assert made(text, trees) == (0, "0 1 2 2 2 2 2 2\n")
    assert words_of("don &apos;t f@@ oo @-@ bar", "bpe") == ["don", "'t", "foo", "-", "bar"]


def test_hints_stand_left_of_what_is_predicted_in_any_tree():
    generator = random.Random(1)
    for _ in range(200):
        count = generator.randint(1, 9)
        order = generator.sample(range(count), count)  # each hangs on one that comes before it
        heads = [-1] * count
        for place, word in enumerate(order[1:], start=1):
            heads[word] = order[generator.randrange(place)]
        words = ["ab" * generator.randint(1, 3) for _ in range(count)]
        sentence = parse(words, heads)
        pieces = [letter for word in words for letter in word]
        owner = [i for i, word in enumerate(words) for _ in word]
        hints = hints_of(pieces, [sentence])
        for index, hint in enumerate(hints):
            above = heads[owner[index]]
            while above >= owner[index]:
                above = heads[above]
            last = max((i for i, word in enumerate(owner) if word == above), default=index - 1)
            assert hint == last + 1 <= index


@pytest.mark.parametrize(
    "text,trees,named",
    [
        ("the dog\n", conllu(CAT), "text: line 1: the parsed text is another"),
        ("the cat catches a mouse .\nthe\n", conllu(CAT), "text: line 2: the parsed text"),
        ("the cat\n", conllu(CAT), "text: line 1: "),
        (
            "the cat catches a mouse .\n",
            conllu(CAT, HAUS),
            "text ends before .*'Sie sitzt im Haus'",
        ),
        ("x\n", "1\tx\n", "trees: line 1: not ten columns"),
        ("x\n", conllu([("x", "x", 0)]), "trees: line 2: not ten columns of CoNLL-U with an ID"),
        ("x\n", conllu([(2, "x", 0)]), "trees: line 2: ID 2 where 1 is expected"),
        ("x\n", conllu([(1, "x", "_")]), "trees: line 2: HEAD must be a number, not '_'"),
        ("x\n", conllu([(1, "x", "9" * 5000)]), "trees: line 2: HEAD must be a .{,60}$"),
        ("x\n", conllu([("9" * 5000, "x", 0)]), "trees: line 2: not ten .{,110}$"),
        ("x\n", conllu([(1, "x", 3)]), "trees: .*head 3 is none of 1 words"),
        ("xy\n", conllu([(1, "x", 2), (2, "y", 1)]), "trees: .*word 1 never comes to a root"),
        ("x\n", conllu([("1-2", "x", "_"), (1, "x", 0)]), "trees: .*token 2 is not there"),
        ("x\n", conllu([("1-1", "x", 0), ("1-2", "x", 0)]), "trees: line 3: .*overlaps"),
    ],
)
def test_text_and_trees_that_do_not_fit_end_in_one_line(made, capsys, text, trees, named):
    assert made(text, trees) == (1, None)
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert re.search(named, errors), errors


def test_a_file_of_hints_is_read_as_it_was_written(tmp_path):
    (tmp_path / "hints").write_text("0 1 1\n\n0\n")
    hints = Hints(tmp_path / "hints")
    assert [hints[i].tolist() for i in range(len(hints))] == [[0, 1, 1], [], [0]]
    assert hints.lengths().tolist() == [3, 0, 1]
    with pytest.raises(IndexError):
        hints[3]


@pytest.mark.parametrize(
    "line,named",
    [
        ("0 2", "line 2: hint 2 must be from 0 to 1, not 2"),
        ("0 -1", "line 2: hint 2 must be from 0 to 1, not -1"),
        ("0 x", "line 2: hints must be whole numbers, not '0 x'"),
        ("0 99999999999", "line 2: hints must be whole numbers"),
        ("0 0.5", "line 2: hints must be whole numbers"),
    ],
)
def test_what_is_no_hint_is_refused_by_file_and_line(tmp_path, line, named):
    (tmp_path / "hints").write_text(f"0 1\n{line}\n")
    with pytest.raises(ValueError, match=named):
        Hints(tmp_path / "hints")


# The parsers, without their models: what they are given, and what is made of their answers.


def fake_spacy(seen):
    """spaCy whose every word hangs on the one before, and the first on itself."""

    class Doc(list):
        def __init__(self, vocab, words):
            tokens = [SimpleNamespace(text=word, i=i) for i, word in enumerate(words)]
            for i, token in enumerate(tokens):
                token.head = tokens[max(0, i - 1)]
            super().__init__(tokens)

        def has_annotation(self, name):
            return name == "DEP"

    def pipe(texts):
        for text in texts:
            seen.append(text if isinstance(text, str) else [token.text for token in text])
            yield Doc(None, text.split()) if isinstance(text, str) else text

    def load(model):
        if model != "good":
            raise OSError(model)
        return SimpleNamespace(vocab=None, pipe=pipe)

    return SimpleNamespace(load=load, tokens=SimpleNamespace(Doc=Doc))


def fake_stanza(seen):
    """stanza whose every word hangs on the one before."""

    def pipeline(model, tokenize_pretokenized, **_):
        def analyse(given):
            seen.append(given)
            sentences = given if tokenize_pretokenized else [given.split()]
            made = []
            for words in sentences:
                tokens = [
                    SimpleNamespace(text=word, words=[SimpleNamespace(head=i)])
                    for i, word in enumerate(words)
                ]
                words = [token.words[0] for token in tokens]
                made.append(SimpleNamespace(words=words, tokens=tokens))
            return SimpleNamespace(sentences=made)

        if model != "good":
            raise FileNotFoundError("no resources")
        return analyse

    return SimpleNamespace(Pipeline=pipeline)


FAKES = {"spacy": fake_spacy, "stanza": fake_stanza}


@pytest.mark.parametrize("parser", FAKES)
def test_parsers_get_words_and_give_ancestors(parser, monkeypatch):
    seen = []
    monkeypatch.setitem(sys.modules, parser, FAKES[parser](seen))
    found = list(parse_with(parser, "good", ["a@@ b &apos;s", "", "c"], "bpe"))
    assert [p.tokens for p in found] == [("ab", "'s"), ("c",)]  # no parse of an empty line
    assert [p.ancestors for p in found] == [(-1, 0), (-1,)]
    assert seen in ([["ab", "'s"], ["c"]], [[["ab", "'s"], ["c"]]])
    seen.clear()
    found = list(parse_with(parser, "good", ["▁a b ▁c."], "sentencepiece"))
    assert seen == ["ab c."] and found[0].tokens == ("ab", "c.")


def test_the_text_is_not_written_over(made, tmp_path, capsys):
    for name in ("text", "trees"):
        status, _ = made(
            "the cat catches a mouse .\n", conllu(CAT), "--output", str(tmp_path / name)
        )
        assert status == 1 and "is the same file as" in capsys.readouterr().err
        assert (tmp_path / name).stat().st_size > 24


@pytest.mark.parametrize("parser", FAKES)
def test_a_parser_or_model_that_is_not_there_is_named(parser, monkeypatch, tmp_path, capsys):
    (tmp_path / "text").write_text("a\n")
    arguments = ["--text", tmp_path / "text", "--output", tmp_path / "hints", "--parser", parser]
    arguments = [*map(str, arguments), "--model", "bad"]
    monkeypatch.setitem(sys.modules, parser, None)
    assert syntax_hints.main(arguments) == 1
    assert f"--parser {parser}: the package {parser} is not installed" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, parser, FAKES[parser]([]))
    assert syntax_hints.main(arguments) == 1
    assert "--model bad: " in capsys.readouterr().err
