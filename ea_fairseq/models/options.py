"""The options of an architecture: its variant's defaults, and what cannot be combined with ours."""

import math
from argparse import Namespace
from typing import Any

from ..config import EAOptions, owned_options, parse_chain
from ..errors import UserError
from ..variants import Architecture, Variant


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
    args: Namespace, variant: Variant, architecture: Architecture, name: str, general: str
) -> None:
    """The variant and its options, all of them, as a checkpoint keeps them.

    Args:
        args: what the command line says; filled in
        variant: whose architecture it is
        architecture: with options of its own
        name: of the architecture
        general: name of the one for any variant

    Raises:
        UserError: for an option that the variant does not have, or an architecture of one variant
            with another; evolving attention's stand for their size and take any
    """
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
            set_defaults(args, **{f"ea_{option}": architecture.options[option]})
    for option, value in architecture.model.items():
        set_defaults(args, **{f"ea_{option}": value})
        given = getattr(args, f"ea_{option}")
        if given != value:
            raise UserError(
                f"--arch {name} is --ea-{option} {value}, not {given}: choose --arch {general}"
            )
    kept = EAOptions.from_namespace(args).as_given()
    for attribute in [name for name in vars(args) if name.startswith("ea_") and name not in kept]:
        delattr(args, attribute)  # given, and left out at its default all the same
    for attribute, value in kept.items():
        setattr(args, attribute, value)
