"""Joins subwords into words by the model's own marks.

Replaced in fairseq:
- ``utils.post_process_prediction``: ``--post-process sentencepiece`` for pieces of subword-nmt ran
  all words of a sentence together, ``subword_nmt`` for pieces of sentencepiece left them as they
  were; either was printed and scored as the translation. Now one line names what fits.
- ``scoring.build_scorer``, of ``fairseq-generate``: without ``--post-process`` it printed pieces
  and a BLEU score of them. Now a warning says so.
- ``TranslationTask.build_model``: the same for ``--eval-bleu-remove-bpe``, before the training.
  Where that option is missing and BLEU will be of pieces, a warning says so.
"""

from __future__ import annotations

import logging
from typing import Any

from fairseq import scoring, utils
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationTask

from ..errors import UserError
from .around import around
from .command_line import command

logger = logging.getLogger(__name__)

#: Rules that take all spaces out and put one in the place of a mark.
_JOINING = {"sentencepiece": "\u2581", "wordpiece": "_", "letter": "|", "_EOW": "_EOW"}
_SUBWORD_NMT = ("subword_nmt", "@@ ", "@@")


def pieces_of(dictionary: Dictionary) -> str | None:
    """The ``--post-process`` for a dictionary's entries; None where they have no known marks."""
    words = dictionary.symbols[dictionary.nspecial :]
    if any(word.startswith("\u2581") for word in words):
        return "sentencepiece"
    return "subword_nmt" if any(word.endswith("@@") for word in words) else None


def check(rule: str | None, dictionary: Dictionary, option: str) -> None:
    """Refuse a rule that makes no words of a dictionary's entries.

    Args:
        rule: as for ``--post-process``.
        dictionary: of the text to make words of.
        option: what gave the rule, for the message.

    Raises:
        UserError: with the rule that fits, if one does.
    """
    if rule in _JOINING:
        if any(_JOINING[rule] in word for word in dictionary.symbols[dictionary.nspecial :]):
            return
        problem = "all words of a sentence would run together"
    elif rule in _SUBWORD_NMT and pieces_of(dictionary) == "sentencepiece":
        problem = "they would stay pieces of words"
    else:
        return
    fitting = pieces_of(dictionary)
    raise UserError(
        f"{option} {rule.strip()} is not for the dictionary's entries: {problem}; "
        + (f"give {fitting}" if fitting else "leave it out")
    )


def check_validation(rule: str | None, dictionary: Dictionary) -> None:
    """`check` for validation, with a warning where its BLEU will be of pieces of words."""
    option = "--eval-bleu-remove-bpe"
    check(rule, dictionary, option)
    if rule is None:
        _warn_of_pieces("BLEU", dictionary, option)


def _warn_of_pieces(what: str, dictionary: Dictionary, option: str) -> None:
    if fitting := pieces_of(dictionary):
        logger.warning(f"{what} will be of pieces of words, not of words: give {option} {fitting}")


@around(utils, "post_process_prediction")
def _check_rule_of_prediction(
    original: Any,
    hypo_tokens: Any,
    src_str: str,
    alignment: Any,
    align_dict: Any,
    tgt_dict: Dictionary,
    remove_bpe: str | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    if vars(tgt_dict).get("checked_rule") != remove_bpe:  # once, not for each hypothesis
        check(remove_bpe, tgt_dict, "--post-process")
        tgt_dict.checked_rule = remove_bpe
    return original(
        hypo_tokens, src_str, alignment, align_dict, tgt_dict, remove_bpe, *args, **kwargs
    )


@around(TranslationTask, "build_model")
def _check_rule_of_validation(
    original: Any, self: TranslationTask, *args: Any, **kwargs: Any
) -> Any:
    if self.cfg.eval_bleu:
        check_validation(self.cfg.eval_bleu_remove_bpe, self.target_dictionary)
    return original(self, *args, **kwargs)


@around(scoring, "build_scorer")
def _warn_of_scores_of_pieces(original: Any, choice: Any, tgt_dict: Any) -> Any:
    if command.prints_pieces:
        _warn_of_pieces("what is printed, and BLEU,", tgt_dict, "--post-process")
    return original(choice, tgt_dict)
