"""Refuses option values with which fairseq fails later or computes wrong results.

Replaced in fairseq:
- ``options.parse_args_and_arch``: what a command was given is looked at before anything else: each
  number by the ranges that recipes have, and the table below. A list of words from a program,
  instead of the command line, is left alone.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from fairseq import options
from fairseq.dataclass.configs import GenerationConfig
from fairseq.scoring import SCORER_REGISTRY

from ...errors import UserError, perhaps_meant
from ...fairseq_options import ranges

_SUBWORDS = "subword_nmt, @@, sentencepiece, wordpiece, letter, silence, _EOW, none".split(", ")
_STEP_BY_STEP = ("translation", "language_modeling")
#: Options of models that write all words at once, and improve them -> their defaults.
_ITERATIVE: dict[str, Any] = {
    "print_step": False,
    "retain_iter_history": False,
    "decoding_format": None,
    "iter_decode_eos_penalty": 0.0,
    "iter_decode_max_iter": 10,
    "iter_decode_force_max_iter": False,
    "iter_decode_with_beam": 1,
    "iter_decode_with_external_reranker": False,
}
#: Type of a setting -> those of its values in JSON, and in words.
_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
}
#: --scoring -> the package that it asks for, where fairseq does without.
_PACKAGES = {"wer": "editdistance", "meteor": "nltk", "bert_score": "bert-score"}


def _searches(a: argparse.Namespace) -> int:
    """How many kinds of search are asked for."""
    kinds = a.sampling, a.match_source_len, a.diverse_beam_groups > 0, a.diversity_rate > 0
    return sum(map(bool, (*kinds, a.constraints)))


#: Options that a command must have -> when it is wrong -> what to say. Braces hold options' values.
_REFUSED: list[tuple[str, Callable[[argparse.Namespace], bool], str]] = [
    (
        "optimizer max_update",  # of a training: each command has the first
        lambda a: a.optimizer is None,
        "--optimizer is missing: choose one, such as --optimizer adam",
    ),
    (
        "max_update max_tokens batch_size",
        lambda a: a.max_tokens is None and a.batch_size is None,
        "--max-tokens is missing, or --batch-size: the size of a batch in tokens or sentences",
    ),
    (
        "path",
        lambda a: a.path is None,
        "--path is missing: the checkpoint, such as --path checkpoints/checkpoint_best.pt",
    ),
    (
        "path max_tokens batch_size",  # of fairseq-validate: the others that take --path choose
        lambda a: (
            a.max_tokens is None
            and a.batch_size is None
            and not any(hasattr(a, other) for other in ("beam", "context_window"))
        ),
        "--max-tokens is missing, or --batch-size: the size of a batch in tokens or sentences",
    ),
    (
        "beam nbest",
        lambda a: a.nbest > a.beam > 0,
        "--nbest is {nbest}: choose from 1 to --beam {beam}",
    ),
    (
        "sampling beam nbest",
        lambda a: a.sampling and a.nbest != a.beam,
        "--sampling with --beam {beam} needs --nbest {beam} as well, or --beam {nbest}",
    ),
    (
        "beam post_process",
        lambda a: a.post_process not in (None, "@@ ", *_SUBWORDS),
        "--post-process is {post_process!r}: choose from " + ", ".join(_SUBWORDS),
    ),
    (
        "output_word_probs post_process",
        lambda a: a.post_process not in (None, "subword_nmt", "@@ "),
        "--post-process is {post_process!r}: fairseq-eval-lm joins the pieces of subword-nmt "
        "alone: give subword_nmt, or leave it out for scores of pieces",
    ),
    (
        "buffer_size batch_size",
        lambda a: (a.batch_size or 1) > max(a.buffer_size, 1),
        "--batch-size {batch_size} is more than the --buffer-size {buffer_size}: "
        "give --buffer-size {batch_size} or more",
    ),
    (
        "context_window tokens_per_sample",
        lambda a: 0 < a.tokens_per_sample <= a.context_window,
        "--context-window {context_window} leaves nothing of --tokens-per-sample "
        "{tokens_per_sample}: give a window that is smaller",
    ),
    (
        # Blocks of whole length do not fit, and training would leave all but the last out.
        "max_update max_tokens tokens_per_sample sample_break_mode",
        lambda a: (
            a.sample_break_mode == "none"
            and (a.max_tokens or a.tokens_per_sample) < a.tokens_per_sample
        ),
        "--max-tokens {max_tokens} takes no block of --tokens-per-sample {tokens_per_sample}: "
        "give --max-tokens {tokens_per_sample} or more, or smaller blocks",
    ),
    (
        "sacrebleu scoring beam",
        lambda a: a.sacrebleu and a.scoring != "sacrebleu",
        "--sacrebleu has no effect on what is printed: give --scoring sacrebleu",
    ),
    (
        "lm_path beam",
        lambda a: a.lm_path is not None and not a.lm_weight,
        "--lm-path has no effect without --lm-weight, which is 0: give one, such as "
        "--lm-weight 0.3",
    ),
    (
        "lm_weight lm_path beam",
        lambda a: a.lm_path is None and a.lm_weight,
        "--lm-weight {lm_weight} has no effect without --lm-path: leave it out, or give "
        "fairseq-generate the language model's checkpoint",
    ),
    (
        "lm_path buffer_size",
        lambda a: a.lm_path is not None,
        "--lm-path has no effect on fairseq-interactive: translate with fairseq-generate",
    ),
    (
        "prefix_size buffer_size",
        lambda a: a.prefix_size > 0,
        "--prefix-size has no effect on fairseq-interactive, which knows no targets: leave it out",
    ),
    (
        "sampling_topk sampling_topp sampling",
        lambda a: not a.sampling and (a.sampling_topk > 0 or a.sampling_topp > 0),
        "--sampling-topk and --sampling-topp need --sampling as well",
    ),
    (
        "sampling_topk sampling_topp sampling",
        lambda a: a.sampling_topk > 0 and a.sampling_topp > 0,
        "--sampling-topk {sampling_topk} has no effect beside --sampling-topp: give one of them",
    ),
    (
        "constraints task",
        lambda a: a.constraints and a.task == "language_modeling",
        "--constraints: a language model takes none: leave it out",
    ),
    (
        "constraints diverse_beam_groups diversity_rate sampling match_source_len",
        lambda a: _searches(a) > 1,
        "--sampling, --match-source-len, --diverse-beam-groups, --diversity-rate and --constraints "
        "do not go together: give one of them",
    ),
    (
        "diverse_beam_strength diverse_beam_groups",
        lambda a: a.diverse_beam_groups <= 0 and a.diverse_beam_strength != 0.5,  # the default
        "--diverse-beam-strength {diverse_beam_strength} has no effect without "
        "--diverse-beam-groups: give that as well, or leave it out",
    ),
    (
        "diverse_beam_groups beam",
        lambda a: a.diverse_beam_groups > 0 and a.beam % a.diverse_beam_groups,
        "--diverse-beam-groups {diverse_beam_groups} does not divide --beam {beam}",
    ),
    (
        "temperature beam",
        lambda a: not a.temperature > 0,
        "--temperature is {temperature}: expected a number above 0",
    ),
    (
        "constraints path beam",
        lambda a: a.constraints and not hasattr(a, "buffer_size"),
        "--constraints stand behind the lines that fairseq-interactive reads: translate with that",
    ),
    (
        "distributed_rank distributed_world_size beam",
        lambda a: a.distributed_rank >= a.distributed_world_size,
        "--distributed-rank is {distributed_rank}: expected one from 0 to below "
        "--distributed-world-size, {distributed_world_size}",
    ),
    (
        "tokenizer source_lang target_lang beam",
        lambda a: a.tokenizer == "moses" and None in (a.source_lang, a.target_lang),
        "--tokenizer moses needs --source-lang and --target-lang as well",
    ),
    (
        "print_alignment buffer_size",
        lambda a: a.print_alignment == "soft",
        "--print-alignment soft is not for fairseq-interactive, which prints pairs of words: give "
        "--print-alignment hard, or translate with fairseq-generate",
    ),
    (
        "print_alignment score_reference",
        lambda a: a.print_alignment == "soft" and a.score_reference,
        "--print-alignment soft is not for --score-reference: give --print-alignment hard",
    ),
    (
        "print_alignment task",
        lambda a: a.print_alignment and a.task == "language_modeling",
        "--print-alignment: a language model has no source to align with: leave it out",
    ),
    (
        "print_step retain_iter_history iter_decode_max_iter task",
        lambda a: (
            a.task in _STEP_BY_STEP and any(getattr(a, n) != d for n, d in _ITERATIVE.items())
        ),
        "--print-step, --retain-iter-history, --decoding-format and --iter-decode-... are not for "
        "the task {task}, whose models write word by word: leave them out",
    ),
    (
        "eos_token task beam",
        lambda a: a.task in _STEP_BY_STEP and a.eos_token is not None,
        "--eos-token {eos_token} has no effect on the task {task}: leave it out",
    ),
    (
        "retain_dropout_modules retain_dropout beam",
        lambda a: a.retain_dropout_modules is not None and not a.retain_dropout,
        "--retain-dropout-modules has no effect without --retain-dropout: give that as well",
    ),
    (
        "path num_shards beam",  # of fairseq-generate: fairseq-eval-lm knows shards
        lambda a: a.num_shards > 1 and not hasattr(a, "buffer_size"),
        "--num-shards {num_shards} has no effect, all sentences would be translated: give "
        "--distributed-world-size {num_shards} --distributed-rank {shard_id}",
    ),
    (
        "context_window sample_break_mode",
        lambda a: a.context_window > 0 and a.sample_break_mode == "eos",
        "--context-window {context_window}: lines apart (--sample-break-mode eos) see nothing "
        "before them: choose --sample-break-mode none or complete",
    ),
]


def _check_eval_bleu_args(text: str, task: str) -> None:
    """Refuses settings of the search in validation that would be left out without a word, or that
    it would fail at behind the first epoch, before anything is saved."""
    option = "--eval-bleu-args"
    known = {field.name: field for field in fields(GenerationConfig)}
    try:
        given = json.loads(text or "{}")
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise UserError(
            f"{option} is {text}: expected JSON, as in "
            """--eval-bleu-args '{"beam": 4, "max_len_b": 100}'"""
        )
    for name, value in given.items():
        if name not in known:
            raise UserError(
                f"{option}: {name!r} is no option of the search"
                + perhaps_meant(name, known, most=3)
            )
        kinds, expected = _KINDS.get(known[name].type, (None, ""))
        if kinds is not None and type(value) not in kinds:
            raise UserError(f"{option}: {name} is {json.dumps(value)}: expected {expected}")
        ranges.check(name.replace("_", "-"), value, f"{option}: {name}")
    defaults = {name: field.default for name, field in known.items()}
    settings = argparse.Namespace(**(defaults | given), task=task)
    for names, is_wrong, message in _REFUSED:
        words = set(names.split()) - {"task"}  # one hypothesis is scored, however many are drawn
        if words <= known.keys() - {"nbest"} and is_wrong(settings):
            raise UserError(f"{option}: " + message.format_map(vars(settings)))


def _check_scoring(chosen: str) -> None:
    """Refuses scores that a package computes which is not installed."""
    needed = _PACKAGES.get(chosen)
    if needed is None or importlib.util.find_spec(needed.replace("-", "_")) is not None:
        return
    others = ", ".join(name for name in SCORER_REGISTRY if name not in _PACKAGES)
    raise UserError(
        f"--scoring {chosen} needs the package {needed}: pip install {needed}, or choose from "
        f"{others}"
    )


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuses values that cannot work.

    Args:
        parser: the command's, with the defaults, which are left alone
        args: what it has read

    Raises:
        UserError: naming the first such option.
    """
    given = vars(args)
    for names, is_wrong, message in _REFUSED:
        if all(name in given for name in names.split()) and is_wrong(args):
            raise UserError(message.format_map(given))
    for name, value in given.items():
        if value == "???":  # of fairseq's settings: what has no default
            raise UserError(f"--{name.replace('_', '-')} is missing")
    if {"scoring", "beam"} <= given.keys():
        _check_scoring(args.scoring)
    try:
        if given.get("eval_bleu"):
            _check_eval_bleu_args(args.eval_bleu_args, args.task)
        for action in parser._actions:
            value = given.get(action.dest)
            if isinstance(value, int | float | list) and value != action.default:
                name = action.dest.replace("_", "-")
                ranges.check(name, value, f"--{name}")
        ranges.check_betas(args, "--")
        ranges.check_metric(args, "--")
    except ValueError as error:
        raise UserError(str(error)) from None


def _checked(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def parse_args_and_arch(
        parser: argparse.ArgumentParser,
        input_args: Sequence[str] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        found = original(parser, input_args, *args, **kwargs)
        if input_args is None:
            check(parser, found[0] if isinstance(found, tuple) else found)
        return found

    return parse_args_and_arch


def install() -> None:
    """Make fairseq's commands look at their values first."""
    options.parse_args_and_arch = _checked(options.parse_args_and_arch)
