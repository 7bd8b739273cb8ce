"""Between fairseq's checkpoints and model folders."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fairseq.tasks  # noqa: F401  (before this module may know the models)
from fairseq import checkpoint_utils, options
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY
from omegaconf import OmegaConf

from ..checkpoints.text_identity import KEY, check, identity_of, identity_of_checkpoint
from ..checkpoints.writing import save_checkpoint_file
from ..errors import UserError
from ..files import new_folder
from .build_model import (
    Model,
    build_model,
    load_dictionary,
    load_model,
    load_weights,
    model_options,
)
from .model_folder import LANGUAGE_MODELING, TASKS, TRANSLATION, ModelFolder

CHECKPOINT = "model.pt"


class TrainedModel:
    """The model of a checkpoint of fairseq's tasks translation and language_modeling.

    Attributes:
        task: one of `TASKS`
        arch: the architecture
        options: the model's options
        languages: source and target; None of a language model, which does not know its own
        dictionaries: files of source and target; of a language model the same
        words: the dictionaries
        model: in evaluation mode, with the checkpoint's weights in float32

    Args:
        path: the checkpoint
        data: folder of the dictionaries (and binarized data); default: the one trained on
        languages: source and target; default: those of the checkpoint or of the data

    Raises:
        UserError: naming the file or what is missing.
    """

    def __init__(
        self,
        path: Path,
        data: Path | None = None,
        languages: tuple[str | None, str | None] = (None, None),
    ):
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
        cfg = state.get("cfg")
        task, model = (_settings(cfg, name) for name in ("task", "model"))
        self.task = task.get("_name")
        if self.task not in TASKS:
            raise UserError(f"{path}: of the task {self.task!r}: none of {', '.join(TASKS)}")
        folder = Path(data or str(task.get("data") or "").split(":")[0])
        if not folder.is_dir():
            raise UserError(
                f"{path}: {folder} is no folder: give that of the dictionaries (--data)"
            )
        self.languages: tuple[str, str] | None = None
        if self.task == LANGUAGE_MODELING:
            _check_language_model(path, task, languages)
            source = target = folder / "dict.txt"
        else:
            self.languages = _languages(path, folder, task, languages)
            source, target = (folder / f"dict.{language}.txt" for language in self.languages)
        self.dictionaries = source, target
        self.arch = str(model.get("arch") or model.get("_name"))
        # Older checkpoints keep the lengths with the task alone.
        lengths = {name: task[name] for name in _LENGTHS if task.get(name) is not None}
        try:
            self.options = model_options(self.arch, {**lengths, **model})
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        if self.task == LANGUAGE_MODELING:  # by default it has those of a block of its text
            self.options.setdefault("max_target_positions", task.get("tokens_per_sample"))
        self.words = loaded = load_dictionary(source), load_dictionary(target)
        # Another's numbers would be another text, without an error.
        sides = dict(zip(("source_dictionary", "target_dictionary"), loaded, strict=True))
        spoken = dict(zip(("source_lang", "target_lang"), self.languages or (), strict=False))
        asked = SimpleNamespace(cfg=SimpleNamespace(**spoken), **sides)
        check(str(path), identity_of_checkpoint(state), asked)
        try:
            self.model = build_model(self.arch, self.options, loaded, self.task).eval()
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        # In float32, in which they are used; whole numbers as they are.
        weights = {k: v.float() if v.is_floating_point() else v for k, v in state["model"].items()}
        load_weights(self.model, weights, path)


_LENGTHS = ("max_source_positions", "max_target_positions")


def _settings(cfg: Any, name: str) -> dict[str, Any]:
    """A section of a checkpoint's settings: hydra's, a dictionary, or a namespace."""
    section = cfg.get(name) if cfg is not None else None
    if isinstance(section, argparse.Namespace):
        return vars(section)
    if OmegaConf.is_config(section):
        return OmegaConf.to_container(section, resolve=True)
    return dict(section) if isinstance(section, Mapping) else {}


def _languages(
    path: Path, folder: Path, task: dict[str, Any], given: tuple[str | None, str | None]
) -> tuple[str, str]:
    trained = task.get("source_lang"), task.get("target_lang")
    if None not in trained and given == trained[::-1]:
        raise UserError(
            f"{path}: --source-lang {given[0]}, --target-lang {given[1]}: translates from "
            f"{trained[0]} to {trained[1]}: give them in this order, or not at all"
        )
    in_data = data_utils.infer_language_pair(str(folder))
    pairs = [given, trained, in_data]
    source, target = (next(filter(None, names), None) for names in zip(*pairs, strict=True))
    if source is None or target is None:
        raise UserError(f"{path}: does not say its languages: give --source-lang, --target-lang")
    return source, target


def _check_language_model(
    path: Path, task: dict[str, Any], languages: tuple[str | None, str | None]
) -> None:
    """Refuse what a model folder has no word for."""
    if any(languages):
        raise UserError(f"{path}: holds a language model: give --language, no source and target")
    others = {
        "--add-bos-token": task.get("add_bos_token"),
        "--output-dictionary-size": (task.get("output_dictionary_size") or -1) >= 0,
        "--self-target": task.get("self_target"),
        "--past-target": task.get("past_target"),
    }
    for option in (name for name, given in others.items() if given):
        raise UserError(f"{path}: was trained with {option}, which a model folder does not know")


def write_fairseq_folder(folder: ModelFolder, path: Path) -> None:
    """Writes a model folder's model as fairseq-generate and fairseq-train take it.

    Args:
        folder: the model
        path: new folder of model.pt, the dictionaries, and the codes

    Raises:
        UserError: if something has that name.
    """
    if path.exists():
        raise UserError(f"{path}: is there already; choose another name")
    model, dictionaries = load_model(folder)
    with new_folder(path) as new:
        save_checkpoint_file(_state(folder, model, dictionaries, path), str(new / CHECKPOINT))
        names = [*folder.config.dictionaries, folder.config.codes]
        for name in filter(None, names):
            shutil.copyfile(folder.path / name, new / name)


def _state(
    folder: ModelFolder,
    model: Model,
    dictionaries: tuple[Dictionary, Dictionary],
    path: Path,
) -> dict[str, Any]:
    """A checkpoint's content as fairseq's trainer writes it, but for the state of a training."""
    config = folder.config
    arguments = [str(path.absolute()), "--task", config.task, "--arch", config.arch]
    languages: list[str | None] = [None, None]
    if config.task == TRANSLATION:
        languages = [config.text.source_lang, config.text.target_lang]
        arguments += ["--source-lang", languages[0], "--target-lang", languages[1]]
    else:
        arguments += ["--tokens-per-sample", str(model.max_positions())]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    # The parser has filled in what the architecture says of options that were not given.
    completed = argparse.Namespace(**config.options)
    ARCH_CONFIG_REGISTRY[config.arch](completed)
    vars(args).update(vars(completed))
    cfg = convert_namespace_to_omegaconf(args)
    return {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": model.state_dict(),
        "criterion": None,
        "optimizer_history": [
            {
                "criterion_name": "",
                "optimizer_name": "",
                "lr_scheduler_state": {},
                "num_updates": 0,
            }
        ],
        "task_state": {},
        "extra_state": {
            "train_iterator": {"epoch": 1},
            "val_loss": None,
            KEY: {
                "source": identity_of(dictionaries[0], languages[0]),
                "target": identity_of(dictionaries[1], languages[1]),
            },
        },
        "last_optimizer_state": None,
    }
