"""Refuses to load a checkpoint of one variant as another.

Weights alone do not tell: residual attention and evolving attention without convolutions have the
same. The checkpoint's settings do.

Replaced in fairseq:
- ``Trainer.load_checkpoint``: compares the shapes of parameters only. The comparison is made where
  it reads the file, in ``checkpoint_utils.load_checkpoint_to_cpu``.
- ``models.build_model``: of a model that nobody has registered it says "IndexError: Replacement
  index 1"; with ``--merge-src-tgt-embed`` it numbers the target's words otherwise than the data.
- ``checkpoint_utils.load_model_ensemble_and_task``: ``--model-overrides`` may name any variant.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from fairseq import checkpoint_utils, models
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.trainer import Trainer

from ...attention.configuration import PLAIN, EAOptions, ModelOptions, parse_chain
from ...errors import UserError
from ...user_dir import REMEDY
from .safe_loading import read_checkpoint

logger = logging.getLogger(__name__)

# The options that say what a model's attentions are.
_OPTIONS = ("ea_variant", *(f"ea_{item.name}" for item in fields(ModelOptions)))


def _built_of(settings: Any) -> dict[str, str] | None:
    """What a model's attentions are, by option; None for a plain Transformer."""
    if getattr(settings, "ea_variant", None) is None:
        return None
    beside = {f"ea_{item.name}": item.default for item in fields(ModelOptions)}
    return {
        "ea_variant": settings.ea_variant,
        **{name: getattr(settings, name, None) or default for name, default in beside.items()},
    }


def _same(option: str, one: str, other: str) -> bool:
    return parse_chain(one) == parse_chain(other) if option == "ea_variant" else one == other


def refuse_another_variant(stored: Any, wanted: Any, filename: str) -> None:
    """Compares the variants, and what goes with any variant, of two models.

    Args:
        stored: settings of the checkpoint's model; those of a plain Transformer fit all
        wanted: settings of the model asked for
        filename: the checkpoint

    Raises:
        UserError: naming the option and both values
    """
    before, now = _built_of(stored), _built_of(wanted)
    if before is None or now is None:
        return
    for option, value in before.items():
        if not _same(option, value, now[option]):
            raise UserError(
                f"checkpoint {filename} is of --{option.replace('_', '-')} {value}, and "
                f"{now[option]} was asked for: give the same, or train anew in another --save-dir"
            )


def _changed_options(stored: Any, wanted: Any) -> str:
    """The variant's options that differ, as ``--ea-alpha 0.1 -> 0.5``; empty if none do."""
    if getattr(stored, "ea_variant", None) is None:
        return ""
    before, now = (
        EAOptions.from_namespace(settings).as_given(whole=True) for settings in (stored, wanted)
    )
    return ", ".join(
        f"--{name.replace('_', '-')} {before.get(name)} -> {value}"
        for name, value in now.items()
        if name != "ea_variant" and before.get(name) != value
    )


def _settings(state: dict[str, Any]) -> Any:
    """The settings of a checkpoint's model, or None where it has none that can be read."""
    if state.get("cfg") is not None:
        return state["cfg"].get("model")
    return state.get("args")


def refuse_a_plain_training(stored: Any, wanted: Any, filename: str) -> None:
    """Refuses to go on with the training of a plain Transformer as with another model's: where that
    has the same parameters, nothing else would tell.

    Args:
        stored: settings of the checkpoint's model; None where it has none that can be read
        wanted: settings of the model asked for
        filename: the checkpoint

    Raises:
        UserError: naming the variant
    """
    now = _built_of(wanted)
    if stored is None or _built_of(stored) is not None or now is None:
        return
    beside = all(now[f"ea_{item.name}"] == item.default for item in fields(ModelOptions))
    if not (beside and set(parse_chain(now["ea_variant"]).values()) == {PLAIN}):
        raise UserError(
            f"checkpoint {filename} is of a plain Transformer, and --ea-variant "
            f"{now['ea_variant']} was asked for: begin with its weights by --finetune-from-model, "
            "or train anew, both in another --save-dir"
        )


#: Options that no parameter's shape tells, and with which a model computes something else.
_COMPUTED = (
    *("encoder_attention_heads", "decoder_attention_heads", "activation_fn"),
    *("no_scale_embedding", "no_token_positional_embeddings"),
)


def refuse_other_computations(stored: Any, wanted: Any, filename: str) -> None:
    """Refuses to take a checkpoint's weights for a model that computes something else with them.

    Args:
        stored: settings of the checkpoint's model; None where it has none that can be read
        wanted: settings of the model asked for; None where nobody asks
        filename: the checkpoint

    Raises:
        UserError: naming the option and both values
    """
    for name in _COMPUTED:
        before, now = (getattr(settings, name, None) for settings in (stored, wanted))
        if before is not None and now is not None and before != now:
            raise UserError(
                f"checkpoint {filename} was trained with --{name.replace('_', '-')} {before}, and "
                f"{now} was asked for: give the same, or train anew in another --save-dir"
            )


#: Settings by section that a training may go on with otherwise, which is told.
_TOLD = {
    "model": ("dropout", "attention_dropout", "activation_dropout"),
    "optimization": ("lr", "clip_norm", "update_freq"),
    "dataset": ("max_tokens", "batch_size"),
    "criterion": ("label_smoothing",),
    "optimizer": ("weight_decay", "adam_betas", "adam_eps"),
    "lr_scheduler": ("warmup_updates", "warmup_init_lr"),
}


def changed_settings(stored: Any, wanted: Any) -> str:
    """What a training goes on with otherwise, as ``--lr [0.001] -> [0.002]``; empty if nothing.

    Args:
        stored: the settings of a checkpoint, by section; None where it has none
        wanted: those asked for
    """
    found = {}
    for section, names in _TOLD.items() if stored is not None else ():
        for name in names:
            before, now = (_setting(settings, section, name) for settings in (stored, wanted))
            if before is not None and now is not None and str(before) != str(now):
                found[f"--{name.replace('_', '-')}"] = f"{before} -> {now}"
    return ", ".join(f"{option} {change}" for option, change in found.items())


def _setting(settings: Any, section: str, name: str) -> Any:
    """A value of a section, which is a mapping or a namespace; None where there is none."""
    found = settings.get(section)
    return found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)


_wanted: Any = None  # the model that a trainer loads a checkpoint for
_wanted_settings: Any = None  # all that the trainer was asked for
_goes_on = False  # whether it goes on with its optimizer's state


def _resume(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_checkpoint(
        self: Trainer, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any
    ) -> Any:
        global _wanted, _wanted_settings, _goes_on
        _wanted, _wanted_settings, _goes_on = self.cfg.model, self.cfg, not reset_optimizer
        try:
            return original(self, filename, reset_optimizer, *args, **kwargs)
        finally:
            _wanted, _wanted_settings, _goes_on = None, None, False

    return load_checkpoint


def _compare(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        state = original(path, *args, **kwargs)
        refuse_other_computations(_settings(state), _wanted, path)
        if getattr(_wanted, "ea_variant", None) is not None:
            stored = _settings(state)
            refuse_another_variant(stored, _wanted, path)
            if _goes_on:
                refuse_a_plain_training(stored, _wanted, path)
            if changed := _changed_options(stored, _wanted):
                logger.warning("%s goes on with other options: %s", path, changed)
        if _goes_on and (changed := changed_settings(state.get("cfg"), _wanted_settings)):
            logger.warning("%s goes on with other settings: %s", path, changed)
        return state

    return load_checkpoint_to_cpu


def _load_ensemble(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_model_ensemble_and_task(
        filenames: Sequence[str],
        arg_overrides: dict[str, Any] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        for option, value in (arg_overrides or {}).items():
            if option not in _OPTIONS:
                continue
            for filename in filenames:
                before = (_built_of(_settings(read_checkpoint(filename))) or {}).get(option)
                if before is None or not _same(option, before, value):
                    raise UserError(
                        f"--model-overrides: {option} {value} was asked for, and checkpoint "
                        f"{filename} is of {before or 'a plain Transformer'}: leave it out"
                    )
        return original(filenames, arg_overrides, *args, **kwargs)

    return load_model_ensemble_and_task


def _check_merged(cfg: Any, task: Any = None) -> None:
    """Refuses one embedding of two dictionaries: the data's target is numbered by the other.

    Raises:
        UserError: naming the option, and what to do
    """
    source, target = (getattr(task, f"{side}_dictionary", None) for side in ("source", "target"))
    if not getattr(cfg, "merge_src_tgt_embed", False) or source is None or target is None:
        return
    if source != target:
        raise UserError(
            "--merge-src-tgt-embed: the data has two dictionaries, of which each numbers words in "
            "its own way: binarize it with --joined-dictionary, and give --share-all-embeddings"
        )


def _build_model(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def build_model(cfg: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
        if name and not {name} & (ARCH_MODEL_REGISTRY.keys() | MODEL_DATACLASS_REGISTRY.keys()):
            variant = getattr(cfg, "ea_variant", None)
            of = f" (--ea-variant {variant})" if variant else ""
            raise UserError(f"architecture {name!r}{of} is not registered: {REMEDY}")
        _check_merged(cfg, *args[:1])
        return original(cfg, *args, **kwargs)

    return build_model


def install() -> None:
    """Make fairseq compare."""
    models.build_model = _build_model(models.build_model)
    Trainer.load_checkpoint = _resume(Trainer.load_checkpoint)
    checkpoint_utils.load_checkpoint_to_cpu = _compare(checkpoint_utils.load_checkpoint_to_cpu)
    checkpoint_utils.load_model_ensemble_and_task = _load_ensemble(
        checkpoint_utils.load_model_ensemble_and_task
    )
