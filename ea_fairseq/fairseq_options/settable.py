"""Which options a recipe may set, and to what values: a recipe may come from a stranger.

An option of fairseq is allowed where all that can become of its value is a number, a switch or one
of the words that fairseq's parser lists, unless REFUSED names it. An option that takes any text
could name a module to import, a file to write or an address: it is allowed only if TEXT names it,
with values of the form given there. New options of fairseq are thus refused until somebody has
looked at them.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

#: Forms of text -> their patterns.
_FORMS = {
    # Read as literals, not run: checkpoints/literals.py.
    "numbers": r"[-+*0-9.eE:,()\[\]{} ]+|True|False",
    "a name": r"\w[\w.-]*",
    "names with commas between": r"\w[\w.-]*(,\w[\w.-]*)*",
    "a kind of subwords": r"[@\w ]+",
    "moses or space": "moses|space",
    "gloo or nccl": "gloo|nccl",
    "a file": r"(?!.*://)[^\x00-\x1f\x7f]+",
    "a JSON object": r"\{.*\}",
}

#: Options that take text -> the form of the values allowed.
TEXT = {
    **dict.fromkeys(
        (
            "adafactor-eps",
            "adam-betas",
            "adamax-betas",
            "adaptive-input-cutoff",
            "adaptive-softmax-cutoff",
            "batch-size-valid",
            "decoder-attention",
            "decoder-glu",
            "decoder-kernel-size-list",
            "decoder-layers",  # in fairseq's convolutional model: [(512, 3)] * 15
            "decoder-layers-to-keep",
            "decoder-output-dim",
            "early-exit",
            "encoder-glu",
            "encoder-kernel-size-list",
            "encoder-layers",
            "encoder-layers-to-keep",
            "epoch2lr",
            "lamb-betas",
            "lr",
            "max-tokens-valid",
            "phase-ratio",
            "total-num-update",
            "update-freq",
            "update2lr",
            "weight-softmax",
        ),
        "numbers",
    ),
    # Parts of file names in folders that the runner chooses, so without a slash.
    "best-checkpoint-metric": "a name",
    "tensorboard-logdir": "a name",  # of a folder in the run's own: commands.py
    "train-subset": "names with commas between",
    "valid-subset": "names with commas between",
    # How subwords become words again, for scores.
    "eval-bleu-args": "a JSON object",
    "eval-bleu-detok": "moses or space",
    "eval-bleu-detok-args": "a JSON object",
    "eval-bleu-remove-bpe": "a kind of subwords",
    "post-process": "a kind of subwords",
    # Files that are read: a checkpoint by the safe unpickler, the others as lines of text.
    "decoder-embed-path": "a file",
    "encoder-embed-path": "a file",
    "finetune-from-model": "a file",
    "syntax-hints": "a file",
    "distributed-backend": "gloo or nccl",
}

_LAUNCHER = "processes are started by torchrun or fairseq-train, not by a recipe"
_TEXT = "corpus.yml says how text is tokenized and split"

#: Options that are refused though their values are numbers, switches or words of a list -> why.
REFUSED = {
    "azureml-logging": "it sends what is logged to a service",
    "bpe": _TEXT,
    "dataset-impl": "the runner's data has one format",
    "distributed-no-spawn": _LAUNCHER,
    "distributed-port": _LAUNCHER,
    "distributed-rank": _LAUNCHER,
    "help": "it prints and ends",
    "replace-unk": "fairseq cannot replace the unknown words of text in subwords",
    "tokenizer": _TEXT,
    "tpu": "it needs a package that is not among the pinned ones",
    "use-plasma-view": "it starts a server",
}

#: Of what fairseq lists, the part that neither fetches models nor needs other data.
CHOICES = {
    "scoring": ("bleu", "chrf", "sacrebleu"),
    "task": ("translation", "translation_lev", "language_modeling"),
}


def check(action: argparse.Action, value: Any, where: str) -> None:
    """Check that a recipe may give an option this value.

    Args:
        action: the option, as fairseq's parser knows it
        value: what the recipe says
        where: what messages call the option

    Raises:
        ValueError: it may not.
    """
    names = [name.removeprefix("--") for name in action.option_strings]
    for name in names:
        if name in REFUSED:
            raise ValueError(f"{where} is not allowed in a recipe: {REFUSED[name]}")
        if value not in CHOICES.get(name, [value]):
            choices = ", ".join(CHOICES[name])
            raise ValueError(f"{where} is {value!r}: a recipe may choose from {choices}")
    known = action.nargs == 0 or action.choices or action.type in (int, float)
    if known or isinstance(value, bool) or value is None:
        return
    if any(name.startswith("ea-") for name in names):  # the plugin's own parsers check these
        return
    form = next((TEXT[name] for name in names if name in TEXT), None)
    if form is None:
        raise ValueError(
            f"{where} is not allowed in a recipe: it takes any text, and may name code, files to "
            "write or addresses; give it to fairseq's command yourself"
        )
    if not re.fullmatch(_FORMS[form], str(value)):
        raise ValueError(f"{where} is {value!r}: expected {form}")


def check_own(section: str, key: str, value: Any, file: str) -> None:
    """Check a value of the sections that are this project's own: average and evaluate.

    Raises:
        ValueError: it is not the switch or the whole number that it has to be.
    """
    switch = section == "evaluate" or key.startswith("maximize-")
    if value is None or isinstance(value, bool) and (switch or not value):
        return
    if switch or not isinstance(value, int) or value < 1:
        expected = "true or false" if switch else "a whole number from 1"
        raise ValueError(f"{file}: '{section}: {key}' is {value!r}: expected {expected}")
