"""Joins subwords into words by the model's own marks.

Replaced in fairseq:
- ``utils.post_process_prediction``: ``--post-process sentencepiece`` for pieces of subword-nmt ran
  all words of a sentence together, ``subword_nmt`` for pieces of sentencepiece left them as they
  were; either was printed and scored as the translation. Now one line names what fits.
- ``options.parse_args_and_arch`` and ``scoring.build_scorer``, of ``fairseq-generate``: without
  ``--post-process`` it printed pieces and a BLEU score of them. Now a warning says so.
- ``TranslationTask.build_model``: the same for ``--eval-bleu-remove-bpe``, before the training.
  Where that option is missing and BLEU will be of pieces, a warning says so.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from fairseq import options, scoring, utils
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationTask

from ...errors import UserError

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


def _fitting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def post_process_prediction(
        hypo_tokens: Any,
        src_str: str,
        alignment: Any,
        align_dict: Any,
        tgt_dict: Dictionary,
        remove_bpe: str | None = None,
        extra_symbols_to_ignore: Any = None,
    ) -> Any:
        if vars(tgt_dict).get("checked_rule") != remove_bpe:  # once, not for each hypothesis
            check(remove_bpe, tgt_dict, "--post-process")
            tgt_dict.checked_rule = remove_bpe
        return original(
            hypo_tokens,
            src_str,
            alignment,
            align_dict,
            tgt_dict,
            remove_bpe,
            extra_symbols_to_ignore,
        )

    return post_process_prediction


def _fitting_in_validation(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def build_model(self: TranslationTask, cfg: Any, from_checkpoint: bool = False) -> Any:
        if self.cfg.eval_bleu:
            check_validation(self.cfg.eval_bleu_remove_bpe, self.target_dictionary)
        return original(self, cfg, from_checkpoint)

    return build_model


_unprocessed = False  # whether this process' command prints what it translates as it is


def _remember(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def parse_args_and_arch(*args: Any, **kwargs: Any) -> Any:
        global _unprocessed
        found = original(*args, **kwargs)
        given = vars(found[0] if isinstance(found, tuple) else found)
        # With --bpe, fairseq joins pieces by itself, and says so where its BLEU is of others.
        _unprocessed = given.get("post_process", "") is None and given.get("bpe") is None
        return found

    return parse_args_and_arch


def _warning_first(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def build_scorer(choice: Any, tgt_dict: Any) -> Any:
        if _unprocessed:
            _warn_of_pieces("what is printed, and BLEU,", tgt_dict, "--post-process")
        return original(choice, tgt_dict)

    return build_scorer


def install() -> None:
    """Make fairseq look at the dictionary first."""
    utils.post_process_prediction = _fitting(utils.post_process_prediction)
    TranslationTask.build_model = _fitting_in_validation(TranslationTask.build_model)
    options.parse_args_and_arch = _remember(options.parse_args_and_arch)
    scoring.build_scorer = _warning_first(scoring.build_scorer)
