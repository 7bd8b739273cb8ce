"""fairseq's models out of plain options and weights."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fairseq.tasks  # noqa: F401  (before this module may know the models)
import torch
from fairseq.data import Dictionary
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_REGISTRY,
    FairseqEncoderDecoderModel,
    FairseqLanguageModel,
)
from torch import Tensor

from ..checkpoints.finite_weights import unusable_weight
from ..checkpoints.mismatch import describe_mismatch
from ..errors import REMEDY, UserError
from ..fairseq_options.checks import check_numbers
from ..files import shortened
from .model_folder import LANGUAGE_MODELING, TRANSLATION, WEIGHTS, ModelFolder

#: Task of fairseq's -> what its models are, and that in words.
_KINDS = {
    TRANSLATION: (FairseqEncoderDecoderModel, "model with an encoder and a decoder"),
    LANGUAGE_MODELING: (FairseqLanguageModel, "language model"),
}
#: The largest numbers of options: what is larger takes the memory, or for ever, before it fails.
_MOST, _MOST_LAYERS = 1_000_000, 1000
# In older checkpoints and in plain Transformers these are the task's options, not the model's.
_POSITIONS = ("max_source_positions", "max_target_positions")
Model = FairseqEncoderDecoderModel | FairseqLanguageModel

# Options that say how to train, or name a file to read: no part of a model that is there.
_LEFT_OUT = frozenset(
    [
        *("help", "checkpoint_activations", "offload_activations", "min_params_to_wrap"),
        *("encoder_embed_path", "decoder_embed_path"),
        *("encoder_layers_to_keep", "decoder_layers_to_keep"),
    ]
)


def model_options(arch: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Those of a training's settings that the architecture's model is built of.

    Raises:
        UserError: naming the architecture, if fairseq does not know it, or an option of ours of
            another version, whose effect would be lost.
    """
    names = _options(arch)
    for name, value in sorted(settings.items()):
        if name.startswith("ea_") and value is not None and name not in names:
            raise UserError(f"{name} = {value!r} is no option of this version of ea_fairseq")
    return {
        name: value
        for name, value in sorted(settings.items())
        if name in names and value is not None and value != ""
    }


def build_model(
    arch: str,
    options: dict[str, Any],
    dictionaries: tuple[Dictionary, Dictionary],
    task: str = TRANSLATION,
) -> Model:
    """A model with fresh weights.

    Args:
        arch: the architecture
        options: as `model_options` gives them: numbers, words, and lists of numbers
        dictionaries: source and target
        task: fairseq's name of it

    Raises:
        UserError: naming what fairseq or the architecture does not know or cannot build.
    """
    known = _options(arch)
    for name, value in options.items():
        if name not in known:
            raise UserError(f"{name} is no option of {arch}")
        _check_option(name, value, known[name], f"option {name} of {arch}")
    # fairseq's LSTM asks for the criterion before it builds an adaptive softmax.
    criterion = "adaptive_loss" if options.get("adaptive_softmax_cutoff") else "cross_entropy"
    args = argparse.Namespace(arch=arch, criterion=criterion, **options)
    source, target = dictionaries
    # fairseq's LSTM wants a language model's by a name of its own.
    given = SimpleNamespace(source_dictionary=source, target_dictionary=target, dictionary=source)
    try:
        ARCH_CONFIG_REGISTRY[arch](args)
        _complete(args, ARCH_MODEL_REGISTRY[arch])
        model = ARCH_MODEL_REGISTRY[arch].build_model(args, given)
    except UserError:
        raise
    # What the options say is not what the model understands; some of fairseq's raise Exception.
    except Exception as e:
        reason = shortened(" ".join(str(e).split()), 300)
        raise UserError(
            f"cannot build {arch} with these options ({type(e).__name__}: {reason})"
        ) from e
    kind, words = _KINDS[task]
    if not isinstance(model, kind):
        raise UserError(f"{arch} is no {words}")
    return model


def _check_option(name: str, value: Any, action: argparse.Action | None, where: str) -> None:
    """Refuses what is no value of an option, before anything is built of it.

    Args:
        name: of the option
        value: a number, a word, or a list of them
        action: the option in its model's parser; None where that does not know it
        where: what messages call it

    Raises:
        UserError: naming the option, its value and what is expected.
    """
    items = value if isinstance(value, list) else [value]
    kind = int if name in _POSITIONS else getattr(action, "type", None)
    most = _MOST_LAYERS if name.endswith("_layers") else _MOST
    expected = None
    if not all(isinstance(item, str | bool | int | float) for item in items):
        expected = "expected a number or a word"
    elif isinstance(getattr(action, "const", None), bool) and type(value) is not bool:
        expected = "choose true or false"
    # fairseq's architectures have False for some numbers that are off.
    elif kind is int and type(value) is not int and (value is not False or name in _POSITIONS):
        expected = "expected a whole number"
    elif kind is float and type(value) not in (int, float) and value is not False:
        expected = "expected a number"
    elif any(type(item) is int and abs(item) > most for item in items):
        expected = f"expected at most {most:,}"
    if expected is not None:
        raise UserError(f"{where} is {shortened(repr(value), 60)}: {expected}")
    try:
        check_numbers(name.replace("_", "-"), value, where)
    except ValueError as error:
        raise UserError(str(error)) from None


def _complete(args: argparse.Namespace, kind: type) -> None:
    """Gives options that neither the settings nor the architecture name the model's defaults."""
    described = getattr(kind, "__dataclass", None)
    for item in fields(described) if described is not None else ():
        # A reference to another section of the settings, ${task...}, is no default.
        found = None if str(item.default).startswith("${") else item.default
        if item.default is not MISSING and not hasattr(args, item.name):
            setattr(args, item.name, found)


def load_dictionary(path: Path) -> Dictionary:
    """One of fairseq's dictionaries.

    Raises:
        UserError: naming the file, if it is missing or no dictionary.
    """
    try:
        return Dictionary.load(str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # fairseq raises all kinds, plain Exception too
        raise UserError(f"{path}: no dictionary of fairseq's: {error}") from error


def load_model(
    folder: ModelFolder,
) -> tuple[Model, tuple[Dictionary, Dictionary]]:
    """A folder's model, in evaluation mode and float32 on the CPU, and its dictionaries.

    Raises:
        UserError: naming the folder, if its files do not fit each other.
    """
    source, target = folder.dictionaries
    dictionaries = load_dictionary(source), load_dictionary(target)
    config = folder.config
    try:
        model = build_model(config.arch, config.options, dictionaries, config.task)
    except UserError as error:
        raise UserError(f"{folder.path}: {error}") from error
    state = folder.weights()
    for first, *others in shared_names(model):
        if first in state:
            state.update({name: state[first] for name in others})
    load_weights(model, state, folder.path / WEIGHTS)
    return model.eval(), dictionaries


def load_weights(model: Model, state: dict[str, Tensor], path: str | Path) -> None:
    """Gives a model its weights.

    Raises:
        UserError: naming the file, if they do not fit or are no finite numbers.
    """
    if bad := unusable_weight(state):
        raise UserError(f"{path}: {bad}")
    try:
        model.load_state_dict(state, strict=True)
    except Exception as error:  # some of fairseq's models raise just that
        reason = describe_mismatch(str(error)) or f"{type(error).__name__}: {error}"
        raise UserError(f"{path} does not fit the model: {reason}") from error


def unshared_weights(model: torch.nn.Module) -> dict[str, Tensor]:
    """Parameters (torch.nn.Parameter) and buffers by name; of those that share their memory, the
    first."""
    repeated = {name for _, *others in shared_names(model) for name in others}
    state = model.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if name not in repeated}


def shared_names(model: torch.nn.Module) -> Iterator[list[str]]:
    """Names of parameters and buffers that share their memory, group by group."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, value in model.state_dict().items():
        if value.numel():
            memory = (value.data_ptr(), value.shape, value.stride())
            groups.setdefault(memory, []).append(name)
    return (names for names in groups.values() if len(names) > 1)


def _options(arch: str) -> dict[str, argparse.Action | None]:
    """An architecture's options, as its parser knows them."""
    if arch not in ARCH_MODEL_REGISTRY:
        raise UserError(f"architecture {arch!r} is not known to fairseq and ea_fairseq: {REMEDY}")
    parser = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    try:
        ARCH_MODEL_REGISTRY[arch].add_args(parser)
    except argparse.ArgumentError:  # of a model that adds an option of its parent again
        raise UserError(f"architecture {arch!r} does not say what options it has") from None
    found = dict.fromkeys(_POSITIONS) | {action.dest: action for action in parser._actions}
    return {name: action for name, action in found.items() if name not in _LEFT_OUT}
