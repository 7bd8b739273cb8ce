"""Which model a checkpoint is of, and whether another one is asked for.

Weights alone do not tell: residual attention and evolving attention without convolutions have the
same. The checkpoint's settings do. In all functions here, `stored` are the settings of the model of
the checkpoint `filename`, None where it has none that can be read, and `wanted` those asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from ..attention.configuration import PLAIN, EAOptions, ModelOptions, parse_chain
from ..errors import UserError
from .reading import read_checkpoint

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
    """Compares the variants, and what goes with any variant, of two models; a plain Transformer's
    settings fit all.

    Raises:
        UserError: naming the option and both values
    """
    before, now = _built_of(stored), _built_of(wanted)
    if before is None:
        return
    if now is None:
        raise UserError(
            f"checkpoint {filename} is of --ea-variant {before['ea_variant']}, and a plain "
            f"Transformer was asked for{_by_arch(stored, wanted)}: give the same, or train anew in "
            "another --save-dir"
        )
    for option, value in before.items():
        if not _same(option, value, now[option]):
            raise UserError(
                f"checkpoint {filename} is of --{option.replace('_', '-')} {value}, and "
                f"{now[option]} was asked for: give the same, or train anew in another --save-dir"
            )


def _by_arch(stored: Any, wanted: Any) -> str:
    """Both architectures, as in `` (--arch a, not b)``; empty where one has no name."""
    names = [getattr(settings, "arch", None) for settings in (wanted, stored)]
    return f" (--arch {names[0]}, not {names[1]})" if all(names) else ""


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
    *("encoder_normalize_before", "decoder_normalize_before"),
)
#: Options by which two parameters become one, of which a checkpoint without them has two.
_SHARED = (
    *("share_all_embeddings", "share_decoder_input_output_embed"),
    *("tie_adaptive_weights", "tie_adaptive_proj"),
)


def refuse_other_computations(stored: Any, wanted: Any, filename: str) -> None:
    """Refuses to take a checkpoint's weights for a model that computes something else with them.

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
    for name in _SHARED:
        before, now = (getattr(settings, name, None) for settings in (stored, wanted))
        if now and before is False:
            raise UserError(
                f"checkpoint {filename} was trained without --{name.replace('_', '-')}: one of two "
                "tables of weights would be thrown away; leave it out, or train anew in another "
                "--save-dir"
            )


#: Settings by section that a training may go on with otherwise, which is told.
_TOLD = {
    "model": ("dropout", "attention_dropout", "activation_dropout"),
    "optimization": ("lr", "clip_norm", "update_freq"),
    "dataset": ("max_tokens", "batch_size"),
    "criterion": ("label_smoothing",),
    "optimizer": ("weight_decay", "adam_betas", "adam_eps"),
    "lr_scheduler": ("warmup_updates", "warmup_init_lr"),
    "task": ("sample_break_mode", "tokens_per_sample"),
    "common": ("seed",),
}


def changed_settings(stored: Any, wanted: Any) -> str:
    """What a training goes on with otherwise, as ``--lr [0.001] -> [0.002]``; empty if nothing. The
    settings are those of the whole training, by section."""
    found = {}
    for section, names in _TOLD.items() if stored is not None else ():
        for name in names:
            before, now = (_setting(settings, section, name) for settings in (stored, wanted))
            if before is not None and now is not None and str(before) != str(now):
                found[f"--{name.replace('_', '-')}"] = f"{before} -> {now}"
    if "--lr" in found and _setting(wanted, "lr_scheduler", "_name") == "reduce_lr_on_plateau":
        found["--lr"] += " (without effect: reduce_lr_on_plateau goes on from its own)"
    return ", ".join(f"{option} {change}" for option, change in found.items())


def _refuse_another_loss_or_optimizer(stored: Any, wanted: Any, filename: str) -> None:
    """Refuses what fairseq fails at, with the advice to throw the optimizer's state away."""
    for section in ("criterion", "optimizer") if stored is not None else ():
        before, now = (_setting(settings, section, "_name") for settings in (stored, wanted))
        if before is not None and now is not None and before != now:
            raise UserError(
                f"checkpoint {filename} was trained with --{section} {before}, and {now} was asked "
                "for: give the same, or begin with its weights by --finetune-from-model in another "
                "--save-dir"
            )


def _setting(settings: Any, section: str, name: str) -> Any:
    """A value of a section, which is a mapping or a namespace; None where there is none."""
    found = settings.get(section)
    return found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)


def compare_with_training(state: dict[str, Any], cfg: Any, filename: str, goes_on: bool) -> None:
    """Compares a checkpoint with a training that takes its weights; other settings are logged.

    Args:
        state: the checkpoint
        cfg: what the training was asked for, by section
        filename: the checkpoint
        goes_on: whether the training goes on with its optimizer's state, too

    Raises:
        UserError: the training is of another model.
    """
    stored, wanted = _settings(state), cfg.model
    refuse_other_computations(stored, wanted, filename)
    refuse_another_variant(stored, wanted, filename)
    if goes_on:
        _refuse_another_loss_or_optimizer(state.get("cfg"), cfg, filename)
        updates = (state.get("optimizer_history") or [{}])[-1].get("num_updates", 0)
        if updates and state.get("last_optimizer_state") is None:
            raise UserError(
                f"checkpoint {filename} was saved after update {updates} with "
                "--no-save-optimizer-state: updates and warm-up would begin anew; begin with its "
                "weights by --finetune-from-model in another --save-dir"
            )
    if getattr(wanted, "ea_variant", None) is not None:
        if goes_on:
            refuse_a_plain_training(stored, wanted, filename)
        if changed := _changed_options(stored, wanted):
            logger.warning("%s goes on with other options: %s", filename, changed)
    if goes_on and (changed := changed_settings(state.get("cfg"), cfg)):
        logger.warning("%s goes on with other settings: %s", filename, changed)


def refuse_overrides(filenames: Sequence[str], overrides: Mapping[str, Any]) -> None:
    """Refuses ``--model-overrides`` that make another variant of a checkpoint's model.

    Raises:
        UserError: naming the option, both values and the checkpoint.
    """
    for option in [name for name in _OPTIONS if name in overrides]:
        value = overrides[option]
        for filename in filenames:
            before = (_built_of(_settings(read_checkpoint(filename))) or {}).get(option)
            if before is None or not _same(option, before, value):
                raise UserError(
                    f"--model-overrides: {option} {value} was asked for, and checkpoint "
                    f"{filename} is of {before or 'a plain Transformer'}: leave it out"
                )
