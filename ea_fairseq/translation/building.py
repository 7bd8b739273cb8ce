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

from ..compat.checkpoint_fit import describe_mismatch
from ..errors import UserError
from .model_folder import LANGUAGE_MODELING, TRANSLATION, WEIGHTS, ModelFolder

#: Task of fairseq's -> what its models are, and that in words.
_KINDS = {
    TRANSLATION: (FairseqEncoderDecoderModel, "model with an encoder and a decoder"),
    LANGUAGE_MODELING: (FairseqLanguageModel, "language model"),
}
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
    names = _option_names(arch)
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
    names = _option_names(arch)
    for name, value in options.items():
        if name not in names:
            raise UserError(f"{name} is no option of {arch}")
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str | bool | int | float) for item in items):
            raise UserError(f"option {name} of {arch} is {value!r}: expected a number or a word")
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
    # What the options say is not what the model understands.
    except (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        raise UserError(f"cannot build {arch} with these options ({type(e).__name__}: {e})") from e
    kind, words = _KINDS[task]
    if not isinstance(model, kind):
        raise UserError(f"{arch} is no {words}")
    return model


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
    for name, value in state.items():
        if value.is_floating_point() and not value.isfinite().all():
            raise UserError(f"{path}: {name} has values that are NaN or infinite")
    try:
        model.load_state_dict(state, strict=True)
    except (RuntimeError, LookupError) as error:
        reason = describe_mismatch(str(error)) or f"{type(error).__name__}: {error}"
        raise UserError(f"{path} does not fit the model: {reason}") from error


def unshared_weights(model: torch.nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; of those that share their memory, the first."""
    repeated = {name for _, *others in shared_names(model) for name in others}
    return {name: value for name, value in model.state_dict().items() if name not in repeated}


def shared_names(model: torch.nn.Module) -> Iterator[list[str]]:
    """Names of parameters and buffers that share their memory, group by group."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, value in model.state_dict().items():
        if value.numel():
            memory = (value.data_ptr(), value.shape, value.stride())
            groups.setdefault(memory, []).append(name)
    return (names for names in groups.values() if len(names) > 1)


def _option_names(arch: str) -> set[str]:
    if arch not in ARCH_MODEL_REGISTRY:
        raise UserError(f"architecture {arch!r} is not known to fairseq and ea_fairseq")
    parser = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    try:
        ARCH_MODEL_REGISTRY[arch].add_args(parser)
    except argparse.ArgumentError:  # of a model that adds an option of its parent again
        raise UserError(f"architecture {arch!r} does not say what options it has") from None
    # In older checkpoints and in plain Transformers these are the task's.
    positions = {"max_source_positions", "max_target_positions"}
    return ({action.dest for action in parser._actions} | positions) - _LEFT_OUT
