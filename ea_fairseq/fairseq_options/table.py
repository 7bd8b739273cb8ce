"""What is known of fairseq's options, beyond fairseq's own parsers: one record each."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import filter as matching
from fnmatch import fnmatchcase

_LAUNCHER = "processes are started by torchrun or fairseq-train, not by a recipe"
_TEXT = "corpus.yml says how text is tokenized and split"


@dataclass(frozen=True)
class Option:
    """What is known of an option.

    A recipe may come from a stranger. It may set an option where all that can become of its value
    is a number, a switch or one of the words that fairseq's parser lists, unless `refused` says
    why not. An option that takes any text could name a module to import, a file to write or an
    address: a recipe may set it only where `text` has the form of its values. New options of
    fairseq are thus refused until somebody has looked at them.

    Attributes:
        numbers: their range in words: "from 1", "from 0 to 1", "above 0"
        text: form of the text that a recipe may give it, see `checks.FORMS`
        choices: of the words that fairseq lists, those that a recipe may give: the others fetch
            models or need other data
        refused: why no recipe may set it
        also: what other toolkits call it, for messages; words with spaces between
    """

    numbers: str = ""
    text: str = ""
    choices: tuple[str, ...] = ()
    refused: str = ""
    also: str = ""


#: By name, in which * stands for anything.
OPTIONS = {
    # The model
    "arch": Option(also="model architecture"),
    "task": Option(choices=("translation", "translation_lev", "language_modeling")),
    "*coder-embed-dim": Option("from 1", also="hidden-size d-model embed-dim embedding-size"),
    "*coder-ffn-embed-dim": Option("from 1", also="ffn-dim"),
    "*coder-attention-heads": Option("from 1", also="heads num-heads"),
    # In fairseq's convolutional model: [(512, 3)] * 15
    "*coder-layers": Option("from 1", text="numbers", also="layers num-layers"),
    "*coder-layers-to-keep": Option(text="numbers"),
    "*coder-embed-path": Option(text="a file"),
    "*coder-glu": Option(text="numbers"),
    "*coder-kernel-size-list": Option(text="numbers"),
    "decoder-attention": Option(text="numbers"),
    "decoder-output-dim": Option(text="numbers"),
    "adaptive-input-cutoff": Option(text="numbers"),
    "adaptive-softmax-cutoff": Option(text="numbers"),
    "weight-softmax": Option(text="numbers"),
    "early-exit": Option(text="numbers"),
    "max-*-positions": Option("from 1"),
    "share-all-embeddings": Option(also="tie-embeddings tied-embeddings"),
    "share-decoder-input-output-embed": Option(also="tie-embeddings tied-embeddings"),
    "*dropout": Option("from 0 to 1"),
    "*-layerdrop": Option("from 0 to 1"),
    "ea-alpha": Option(also="alpha"),
    "ea-beta": Option(also="beta"),
    "ea-convolution": Option(also="convolution"),
    "ea-kernel-size": Option(also="kernel kernel-size"),
    "ea-skip": Option(also="skip"),
    # What it learns from, and how
    "criterion": Option(also="loss"),
    "label-smoothing": Option("from 0 to 1"),
    "syntax-hints": Option(text="a file"),
    "finetune-from-model": Option(text="a file"),
    "lr": Option("above 0", text="numbers", also="learning-rate"),
    "lr-scheduler": Option(also="scheduler schedule"),
    "lr-shrink": Option("from 0 to 1"),
    "warmup-updates": Option("from 0", also="warmup warmup-steps"),
    "total-num-update": Option("from 0", text="numbers"),
    "epoch2lr": Option(text="numbers"),
    "update2lr": Option(text="numbers"),
    "phase-ratio": Option(text="numbers"),
    "adam-betas": Option("from 0 to 1", text="two numbers"),
    "adamax-betas": Option("from 0 to 1", text="two numbers"),
    "lamb-betas": Option("from 0 to 1", text="two numbers"),
    "adafactor-eps": Option("from 0", text="numbers"),
    "*-betas": Option("from 0 to 1"),
    "*-eps": Option("from 0"),
    "weight-decay": Option("from 0"),
    "clip-norm": Option("from 0", also="gradient-clipping max-grad-norm"),
    "ema-decay": Option("from 0 to 1"),
    "max-tokens": Option("from 1", also="batch tokens-per-batch"),
    "max-tokens-valid": Option(text="numbers"),
    "batch-size": Option("from 1", also="batch"),
    "batch-size-valid": Option(text="numbers"),
    "max-sentences": Option("from 1"),
    "required-batch-size-multiple": Option("from 1"),
    "update-freq": Option(
        "from 1",
        text="numbers",
        also="accumulate gradient-accumulation gradient-accumulation-steps",
    ),
    "tokens-per-sample": Option("from 1"),
    "num-workers": Option("from 0"),
    "fp16": Option(also="mixed-precision half"),
    "bf16": Option(also="mixed-precision half"),
    "amp": Option(also="mixed-precision"),
    # How long, and what is kept
    "max-epoch": Option("from 0", also="epochs num-epochs"),
    "max-update": Option("from 0", also="steps max-steps num-steps iterations"),
    "patience": Option("from -1", also="early-stopping early-stopping-patience"),
    "best-checkpoint-metric": Option(text="a name"),  # a part of file names
    "keep-last-epochs": Option("from -1"),
    "keep-interval-updates": Option("from -1"),
    "keep-best-checkpoints": Option("from -1"),
    "save-interval": Option("from 1"),
    "save-interval-updates": Option("from 0", also="save-steps"),
    "validate-interval": Option("from 1"),
    "validate-interval-updates": Option("from 0"),
    "log-interval": Option("from 1"),
    "tensorboard-logdir": Option(text="a name"),  # of a folder in the run's own
    "valid-subset": Option(text="names with commas between"),
    "eval-bleu-args": Option(text="a JSON object"),
    "eval-bleu-detok": Option(text="moses or space"),
    "eval-bleu-detok-args": Option(text="a JSON object"),
    "eval-bleu-remove-bpe": Option(text="a kind of subwords"),
    # Generation and perplexity
    # As for ea_fairseq.inference.model_folder.Search.
    "beam": Option("from 1 to 1000", also="beam-size num-beams"),
    "nbest": Option("from 1", also="n-best"),
    "lenpen": Option("from -10 to 10", also="length-penalty"),
    "temperature": Option("from 0"),
    "max-len-a": Option("from 0", also="max-length"),
    "max-len-b": Option("from 0", also="max-length"),
    "min-len": Option("from 0"),
    "prefix-size": Option("from 0"),
    "no-repeat-ngram-size": Option("from 0"),
    "sampling-topk": Option(also="top-k"),
    "sampling-topp": Option(also="top-p"),
    "post-process": Option(text="a kind of subwords", also="detokenize"),
    "scoring": Option(choices=("bleu", "chrf", "sacrebleu")),
    "replace-unk": Option(refused="fairseq cannot replace the unknown words of text in subwords"),
    "context-window": Option("from 0"),
    # The machine, and what no recipe may set
    "azureml-logging": Option(refused="it sends what is logged to a service"),
    "bpe": Option(refused=_TEXT),
    "dataset-impl": Option(refused="the runner's data has one format"),
    "distributed-backend": Option(text="gloo or nccl"),
    "distributed-no-spawn": Option(refused=_LAUNCHER),
    "distributed-port": Option(refused=_LAUNCHER),
    "distributed-rank": Option(refused=_LAUNCHER),
    "help": Option(refused="it prints and ends"),
    "tokenizer": Option(refused=_TEXT),
    "tpu": Option(refused="it needs a package that is not among the pinned ones"),
    "use-plasma-view": Option(refused="it starts a server"),
}


def known_of(name: str) -> Option:
    """What is known of an option, by its name without dashes in front."""
    patterns = (pattern for pattern in OPTIONS if fnmatchcase(name, pattern))
    return OPTIONS.get(name) or OPTIONS.get(next(patterns, ""), Option())


def near(name: str, known: Collection[str]) -> list[str]:
    """The options that somebody may have meant by a name, those of its meaning first.

    Args:
        name: what was written, without dashes in front.
        known: the options that there are, without dashes in front.
    """
    plain = name.lower().replace("_", "-")
    others = {word for option in OPTIONS.values() for word in option.also.split()}
    words = {plain, *difflib.get_close_matches(plain, others, n=1, cutoff=0.85)}
    meant = [pattern for pattern, option in OPTIONS.items() if words & set(option.also.split())]
    found = [option for pattern in meant for option in matching(known, pattern)]
    return list(dict.fromkeys(found + difflib.get_close_matches(plain, known, n=5)))
