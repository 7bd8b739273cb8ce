"""Perplexities are counts and sums over blocks, against loops; comparing them is a bootstrap."""

import json
import math
import random

import pytest
from refusals import refusal

from ea_fairseq.commands import compare
from ea_fairseq.files import write_json
from ea_fairseq.recipes.results.perplexity import (
    LossMeasure,
    ScoredText,
    check_units,
    scored_text,
    write_losses,
)
from ea_fairseq.recipes.results.tables import mean_and_deviation

EOS, UNK = 0, 1
SYMBOLS = {
    "none": ["</s>", "<unk>", "a", "dog", "b@@"],
    "bpe": ["</s>", "<unk>", "lo@@", "w", "er", "@", "dog"],
    "sentencepiece": ["</s>", "<unk>", "\u2581lo", "w", "er", "\u2581", "\u2581dog"],
}
LINES = {  # tokens of one text, and the words that they are, each line's end one of them
    "none": ([2, 3, 0, 0, 1, 4, 0], ["a", "dog", "</s>", "</s>", "<unk>", "b@@", "</s>"]),
    "bpe": ([2, 3, 6, 0, 1, 2, 2, 4, 0], ["low", "dog", "</s>", "<unk>", "loloer", "</s>"]),
    "sentencepiece": ([2, 3, 6, 0, 5, 3, 4, 0], ["low", "dog", "</s>", "wer", "</s>"]),
}


def counted(subword, blocks, unit="word"):
    settings = {"unit": unit, "subword": subword, "mode": "none"}
    return scored_text(blocks, SYMBOLS[subword], EOS, UNK, settings)


@pytest.mark.parametrize("subword", list(LINES))
@pytest.mark.parametrize("length", [1, 2, 3, 100])
def test_words_are_counted_once_however_blocks_cut_them(subword, length):
    tokens, words = LINES[subword]
    blocks = [tokens[start : start + length] for start in range(0, len(tokens), length)]
    found = counted(subword, blocks)
    assert sum(found.units) == len(words)
    assert sum(found.tokens) == len(tokens) and found.tokens == [len(block) for block in blocks]
    assert found.line_ends == tokens.count(EOS) and found.unknown == tokens.count(UNK)
    assert found.text == counted(subword, [tokens]).text
    said = LossMeasure(found, 0, [1.0] * len(blocks)).warning
    assert (said is None) == (subword != "bpe")
    assert said is None or said.endswith("of 6 words up to 1 are too many")


WORDS = [f"word{i}" for i in range(300)]
PIECES = {
    "none": WORDS,
    "bpe": [*WORDS, *(f"p{i}@@" for i in range(9))],
    "sentencepiece": [f"\u2581{word}" for word in WORDS],
    "bytes": [str(byte) for byte in range(205)],
    "letters": [*map(chr, range(97, 297)), "<space>"],
}


@pytest.mark.parametrize(
    ("pieces", "unit", "subword", "refusal"),
    [
        ("none", "word", "none", None),
        ("none", "word", "bpe", None),  # BPE of a small text may cut no word
        ("none", "word", "sentencepiece", "--subword sentencepiece: .* look like none's"),
        ("bpe", "word", "bpe", None),
        ("bpe", "word", "none", "--subword none: .* look like bpe's"),
        ("bpe", "word", "sentencepiece", "--subword sentencepiece: .* look like bpe's"),
        ("sentencepiece", "word", "sentencepiece", None),
        ("sentencepiece", "word", "bpe", "--subword bpe: .* look like sentencepiece's"),
        ("sentencepiece", "word", "none", "--subword none: .* look like sentencepiece's"),
        ("none", "character", "none", "--unit character: .* 300 entries only 0 are .* choose word"),
        ("bytes", "character", "none", None),
        ("letters", "character", "none", None),
    ],
)
def test_units_that_a_dictionary_does_not_have_are_refused(pieces, unit, subword, refusal):
    """They were counted: a perplexity of 3e29, and bits per word that were called per character."""
    if refusal is None:
        check_units(PIECES[pieces], unit, subword)
        check_units([*PIECES[pieces], "word@@"], unit, subword)  # one alone may be a word
    else:
        with pytest.raises(ValueError, match=refusal):
            check_units(PIECES[pieces], unit, subword)


def test_the_hash_is_that_of_the_words_whatever_they_are_split_into():
    words = ["</s>", "<unk>", "low", "dog", "loloer"]
    whole = [[2, 3, 0, 1, 4, 0]]
    settings = {"unit": "word", "subword": "none", "mode": "none"}
    found = scored_text(whole, words, EOS, UNK, settings).text
    assert found == counted("bpe", [LINES["bpe"][0]]).text
    other = [[2, 3, 0, 1, 3, 0]]
    assert found != scored_text(other, words, EOS, UNK, settings).text


@pytest.mark.parametrize("subword", list(LINES))
def test_the_hash_takes_in_a_last_line_without_an_end(subword):
    tokens, _ = LINES[subword]
    assert tokens[-1] == EOS
    unfinished = [tokens[:-1], tokens[:-2], [*tokens, 2], [*tokens, 3], [*tokens, 2, 3]]
    hashes = [counted(subword, [some]).text for some in (tokens, *unfinished)]
    assert len(set(hashes)) == len(hashes)
    for some in unfinished:  # each token a block of its own
        assert counted(subword, [[token] for token in some]).text == counted(subword, [some]).text


def measure(nats, units, unit="word", text="text", context=0):
    scored = ScoredText(unit, text, "none", "none", units, units, 0, 0)
    return LossMeasure(scored, context, nats)


@pytest.mark.parametrize("unit", ["word", "character"])
def test_scores_are_means_over_all_words_with_an_interval_around(unit):
    generator = random.Random(1)
    units = [generator.randint(1, 30) for _ in range(40)]
    nats = [count * generator.uniform(1, 3) for count in units]
    found = measure(nats, units, unit).score()
    mean = sum(nats) / sum(units)
    assert found["score"] == pytest.approx(math.exp(mean) if unit == "word" else mean / math.log(2))
    assert found["nats"] == pytest.approx(sum(nats))
    low, high = found["interval"]
    assert low < found["score"] < high
    inside = 0
    for _ in range(2000):
        drawn = generator.choices(range(40), k=40)
        mean = sum(nats[i] for i in drawn) / sum(units[i] for i in drawn)
        inside += low <= (math.exp(mean) if unit == "word" else mean / math.log(2)) <= high
    assert inside / 2000 == pytest.approx(0.95, abs=0.02)
    # Half as many blocks tell less.
    fewer = measure(nats[:20], units[:20], unit).score()["interval"]
    assert fewer[1] - fewer[0] > high - low


def test_a_hopeless_model_has_an_infinite_perplexity_and_no_traceback():
    found = measure([5000.0, 4000.0], [2, 2]).score()
    assert found["score"] == math.inf and found["interval"] == [math.inf, math.inf]
    assert mean_and_deviation([found["score"], 3.0]) == "inf ± nan"


@pytest.fixture
def runs(tmp_path):
    """Writes a run: system, seed and the losses of its blocks."""

    def write(system, seed, nats, units, **more):
        folder = tmp_path / system / f"seed{seed}"
        found = measure(nats, units, **more)
        write_losses(folder / "losses" / "test.json", [found])
        content = {"files": {"losses": "../losses/test.json"}, "scores": [found.score()]}
        (folder / "scores").mkdir()
        write_json(folder / "scores" / "test.json", content)
        return str(tmp_path / system)

    return write


UNITS = [5, 9, 2, 7, 7, 3, 8, 4, 6, 5]


def losses(level, seed):
    generator = random.Random(seed)
    return [count * (level + generator.uniform(-0.3, 0.3)) for count in UNITS]


def compared(tmp_path, first, second):
    """Rows of a comparison."""
    assert compare.main([first, second, "--json", str(tmp_path / "out.json")]) == 0
    return json.loads((tmp_path / "out.json").read_text())["rows"]


@pytest.mark.parametrize("unit, digits", [("word", 2), ("character", 4)])
def test_two_language_models_are_compared_block_by_block(tmp_path, runs, capsys, unit, digits):
    levels = {"A": (2, 1), "B": (1.5, 2)}
    folders = [runs(name, 1, losses(*of), UNITS, unit=unit) for name, of in levels.items()]
    (row,) = compared(tmp_path, *folders)
    means = [sum(losses(*of)) / sum(UNITS) for of in levels.values()]
    scores = [math.exp(mean) if unit == "word" else mean / math.log(2) for mean in means]
    assert row["sentences"] == len(UNITS)
    assert row["difference"]["observed"] == pytest.approx(scores[1] - scores[0])
    low, high = row["difference"]["interval"]
    assert low < row["difference"]["observed"] < high < 0
    assert row["difference"]["p"] < 0.05
    printed = capsys.readouterr().out
    assert "p is about the choice of blocks" in printed
    # Bits per character have more digits than perplexities.
    cells = [cell.strip() for cell in printed.splitlines()[-3].split("|")]
    numbers = [*cells[3:6], *cells[6].split(" to ")]
    assert [len(number.partition(".")[2]) for number in numbers] == [digits] * 5
    shown = [float(number) for number in numbers[:2]]
    assert shown == pytest.approx(scores, abs=0.51 * 10**-digits)


def test_a_context_window_has_blocks_of_its_own(tmp_path, runs, capsys):
    folders = [runs(name, 1, losses(2, 1), UNITS) for name in "AB"]
    for name, level in (("A", 2), ("B", 1.5)):
        both = [measure(losses(level, 1), UNITS), measure([3 * level, level], [30, 26], context=8)]
        write_losses(tmp_path / name / "seed1" / "losses" / "test.json", both)
    rows = compared(tmp_path, *folders)
    assert [row["sentences"] for row in rows] == [len(UNITS), 2]
    perplexity = [math.exp(4 * level / 56) for level in (2, 1.5)]
    assert rows[1]["difference"]["observed"] == pytest.approx(perplexity[1] - perplexity[0])


def test_a_language_model_does_not_differ_from_itself_and_seeds_count(tmp_path, runs, capsys):
    for seed in (1, 2, 3):
        first = runs("A", seed, losses(2, seed), UNITS)
    assert compare.main([first, first]) == 0
    printed = capsys.readouterr().out
    assert "1.000" in printed and "3 runs" in printed and "seeds and blocks" in printed


@pytest.mark.parametrize(
    "other",
    [
        {"units": [count + 1 for count in UNITS]},
        {"units": UNITS, "text": "another text"},
        {"units": UNITS, "unit": "character"},
    ],
)
def test_what_was_scored_otherwise_does_not_compare(runs, other, capsys):
    first, second = runs("A", 1, losses(2, 1), UNITS), runs("B", 1, losses(2, 2), **other)
    line = refusal(capsys, compare.main, first, second)
    assert "no score in common" in line if "unit" in other else "of A and B differ" in line


def test_a_file_of_translations_is_no_language_model(tmp_path, runs, capsys):
    (tmp_path / "text").write_text("a line\n")
    run = runs("A", 1, losses(2, 1), UNITS)
    assert "language model's run" in refusal(capsys, compare.main, run, tmp_path / "text")
