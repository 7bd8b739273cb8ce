"""``ea-average``: the mean of several checkpoints' weights as a new one.

    ea-average --inputs RUN_FOLDER --num-epoch-checkpoints 10 \\
        --output RUN_FOLDER/average.pt

Command line and functions are those of fairseq's average_checkpoints.py. Checkpoints are read
through the safe unpickler, and the output appears under its name when it is complete.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from ..files import check_outputs, is_stream
from .program import described, run_program

#: What fairseq calls the checkpoints that a training goes on from.
_TRAINING = re.compile(r"checkpoint(_last|_best|\d+|_\d+_\d+)\.pt")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    description = "Average the weights of several checkpoints into a new one."
    parser = described(description, "average_checkpoints.py")
    parser.add_argument(
        "--inputs", nargs="+", required=True, help="the checkpoints, or the folder they are in"
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="the new checkpoint")
    number = parser.add_mutually_exclusive_group()
    number.add_argument(
        "--num-epoch-checkpoints",
        type=_positive,
        metavar="N",
        help="average the last N checkpoint<epoch>.pt of the folder",
    )
    number.add_argument(
        "--num-update-checkpoints",
        type=_positive,
        metavar="N",
        help="average the last N checkpoint_<epoch>_<update>.pt of the folder",
    )
    number.add_argument(
        "--num-best-checkpoints",
        type=_positive,
        metavar="N",
        help="average the N checkpoint.best_<metric>_<value>.pt with the lowest values",
    )
    parser.add_argument(
        "--checkpoint-upper-bound",
        type=_positive,
        metavar="K",
        help="the last epoch or update to take with the first two",
    )
    parser.add_argument(
        "--maximize-best-checkpoint-metric",
        action="store_true",
        help="take the highest values with --num-best-checkpoints, e.g. for BLEU",
    )
    parser.add_argument(
        "--allow-fewer",
        action="store_true",
        help="average what there is where that is less, with a warning; the last update's weights "
        "(checkpoint_last.pt) take part where no checkpoint of the kind asked for ended with them",
    )
    return parser


def _chosen(args: argparse.Namespace) -> list[str]:
    """The files that the command line asks for."""
    from ..checkpoints.average import best_n_checkpoints, last_n_checkpoints

    by_number = args.num_epoch_checkpoints or args.num_update_checkpoints
    if args.checkpoint_upper_bound is not None and by_number is None:
        raise UserError(
            "--checkpoint-upper-bound needs --num-epoch-checkpoints or --num-update-checkpoints"
        )
    if args.maximize_best_checkpoint_metric and args.num_best_checkpoints is None:
        raise UserError("--maximize-best-checkpoint-metric needs --num-best-checkpoints")
    if args.allow_fewer and by_number is None and args.num_best_checkpoints is None:
        raise UserError("--allow-fewer needs one of the options --num-...-checkpoints")
    if by_number is not None:
        update_based = args.num_update_checkpoints is not None
        bound = args.checkpoint_upper_bound
        return last_n_checkpoints(args.inputs, by_number, update_based, bound, args.allow_fewer)
    if args.num_best_checkpoints is not None:
        return best_n_checkpoints(
            args.inputs,
            args.num_best_checkpoints,
            args.maximize_best_checkpoint_metric,
            args.allow_fewer,
        )
    return args.inputs


def _is_copy(file: str, other: str) -> bool:
    """Whether two files have the same bytes, as checkpoint_last.pt and the last epoch's have."""
    try:
        return filecmp.cmp(file, other, shallow=False)  # of other sizes at once
    except OSError:  # said when it is read
        return False


def main(argv: Sequence[str] | None = None) -> int:
    """Average and save; the exit code is 0 when the output is there."""
    return run_program(make_parser(), argv, _average)


def _average(args: argparse.Namespace) -> None:
    from ..checkpoints.average import average_checkpoints, best_n_checkpoints  # takes torch
    from ..checkpoints.reading import setting
    from ..checkpoints.writing import save_checkpoint_file

    output = Path(args.output)
    check_outputs({"--output": output})
    inputs = _chosen(args)
    seen: list[str] = []
    for path in inputs:
        if os.path.isdir(path):
            raise UserError(
                f"--inputs {path}: is a folder: say which of its checkpoints, by "
                "--num-epoch-checkpoints, --num-update-checkpoints or --num-best-checkpoints"
            )
        file = os.path.realpath(path)
        for other in seen:
            if file == other:
                raise UserError(f"--inputs {path}: is given twice, and would count twice")
            if _is_copy(file, other):
                raise UserError(f"--inputs {path}: is a copy of {other}, and would count twice")
        seen.append(file)
    if os.path.realpath(args.output) in seen:
        raise UserError(f"--output {args.output} is one of the checkpoints to average")
    if output.exists() and _TRAINING.fullmatch(output.name):
        raise UserError(f"--output {output}: is a checkpoint of a training; choose another name")
    if is_stream(output):
        raise UserError(f"--output {output}: is a device or a pipe; name a file")
    print("averaging:", *inputs, sep="\n  ")
    average = average_checkpoints(inputs)
    # Of fewer than were asked for all are taken.
    if len(inputs) == args.num_best_checkpoints and not args.maximize_best_checkpoint_metric:
        highest = best_n_checkpoints(args.inputs, len(inputs), maximize=True)
        maximized = setting(average, "checkpoint", "maximize_best_checkpoint_metric")
        if maximized and set(highest) != set(inputs):
            print(
                f"warning: {inputs[0]} was trained with --maximize-best-checkpoint-metric, so "
                "these are the worst of its checkpoints: give that option here too",
                file=sys.stderr,
            )
    # Of a link, the file that it leads to is replaced.
    save_checkpoint_file(average, str(output.resolve()))
    print(f"wrote {args.output}")


if __name__ == "__main__":
    sys.exit(main())
