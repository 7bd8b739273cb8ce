"""A checkpoint that does not fit the model asked for is refused in one line.

Replaced in fairseq:
- ``Trainer.load_checkpoint``: reports any mismatch as "please ensure that the architectures
  match", under a screen of tracebacks; and starts from scratch, without a word, when the file
  given with ``--restore-file`` does not exist.
- ``checkpoint_utils.load_checkpoint``: a traceback where the file of ``--finetune-from-model`` does
  not exist, or beside options that do not go with it.
- ``checkpoint_utils.load_model_ensemble_and_task``: a line for every parameter that differs, but
  none that names the file.
"""

from __future__ import annotations

import functools
import os
import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from ...errors import UserError
from .safe_loading import read_checkpoint

# The lines of the error of torch's Module.load_state_dict.
_SIZE = re.compile(
    r"size mismatch for (\S+): copying a param with shape torch\.Size\(\[([^\]]*)\]\) from"
    r" checkpoint, the shape in current model is torch\.Size\(\[([^\]]*)\]\)"
)
# What has a row for each entry of a dictionary.
_BY_ENTRY = re.compile(r"(encoder|decoder)\.(embed_tokens|output_projection)\.weight")
_KEYS = re.compile(r"(Missing|Unexpected) key\(s\) in state_dict: (.*)")


def describe_mismatch(message: str) -> str | None:
    """One line for the error of ``load_state_dict``; None if it is no such error.

    The first parameter of another shape stands for all, or else the first one that only the
    checkpoint or only the model has. Embeddings that differ in their number of rows alone are
    those of another dictionary.
    """
    sizes = _SIZE.findall(message)
    keys = {kind: names.rstrip(". ").split(", ") for kind, names in _KEYS.findall(message)}
    count = len(sizes) + sum(len(names) for names in keys.values())
    if sizes:
        name, in_checkpoint, in_model = sizes[0]
        rows = [shape.split(", ") for shape in (in_checkpoint, in_model)]
        embedding = _BY_ENTRY.fullmatch(name)
        if embedding and rows[0][0] != rows[1][0] and rows[0][1:] == rows[1][1:]:
            side = "source" if embedding[1] == "encoder" else "target"
            return (
                f"the {side} dictionary of the data has {rows[1][0]} entries, that of the"
                f" checkpoint {rows[0][0]}; use the dict.*.txt that it was trained with"
            )
        first = f"{name} is ({in_checkpoint}) in the checkpoint and ({in_model}) in the model"
    elif "Missing" in keys:
        name = keys["Missing"][0].strip('"')
        first = f"the checkpoint lacks {name}"
    elif "Unexpected" in keys:
        name = keys["Unexpected"][0].strip('"')
        first = f"the model lacks {name}"
    else:
        return None
    return first + (f"; {count} parameters differ" if count > 1 else "")


def _refusal(path: str, error: BaseException | None) -> UserError:
    message = str(error)
    reason = describe_mismatch(message) or f"{type(error).__name__}: {message}"
    return UserError(f"checkpoint {path} does not fit the model asked for: {reason}")


def _refuse_another(option: str, filename: str, cfg: Any) -> None:
    """Refuses to go on with another architecture, criterion or optimizer than a checkpoint's."""
    section = "model" if option == "arch" else option
    stored = (read_checkpoint(filename).get("cfg") or {}).get(section)
    before, now = (_name(settings) for settings in (stored, cfg.get(section)))
    if before is not None and now is not None and before != now:
        raise UserError(
            f"checkpoint {filename} was trained with --{option} {before}, and {now} was asked for: "
            "give the same, or train anew in another --save-dir"
        )


def _name(settings: Any) -> str | None:
    """What a section is of: an architecture's name, or what fairseq calls the rest."""
    found = dict(settings) if isinstance(settings, Mapping) else vars(settings or Namespace())
    return found.get("arch") or found.get("_name")


def _resume(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_checkpoint(self: Trainer, filename: str, *args: Any, **kwargs: Any) -> Any:
        default = self.cfg.checkpoint.restore_file == "checkpoint_last.pt"
        if not default and not os.path.exists(filename):
            raise UserError(f"--restore-file {filename} does not exist")
        try:
            return original(self, filename, *args, **kwargs)
        except UserError:
            raise
        except AssertionError as error:  # another criterion or optimizer
            # Not fairseq's advice, to reset the optimizer: half of a training would be lost.
            for option in ("criterion", "optimizer"):
                _refuse_another(option, filename, self.cfg)
            raise UserError(f"checkpoint {filename}: {error}") from error
        except Exception as error:
            if type(error) is Exception and error.__context__ is not None:
                _refuse_another("arch", filename, self.cfg)
                raise _refusal(filename, error.__context__) from error
            raise

    return load_checkpoint


def _start(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_checkpoint(cfg: Any, *args: Any, **kwargs: Any) -> Any:
        pretrained = cfg.finetune_from_model
        if pretrained is not None:
            if cfg.restore_file != "checkpoint_last.pt":
                raise UserError(
                    f"--finetune-from-model {pretrained} and --restore-file {cfg.restore_file}:"
                    " give one of them"
                )
            for name in ("optimizer", "lr_scheduler", "meters", "dataloader"):
                if getattr(cfg, f"reset_{name}"):
                    option = f"--reset-{name.replace('_', '-')}"
                    raise UserError(f"{option}: --finetune-from-model resets it by itself")
            begun = os.path.exists(os.path.join(cfg.save_dir, "checkpoint_last.pt"))
            if not begun and not os.path.exists(pretrained):
                raise UserError(f"--finetune-from-model {pretrained} does not exist")
        return original(cfg, *args, **kwargs)

    return load_checkpoint


def _load_ensemble(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_model_ensemble_and_task(
        filenames: Sequence[str],
        arg_overrides: dict[str, Any] | None = None,
        task: Any = None,
        strict: bool = True,
        suffix: str = "",
        num_shards: int = 1,
        state: dict[str, Any] | None = None,
    ) -> tuple[list[Any], Any, Any]:
        assert state is None or len(filenames) == 1
        ensemble, cfg = [], None
        for filename in filenames:  # one file at a time, so that an error is about that file
            try:
                models, cfg, task = original(
                    [filename], arg_overrides, task, strict, suffix, num_shards, state
                )
            except OSError as error:
                if error.errno is not None:  # not fairseq's own "Model file not found"
                    raise
                raise UserError(str(error)) from error
            except RuntimeError as error:
                if describe_mismatch(str(error)) is None:
                    raise
                raise _refusal(filename, error) from error
            except UserError as error:
                if str(filename) in str(error):
                    raise
                raise UserError(f"checkpoint {filename}: {error}") from error
            # What the file says about the model is not what the model understands.
            except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise UserError(f"cannot build the model of {filename} ({reason})") from error
            ensemble += models
        return ensemble, cfg, task

    return load_model_ensemble_and_task


def install() -> None:
    """Make fairseq report this way."""
    Trainer.load_checkpoint = _resume(Trainer.load_checkpoint)
    checkpoint_utils.load_checkpoint = _start(checkpoint_utils.load_checkpoint)
    checkpoint_utils.load_model_ensemble_and_task = _load_ensemble(
        checkpoint_utils.load_model_ensemble_and_task
    )
