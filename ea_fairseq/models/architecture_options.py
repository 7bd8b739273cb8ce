"""The options of an architecture: its variant's defaults, and what cannot be combined with ours."""

import logging
import math
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ..attention.configuration import EAOptions, owned_options, parse_chain
from ..attention.options import as_text, flag, listed
from ..attention.variants import ATTENTIONS, Architecture, Variant
from ..errors import UserError

logger = logging.getLogger(__name__)


def refuse_unsupported(args: Namespace) -> None:
    """Refuses options of fairseq's Transformer that evolving attention cannot honour."""
    unsupported = {
        "cross_self_attention": "one map over source and target has no convolution of its own",
        "encoder_xformers_att_config": "xFormers' attentions have no logits to convolve",
        "decoder_xformers_att_config": "xFormers' attentions have no logits to convolve",
        "base_layers": "BASE layers do not pass attention logits on",
        "quant_noise_scalar": "fairseq's scalar quantization does not know the convolutions",
    }
    for name, reason in unsupported.items():
        if getattr(args, name, None):
            option = "--" + name.replace("_", "-")
            raise UserError(f"{option} cannot be combined with ea_transformer: {reason}")
    for side in ("encoder", "decoder"):
        embed_dim = getattr(args, f"{side}_embed_dim", None)
        heads = getattr(args, f"{side}_attention_heads", None)
        if embed_dim and heads and embed_dim % heads:
            divisors = [n for n in range(1, math.isqrt(embed_dim) + 1) if embed_dim % n == 0]
            raise UserError(
                f"--{side}-attention-heads must divide --{side}-embed-dim {embed_dim}, not "
                f"{heads}: for example {', '.join(map(str, divisors))}"
            )


def set_defaults(args: Namespace, **defaults: Any) -> None:
    """Sets what the command line left open."""
    for name, value in defaults.items():
        setattr(args, name, getattr(args, name, value))


def ea_defaults(
    args: Namespace,
    variant: Variant,
    architecture: Architecture,
    name: str,
    general: str,
    attentions: Sequence[str] = ATTENTIONS,
) -> None:
    """The variant and its options, all of them, as a checkpoint keeps them.

    Args:
        args: what the command line says; filled in
        variant: whose architecture it is
        architecture: with options of its own
        name: of the architecture
        general: name of the one for any variant
        attentions: those that the model has

    Raises:
        UserError: for an option that the variant does not have, one that would have no effect or
            whose default is not clear, or an architecture of one variant with another; evolving
            attention's stand for their size and take any
    """
    given = {name for name, value in vars(args).items() if value is not None}
    set_defaults(args, ea_variant=variant.name)
    chain = parse_chain(args.ea_variant)
    own = args.ea_variant == variant.name
    if not own and variant.name != "evolving":
        raise UserError(
            f"--arch {name} is --ea-variant {variant.name}, not {args.ea_variant}: "
            f"choose --arch {general}"
        )
    for option, owners in owned_options(chain).items():
        if variant in owners and option in architecture.options:
            value = architecture.options[option]
            others = [v for v in owners if v is not variant and v.default(option) != value]
            if others and f"ea_{option}" not in given:
                defaults = listed(f"{other.name} {other.default(option)}" for other in others)
                raise UserError(
                    f"--ea-variant {args.ea_variant}: --arch {name} has {flag(option)} {value} by "
                    f"itself, and {defaults}: give {flag(option)}"
                )
            set_defaults(args, **{f"ea_{option}": value})
    for option, value in architecture.model.items():
        set_defaults(args, **{f"ea_{option}": value})
        chosen = getattr(args, f"ea_{option}")
        if chosen != value:
            raise UserError(
                f"--arch {name} is --ea-{option} {value}, not {chosen}: choose --arch {general}"
            )
    options = EAOptions.from_namespace(args)
    kept = options.as_given()
    _refuse_without_effect(options, given, attentions, architecture)
    for attribute in [name for name in vars(args) if name.startswith("ea_") and name not in kept]:
        delattr(args, attribute)  # given, and left out at its default all the same
    for attribute, value in kept.items():
        setattr(args, attribute, value)


def refuse_serving_nothing(variant: str, attentions: Sequence[str]) -> None:
    """Refuses variants all of whose attentions a model lacks: it would be the plain one.

    Args:
        variant: a name, or one for each attention
        attentions: those that the model has
    """
    wanted = [kind for kind, name in parse_chain(variant).items() if name != "plain"]
    if wanted and not set(wanted) & set(attentions):
        raise UserError(
            f"--ea-variant {variant} is for {listed(wanted)} attention, and this model has "
            f"{listed(attentions) or 'none'} alone: it would be the plain model"
        )


def _refuse_without_effect(
    options: EAOptions, given: set[str], attentions: Sequence[str], architecture: Architecture
) -> None:
    """Refuses an option that somebody gave and that no attention of the model uses.

    A checkpoint, or a folder made of it, has all of them, used or not; and so have arguments that
    were here before: fairseq completes them twice. There, what is not used is at its default, or
    somebody gave them all: which is told.
    """
    complete = options.as_given().keys() <= given
    effects: dict[str, list[str | None]] = {}
    values: dict[str, set[Any]] = {}
    for name, chosen in options.options.items():
        places = [place for place in attentions if options.chain.get(place) == name]
        reasons = chosen.without_effect(places)
        for item in fields(chosen):
            effects.setdefault(item.name, []).append(reasons.get(item.name))
            usual = {as_text(item.default), as_text(architecture.options.get(item.name))}
            value = as_text(getattr(chosen, item.name))
            values.setdefault(item.name, set()).update({value} - usual)
    for option, reasons in sorted(effects.items()):
        if f"ea_{option}" not in given or None in reasons:
            continue
        if not complete:
            raise UserError(f"{flag(option)} would have no effect: {reasons[0]}: leave it out")
        for value in values[option]:
            logger.warning("%s %s has no effect: %s", flag(option), value, reasons[0])
