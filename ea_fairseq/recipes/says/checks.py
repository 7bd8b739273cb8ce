"""Checks a recipe's options against the parsers of fairseq's commands, and against its corpus."""

from __future__ import annotations

import argparse
import difflib
import logging
import re
from pathlib import Path
from typing import Any

from ...corpus.config import Corpus
from ...fairseq_options.checks import check_settable, check_together
from ...fairseq_options.table import near
from .averaging import KEPT_BY, limit
from .recipe import Recipe
from .tasks import LANGUAGE_MODELING, TRANSLATION

#: Sections that hold options of a command of fairseq's -> the command. A translation's scores are
#: our own.
COMMANDS = {"train": "train", "generate": "generate", "evaluate": "eval-lm"}
_OWN = ("evaluate", TRANSLATION)

#: Options that decide which further options exist.
_CHOICES = ("task", "arch", "criterion", "optimizer", "lr-scheduler", "scoring")


def as_arguments(options: dict[str, Any]) -> list[str]:
    """Options as command-line arguments: true becomes a flag, false and null are left out.

    One word each: of two, fairseq would take a value such as ``--user-dir=...`` for an option.
    """
    arguments = []
    for name, value in options.items():
        if value is True:
            arguments.append(f"--{name}")
        elif value is not False and value is not None:
            arguments.append(f"--{name}={value}")
    return arguments


def check_recipe(recipe: Recipe, corpus: Corpus) -> None:
    """Check a recipe against fairseq's own parsers, and against its corpus.

    Raises:
        ValueError: naming the file, the option and its value, and what to choose.
    """
    check_options(recipe, recipe.user_dir)
    _check_task(recipe, corpus)
    if recipe.task is TRANSLATION:
        _check_subwords(recipe, corpus)
        _check_case(recipe, corpus)
    _check_saved(recipe)
    _check_average(recipe)


def check_options(recipe: Recipe, user_dir: Path) -> None:
    """Check the sections of a recipe that hold options of fairseq's commands.

    Raises:
        ValueError: an option that fairseq does not have with this task, architecture, criterion,
            optimizer and scheduler, or that a recipe may not set (see fairseq_options/table.py); or
            a value that fairseq's parser refuses.
    """
    if "arch" not in recipe.options("train"):
        raise ValueError(f"{recipe.file}: no 'train: arch': choose a recipe that names a model")
    for section in COMMANDS:
        if section in recipe.task.sections and (section, recipe.task) != _OWN:
            _check_section(recipe, section, user_dir)


def _check_subwords(recipe: Recipe, corpus: Corpus) -> None:
    """Check that the recipe makes words of the corpus' subwords before it scores them."""
    fitting = [corpus.post_process]
    fitting += ["@@ ", "@@"] if corpus.subword == "bpe" else []  # other names of the same
    generate, train = recipe.options("generate"), recipe.options("train")
    given = {"generate: post-process": generate.get("post-process", generate.get("remove-bpe"))}
    if train.get("eval-bleu"):
        given["train: eval-bleu-remove-bpe"] = train.get("eval-bleu-remove-bpe")
    for name, value in given.items():
        # A bare --remove-bpe is subword-nmt's.
        value = "subword_nmt" if value is True else value
        if value not in fitting:
            raise ValueError(
                f"{recipe.file}: '{name}' must be {fitting[0]} for a corpus with subword: "
                f"{corpus.subword}, not {value}: pieces of words would be scored"
            )


def _check_case(recipe: Recipe, corpus: Corpus) -> None:
    """Check that translations in small letters are not compared with references as they are."""
    if corpus.tokenize.lowercase and recipe.options("evaluate").get("lowercase") is not True:
        raise ValueError(
            f"{recipe.file}: 'evaluate: lowercase' must be true for a corpus with tokenize: "
            "{lowercase: true}: each capital letter of the references would count as a mistake"
        )


def _check_saved(recipe: Recipe) -> None:
    """Check that the training keeps what is averaged or scored."""
    train = recipe.options("train")
    without = {"no-save": "there would be no model to score"}
    if recipe.sections["average"] is None:
        without["disable-validation"] = "average: null takes the best checkpoint, and none is best"
    elif recipe.options("average").get("num-epoch-checkpoints"):
        without["no-epoch-checkpoints"] = "'average: num-epoch-checkpoints' takes those of epochs"
    for option, reason in without.items():
        if train.get(option):
            raise ValueError(f"{recipe.file}: 'train: {option}' is true: {reason}")


def _check_average(recipe: Recipe) -> None:
    """Check that there is something to average, and that it is the best checkpoints, not the worst.

    Training and averaging must agree about which end of the metric is the best.
    """
    if recipe.sections["average"] is None:
        return
    average, option = recipe.options("average"), "maximize-best-checkpoint-metric"
    given = [name for name in KEPT_BY if average.get(name)]
    if len(given) != 1:
        raise ValueError(
            f"{recipe.file}: 'average' has {' and '.join(given) or 'no number of checkpoints'}: "
            f"give one of {', '.join(KEPT_BY)} (and null for the others), or average: null"
        )
    if given != ["num-best-checkpoints"]:
        return
    if not limit(recipe.options("train").get("keep-best-checkpoints")):
        raise ValueError(
            f"{recipe.file}: 'average: num-best-checkpoints' is {average[given[0]]}, and the "
            "training keeps no best checkpoints: give 'train: keep-best-checkpoints'"
        )
    train, best = (bool(recipe.options(section).get(option)) for section in ("train", "average"))
    if train != best:
        raise ValueError(
            f"{recipe.file}: 'average: {option}' is {str(best).lower()}, and 'train: {option}' "
            f"{str(train).lower()}: the worst checkpoints would be averaged; give both the same"
        )


def _check_task(recipe: Recipe, corpus: Corpus) -> None:
    """Check that corpus and model are for the recipe's task."""
    wanted = LANGUAGE_MODELING if corpus.language else TRANSLATION
    if recipe.task is not wanted:
        found = ", ".join(f"{key}: {value}" for key, value in corpus.named_languages.items())
        raise ValueError(
            f"{recipe.file}: 'train: task' is {recipe.task.name}, and {recipe.corpus} has {found}: "
            f"choose task {wanted.name}, or another corpus"
        )
    _check_model(recipe)
    if recipe.task is LANGUAGE_MODELING:
        _check_blocks(recipe)


def _check_model(recipe: Recipe) -> None:
    from fairseq.models import ARCH_MODEL_REGISTRY, FairseqLanguageModel

    arch = recipe.options("train")["arch"]
    is_language_model = issubclass(ARCH_MODEL_REGISTRY[arch], FairseqLanguageModel)
    if is_language_model != (recipe.task is LANGUAGE_MODELING):
        kind = "is a language model" if is_language_model else "is no language model"
        raise ValueError(
            f"{recipe.file}: 'train: arch' {arch} {kind}, and 'train: task' is {recipe.task.name}: "
            f"choose {recipe.task.baseline}, {recipe.task.evolving}, ..."
        )


def _check_blocks(recipe: Recipe) -> None:
    """Check that a language model can read the blocks of text that it is scored on."""
    train, evaluate = recipe.options("train"), recipe.options("evaluate")
    positions = limit(train.get("max-target-positions")) or limit(train.get("tokens-per-sample"))
    # 1024 is fairseq's default of both.
    positions, blocks = positions or 1024, limit(evaluate.get("tokens-per-sample")) or 1024
    context = limit(evaluate.get("context-window")) or 0
    if blocks > positions:
        raise ValueError(
            f"{recipe.file}: 'evaluate: tokens-per-sample' is {blocks}, and the model reads "
            f"{positions} tokens ('train: max-target-positions' or 'tokens-per-sample')"
        )
    if context and evaluate.get("sample-break-mode") == "eos":
        raise ValueError(
            f"{recipe.file}: 'evaluate: context-window' is {context}, and blocks of one line "
            "('sample-break-mode: eos') see nothing before them: choose none or complete"
        )
    if context >= blocks:
        raise ValueError(
            f"{recipe.file}: 'evaluate: context-window' is {context} of {blocks} tokens "
            "('tokens-per-sample'): no token would be scored"
        )


def _check_section(recipe: Recipe, section: str, user_dir: Path) -> None:
    options = recipe.options(section)
    for name, value in options.items():
        if not isinstance(value, str | int | float | None):
            where = f"{recipe.origin[section, name]}: '{section}: {name}'"
            raise ValueError(f"{where} is {value!r}: expected text or a number")
    known = known_options(recipe, section, user_dir)
    for name, value in options.items():
        where = f"{recipe.origin[section, name]}: '{section}: {name}'"
        action = known.get(f"--{name}")
        if action is None:
            meant = near(name, [option.removeprefix("--") for option in known])
            hint = f"nearest: {', '.join(meant)}; " if meant else ""
            raise ValueError(
                f"{where} is not an option of fairseq-{COMMANDS[section]} with this recipe's "
                f"choices ({hint}see {_help(recipe, section, user_dir)})"
            )
        if action.nargs == 0 and not isinstance(value, bool):
            raise ValueError(f"{where} is a switch: choose from true, false; not {value!r}")
        if action.nargs not in (0, "?") and isinstance(value, bool):
            leave = "" if value else ": write null to leave it out"
            raise ValueError(f"{where} takes a value, not {str(value).lower()}{leave}")
        check_settable(action, value, where)
    words = _fixed(section, user_dir) + as_arguments(options)
    args = _parse(_parser(section), words, recipe, section)
    check_together(args, f"{recipe.file}: '{section}'")


def _help(recipe: Recipe, section: str, user_dir: Path) -> str:
    """The command that lists the options that there are."""
    arch = f" --arch {recipe.options('train')['arch']}" if section == "train" else ""
    return f"fairseq-{COMMANDS[section]} --user-dir {user_dir}{arch} --help"


def known_options(recipe: Recipe, section: str, user_dir: Path) -> dict[str, argparse.Action]:
    """The options that fairseq has with a recipe's choices, by name with its two dashes.

    Raises:
        ValueError: it does not have one of the choices.
    """
    options = recipe.options(section)
    choosing = {name: options[name] for name in _CHOICES if name in options}
    # A first parse with the choices alone teaches the parser which options belong to them.
    parser = _parser(section)
    for name in choosing:
        _check_choice(parser, recipe, section, name)
    _parse(parser, _fixed(section, user_dir) + as_arguments(choosing), recipe, section)
    return parser._option_string_actions


def _fixed(section: str, user_dir: Path) -> list[str]:
    """What the runner itself passes, as far as the parser needs it."""
    fixed = ["data", "--user-dir", str(user_dir)]
    return fixed if section == "train" else [*fixed, "--path", "model.pt"]


def _check_choice(parser: Any, recipe: Recipe, section: str, name: str) -> None:
    """Refuse an unknown architecture, task, ... with the nearest of fairseq's many."""
    action = parser._option_string_actions.get(f"--{name}")
    value = recipe.options(section)[name]
    if action is None or action.choices is None or value in action.choices:
        return
    choices = sorted(action.choices)
    like = difflib.get_close_matches(str(value), choices, n=8, cutoff=0.3) or choices[:8]
    raise ValueError(
        f"{recipe.origin[section, name]}: '{section}: {name}' is {value!r} "
        f"(choose from {', '.join(like)}, ...; fairseq-{COMMANDS[section]} --help lists all "
        f"{len(choices)})"
    )


def _parser(section: str) -> argparse.ArgumentParser:
    from fairseq import options

    make = {
        "train": options.get_training_parser,
        "generate": options.get_generation_parser,
        "evaluate": options.get_eval_lm_parser,
    }
    return make[section]()


def _parse(
    parser: argparse.ArgumentParser, arguments: list[str], recipe: Recipe, section: str
) -> argparse.Namespace:
    from fairseq import options

    def refuse(message: str) -> None:
        # argparse starts with "argument --dropout: ..."; name the file that has the option.
        named = re.match(r"argument (?:-\w/)?--([\w-]+)", message)
        file = recipe.origin.get((section, named[1])) if named else None
        raise ValueError(f"{file or recipe.file}: '{section}': {message}")

    parser.error = refuse  # argparse would print its usage, several screens of it, and exit
    return options.parse_args_and_arch(parser, arguments)


def model_options(recipe: Recipe) -> dict[str, Any]:
    """Those of the recipe's training options that belong to its architecture."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    options = recipe.options("train")
    parser = argparse.ArgumentParser(add_help=False)
    ARCH_MODEL_REGISTRY[options["arch"]].add_args(parser)
    return {
        name: value
        for name, value in options.items()
        if f"--{name}" in parser._option_string_actions and value not in (False, None)
    }


def load_plugin(user_dir: Path) -> None:
    """Import the plugin, so that fairseq's parsers know its architectures."""
    logging.disable(logging.INFO)  # what fairseq's modules have to say when they are imported
    try:
        from fairseq import utils

        utils.import_user_module(argparse.Namespace(user_dir=str(user_dir)))
    finally:
        logging.disable(logging.NOTSET)
