"""Pieces are made into words by the rule of their own marks, or the command ends in one line."""

import logging

import pytest
from fairseq import options, scoring
from fairseq.data import Dictionary
from fairseq_commands import corpus, generation, refusal, trained, training

from ea_fairseq.errors import UserError
from ea_fairseq.guard.subwords import check, check_validation, pieces_of

ENTRIES = {
    "subword_nmt": ["ca@@", "t", "dog"],
    "sentencepiece": ["\u2581ca", "t", "\u2581dog"],
    "letter": ["c", "a", "t", "|"],
    None: ["cat", "dog"],
}


def dictionary(words):
    made = Dictionary()
    for word in words:
        made.add_symbol(word)
    return made


@pytest.mark.parametrize("kind", ENTRIES)
@pytest.mark.parametrize("rule", ["subword_nmt", "@@ ", "sentencepiece", "letter", "none", None])
def test_a_rule_is_taken_where_it_makes_words(kind, rule):
    """By what it makes of the pieces of "cat dog"."""
    words = dictionary(ENTRIES[kind])
    text = {"letter": "c a t | d o g |", None: "cat dog"}.get(kind, " ".join(ENTRIES[kind]))
    for word in text.split():
        words.add_symbol(word)
    made = words.string(words.encode_line(text, add_if_not_exist=False), rule)
    asked = rule not in ("none", None)
    # Of letters without a mark of subword-nmt nothing is known.
    unknown = kind == "letter" and rule in ("subword_nmt", "@@ ")
    if not asked or unknown or made == "cat dog":
        check(rule, words, "--post-process")
        return
    with pytest.raises(UserError) as error:
        check(rule, words, "--post-process")
    fitting = pieces_of(words)
    assert str(error.value).endswith(f"give {fitting}" if fitting else "leave it out")


@pytest.mark.parametrize("command", ["generate", "interactive", "train"])
def test_words_never_run_together(tmp_path, command):
    (tmp_path / "text").write_text("w1 w2\n")
    arguments, option = generation(corpus(), trained() / "checkpoint_last.pt"), "--post-process"
    if command == "interactive":
        arguments += ["--input", tmp_path / "text"]
    if command == "train":
        arguments, option = training(corpus(), tmp_path, "--eval-bleu"), "--eval-bleu-remove-bpe"
    # A process that reads ahead may complain of the end of its parent.
    last = refusal(command, *arguments, option, "sentencepiece", "--num-workers", "0")
    assert last.startswith(f"{option} sentencepiece is not for")


@pytest.mark.parametrize("kind", ["subword_nmt", "sentencepiece", None])
def test_bleu_of_pieces_is_warned_of(caplog, kind):
    with caplog.at_level(logging.WARNING):
        check_validation(None, dictionary(ENTRIES[kind]))
    expected = [f"give --eval-bleu-remove-bpe {kind}"] if kind else []
    assert [message.partition(": ")[2] for message in caplog.messages] == expected


@pytest.mark.parametrize("kind", ["subword_nmt", "sentencepiece", None])
@pytest.mark.parametrize("more", [[], ["--post-process", "none"], ["--bpe", "characters"]], ids=str)
def test_translations_of_pieces_are_warned_of(caplog, kind, more):
    parser = options.get_generation_parser()
    options.parse_args_and_arch(parser, ["data", "--path", "model.pt", *more])
    with caplog.at_level(logging.WARNING):
        scoring.build_scorer("bleu", dictionary(ENTRIES[kind]))
    expected = [f"give --post-process {kind}"] if kind and not more else []
    assert [message.partition(": ")[2] for message in caplog.messages] == expected
