"""Checks values of fairseq's options, which takes any: it fails hours later, or does not."""

from __future__ import annotations

import argparse
import re
from typing import Any

from .table import known_of

#: Forms of text -> their patterns.
FORMS = {
    # Read as literals, not run: checkpoints/literals.py.
    "numbers": r"[-+*0-9.eE:,()\[\]{} ]+|True|False",
    "two numbers": r"[\[(]?[-+*0-9.eE ]+,[-+*0-9.eE ]+[\])]?",
    "a name": r"\w[\w.-]*",
    "names with commas between": r"\w[\w.-]*(,\w[\w.-]*)*",
    "a kind of subwords": r"[@\w ]+",
    "moses or space": "moses|space",
    "gloo or nccl": "gloo|nccl",
    "a file": r"(?!.*://)[^\x00-\x1f\x7f]+",
    "a JSON object": r"\{.*\}",
}

#: What fairseq's criteria measure in validation, and what they measure by a switch.
_SMOOTHED = ("loss", "nll_loss", "ppl")
_MEASURED = {
    "cross_entropy": ("loss", "ppl"),
    "adaptive_loss": ("loss", "ppl"),
    "label_smoothed_cross_entropy": _SMOOTHED,
    "syntax_guided_cross_entropy": _SMOOTHED,
}
_BY_SWITCH = {"nll_loss": "sentence_avg", "bleu": "eval_bleu", "accuracy": "report_accuracy"}
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def check_numbers(name: str, value: Any, where: str) -> None:
    """Checks the numbers of an option's value, of a list each.

    Args:
        name: the option, without dashes in front
        value: what the recipe says; text with the numbers in it, too
        where: what messages call the option

    Raises:
        ValueError: a number is beyond its range, or none at all (infinity).
    """
    if isinstance(value, bool) or value is None:
        return
    if re.fullmatch(r"[-+]?\.?(inf|nan)(inity)?", str(value), re.I):
        raise ValueError(f"{where} is {value}: expected a finite number")
    if not (expected := known_of(name).numbers):
        return
    least, *greatest = (int(word) for word in re.findall(r"-?\d+", expected))
    what = "each must be" if isinstance(value, list) else "expected a number"
    for found in _NUMBER.finditer(str(value)):
        number = float(found[0])
        too_low = number <= least if expected.startswith("above") else number < least
        if too_low or greatest and number > greatest[0]:
            raise ValueError(f"{where} is {value}: {what} {expected}")


def check_settable(action: argparse.Action, value: Any, where: str) -> None:
    """Checks that a recipe may give an option this value.

    Args:
        action: the option, as fairseq's parser knows it
        value: what the recipe says
        where: what messages call the option

    Raises:
        ValueError: it may not.
    """
    names = [name.removeprefix("--") for name in action.option_strings]
    options = [known_of(name) for name in names]
    for option in options:
        if option.refused:
            raise ValueError(f"{where} is not allowed in a recipe: {option.refused}")
        if option.choices and value not in option.choices:
            choices = ", ".join(option.choices)
            raise ValueError(f"{where} is {value!r}: a recipe may choose from {choices}")
    listed = action.nargs == 0 or action.choices or action.type in (int, float)
    if listed or isinstance(value, bool) or value is None:
        return
    if any(name.startswith("ea-") for name in names):  # the plugin's own parsers check these
        return
    form = next((option.text for option in options if option.text), None)
    if form is None:
        raise ValueError(
            f"{where} is not allowed in a recipe: it takes any text, and may name code, files to "
            "write or addresses; give it to fairseq's command yourself"
        )
    if not re.fullmatch(FORMS[form], str(value)):
        raise ValueError(f"{where} is {value!r}: expected {form}")


def check_metric(args: Any, where: str) -> None:
    """Checks that the best checkpoint is chosen by what is measured, and is not the worst.

    Args:
        args: all options, as fairseq's parser gives them
        where: what stands before the option's name in messages

    Raises:
        ValueError: the metric is not measured, or the wrong end of it would be the best.
    """
    metric = getattr(args, "best_checkpoint_metric", None)
    if metric is None or not hasattr(args, "max_update"):  # no training
        return
    dashes = "--" if where == "--" else ""
    maximize = f"{dashes}maximize-best-checkpoint-metric"
    measured = list(_MEASURED.get(args.criterion, [metric]))
    measured += [name for name, switch in _BY_SWITCH.items() if getattr(args, switch, False)]
    if metric == "bleu" and not (args.maximize_best_checkpoint_metric and metric in measured):
        raise ValueError(
            f"{where}best-checkpoint-metric bleu needs {dashes}eval-bleu and {maximize}: a higher "
            "one is better"
        )
    if metric not in measured:
        raise ValueError(
            f"{where}best-checkpoint-metric {metric}: {args.criterion} does not measure it: choose "
            f"from {', '.join(dict.fromkeys(measured))}"
        )
    if metric == "accuracy" and not args.maximize_best_checkpoint_metric:
        raise ValueError(
            f"{where}best-checkpoint-metric accuracy needs {maximize}: a higher one is better"
        )
    if metric in ("loss", "nll_loss", "ppl") and args.maximize_best_checkpoint_metric:
        raise ValueError(
            f"{where}maximize-best-checkpoint-metric: a lower {metric} is better: leave it out, or "
            f"choose {dashes}best-checkpoint-metric bleu"
        )


def check_schedule(args: Any, where: str) -> None:
    """Checks that a training does not go on when its learning rate is 0.

    Args:
        args: all options, as fairseq's parser gives them
        where: what messages call them

    Raises:
        ValueError: it would.
    """
    if getattr(args, "lr_scheduler", None) != "polynomial_decay" or args.end_learning_rate > 0:
        return
    total, last = float(args.total_num_update or 0), float(args.max_update or 0)
    if 0 < total < last:
        raise ValueError(
            f"{where}: max-update is {last:g}, and polynomial_decay's learning rate is 0 from "
            f"total-num-update {total:g} on: give that {last:g}, too"
        )


def check_together(args: Any, where: str) -> None:
    """Checks numbers that depend on each other.

    Args:
        args: all options, as fairseq's parser gives them with the architecture's own
        where: what messages call them

    Raises:
        ValueError: they do not go together.
    """
    for side in ("encoder", "decoder"):
        dim = getattr(args, f"{side}_embed_dim", None)
        heads = getattr(args, f"{side}_attention_heads", None)
        if dim and heads and dim % heads:
            raise ValueError(
                f"{where}: {side}-embed-dim is {dim}, which {side}-attention-heads {heads} does "
                "not divide"
            )
    check_metric(args, f"{where}: ")
    check_schedule(args, where)
    beam, best = getattr(args, "beam", None), getattr(args, "nbest", None)
    if beam and best and best > beam:
        raise ValueError(f"{where}: nbest is {best}: choose from 1 to beam, {beam}")
