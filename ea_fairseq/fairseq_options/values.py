"""Values of fairseq's commands with which the result is wrong without a word, or hours are lost."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from fairseq.dataclass.configs import GenerationConfig

from ..errors import UserError, perhaps_meant
from . import checks

#: Type of a setting -> those of its values in JSON, and in words.
_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
}

#: Options that a command must have -> when it is wrong -> what to say. Braces hold options' values.
_REFUSED: list[tuple[str, Callable[[argparse.Namespace], bool], str]] = [
    (
        # All sentences in one batch. Commands with --beam or --context-window choose by themselves.
        "max_tokens batch_size",
        lambda a: (
            a.max_tokens is None
            and a.batch_size is None
            and not any(hasattr(a, other) for other in ("beam", "context_window"))
        ),
        "--max-tokens is missing, or --batch-size: the size of a batch in tokens or sentences",
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
        "merge_src_tgt_embed",
        lambda a: a.merge_src_tgt_embed,
        "--merge-src-tgt-embed numbers the target's words by another dictionary than the data has: "
        "give --share-all-embeddings, on data of fairseq-preprocess --joined-dictionary",
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
        "lm_path buffer_size",
        lambda a: a.lm_path is not None,
        "--lm-path has no effect on fairseq-interactive: translate with fairseq-generate",
    ),
    (
        "sampling_topk sampling_topp sampling",
        lambda a: not a.sampling and (a.sampling_topk > 0 or a.sampling_topp > 0),
        "--sampling-topk and --sampling-topp need --sampling as well",
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


def _check_eval_bleu_args(text: str) -> None:
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
        checks.check_numbers(name.replace("_", "-"), value, f"{option}: {name}")


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
    try:
        if given.get("eval_bleu"):
            _check_eval_bleu_args(args.eval_bleu_args)
        for action in parser._actions:
            value = given.get(action.dest)
            if isinstance(value, int | float | list) and value != action.default:
                name = action.dest.replace("_", "-")
                checks.check_numbers(name, value, f"--{name}")
        checks.check_metric(args, "--")
    except ValueError as error:
        raise UserError(str(error)) from None
