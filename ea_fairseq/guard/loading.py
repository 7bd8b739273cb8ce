"""Reads checkpoints safely, and refuses those of another model or another text.

Replaced in fairseq:
- ``checkpoint_utils.torch``: every ``torch.load`` of that module leaves the choice of unpickler to
  torch's default, which an environment variable can turn off, and none checks the file. The
  module sees torch with `reading.load` instead.
- ``eval`` in every module of fairseq, which passes option strings such as ``--adam-betas
  "(0.9, 0.98)"`` or ``fconv``'s ``--encoder-layers "[(512, 3)] * 20"`` to it. A checkpoint carries
  such strings too, and chooses the model whose options they are: a file made of nothing but strings
  and tensors would run any code as soon as its model is built. They are read as values.
- ``checkpoint_utils.load_checkpoint_to_cpu``: a training compares the checkpoint's model, languages
  and dictionaries with its own, before any weight is loaded. ``--finetune-from-model`` may go on to
  other languages, with a warning, but not to other dictionaries. Errors inside a file get its name.
- ``checkpoint_utils.load_model_ensemble_and_task``, ``FairseqTask.build_model`` and
  ``LegacyFairseqTask.build_model`` (of language models): compare languages and dictionaries where a
  model is built to translate, to be scored or to be validated, and whether texts begin with ``<s>``
  as in training (``--add-bos-token``). ``--model-overrides`` cannot name another variant.
- ``models.build_model``: of a model that nobody has registered it says "IndexError: Replacement
  index 1".
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq import checkpoint_utils, models
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.tasks.fairseq_task import FairseqTask, LegacyFairseqTask
from fairseq.trainer import Trainer

from ..checkpoints import model_identity, reading, text_identity
from ..checkpoints.literals import literal
from ..checkpoints.mismatch import describe_mismatch
from ..errors import REMEDY, UserError
from .around import around, module_with

checkpoint_utils.torch = module_with(torch, load=reading.load)

for _package in ("criterions", "models", "optim", "tasks", "utils"):
    importlib.import_module(f"fairseq.{_package}")  # these import every module below them
for _name, _module in list(sys.modules.items()):
    if _name.startswith("fairseq.") and _module is not None and "eval" not in vars(_module):
        _module.eval = literal  # type: ignore[attr-defined]


class _Read:
    """What is kept of a checkpoint until its model is built."""

    def __init__(self, path: str, state: dict[str, Any]):
        self.path, self.text = path, text_identity.identity_of_checkpoint(state)
        self.begins = reading.setting(state, "task", "add_bos_token")

    def compare(self, task: Any) -> None:
        """Refuses a task of other languages, dictionaries or beginnings of texts."""
        text_identity.check(self.path, self.text, task)
        self.compare_beginnings(task)

    def compare_beginnings(self, task: Any) -> None:
        """Refuses a task whose texts begin otherwise."""
        begins = getattr(getattr(task, "args", None), "add_bos_token", None)
        if None not in (begins, self.begins) and begins != self.begins:
            how, remedy = (
                ("with", "give it here") if self.begins else ("without", "leave it out here")
            )
            raise UserError(
                f"checkpoint {self.path} was trained {how} --add-bos-token: {remedy} as well"
            )


@dataclass
class Loading:
    """The loading of a checkpoint that goes on in this process.

    Attributes:
        trainer: that asked for it; None where no training does
        goes_on: whether the training goes on with its optimizer's state
        read: the checkpoint whose model is built next
    """

    trainer: Trainer | None = None
    goes_on: bool = False
    read: _Read | None = None


current = Loading()


@around(checkpoint_utils, "load_checkpoint_to_cpu")
def _load_checkpoint_to_cpu(original: Any, path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    try:
        state = original(path, *args, **kwargs)
    except (UserError, MemoryError, OSError):
        raise
    except Exception as error:  # entries of any shape may come out of the file
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{path} is not a usable fairseq checkpoint ({reason})") from error
    if current.trainer is None:
        current.read = _Read(path, state)
    else:
        cfg, task = current.trainer.cfg, current.trainer.task
        model_identity.compare_with_training(state, cfg, path, current.goes_on)
        known = text_identity.identity_of_checkpoint(state)
        finetuning = path == cfg.checkpoint.finetune_from_model
        text_identity.check(path, known, task, new_languages=finetuning)
        if current.goes_on:
            _Read(path, state).compare_beginnings(task)
    return state


@around(checkpoint_utils, "load_model_ensemble_and_task")
def _load_model_ensemble_and_task(
    original: Any,
    filenames: Sequence[str],
    arg_overrides: dict[str, Any] | None = None,
    task: Any = None,
    strict: bool = True,
    suffix: str = "",
    num_shards: int = 1,
    state: dict[str, Any] | None = None,
) -> tuple[list[Any], Any, Any]:
    assert state is None or len(filenames) == 1
    model_identity.refuse_overrides(filenames, arg_overrides or {})
    current.read = None if state is None else _Read(filenames[0], state)
    ensemble, cfg = [], None
    try:
        for filename in filenames:  # one file at a time, so that an error is about that file
            try:
                found, cfg, task = original(
                    [filename], arg_overrides, task, strict, suffix, num_shards, state
                )
            except UserError as error:
                if str(filename) in str(error):
                    raise
                raise UserError(f"checkpoint {filename}: {error}") from error
            except RuntimeError as error:
                raise refusal(filename, error) from error
            ensemble += found
    finally:
        current.read = None
    return ensemble, cfg, task


def refusal(filename: str, error: BaseException) -> BaseException:
    """The one line for an error of weights that do not fit; of another, the error itself."""
    reason = describe_mismatch(str(error))
    if reason is None:
        return error
    return UserError(f"checkpoint {filename} does not fit the model asked for: {reason}")


@around(FairseqTask, "build_model")
@around(LegacyFairseqTask, "build_model")
def _build_model(original: Any, self: FairseqTask, cfg: Any, from_checkpoint: bool = False) -> Any:
    if from_checkpoint and current.read is not None:
        read, current.read = current.read, None
        read.compare(self)
    return original(self, cfg, from_checkpoint)


@around(models, "build_model")
def _build_registered_model(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
    name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
    if name and not {name} & (ARCH_MODEL_REGISTRY.keys() | MODEL_DATACLASS_REGISTRY.keys()):
        variant = getattr(cfg, "ea_variant", None)
        of = f" (--ea-variant {variant})" if variant else ""
        raise UserError(f"architecture {name!r}{of} is not registered: {REMEDY}")
    return original(cfg, *args, **kwargs)
