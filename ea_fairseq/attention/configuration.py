"""The ``--ea-*`` options of a model: which variant serves which attention, with what options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from typing import Any

from ..errors import UserError, perhaps_meant
from .options import as_text, flag, listed, one_of, option, switch
from .scores import SCORES, ScoreFunction
from .scores.base import PRODUCT, build_scores, known_score
from .variants import ATTENTIONS, VARIANTS, LogitTransform, Place, Variant, VariantOptions

PLAIN = "plain"


@dataclass(frozen=True)
class ModelOptions(VariantOptions):
    """Options beside the variants', each of which goes with every variant."""

    scores: str = option(
        PRODUCT, known_score, "NAME", "what makes the logits that a variant transforms", later=True
    )
    branch: str = option(
        "none",
        one_of("none", "convolution"),
        "KIND",
        "what stands beside self-attention, each with half of the width: none (attention has it "
        "all), or a lightweight convolution over positions (Conv-Transformer)",
        later=True,
    )


@dataclass(frozen=True)
class EAOptions:
    """The variants of a model and their options.

    Attributes:
        variant: ``--ea-variant`` as given: one name, or a chain
        chain: the variant of each attention
        options: the options of each variant in the chain, by its name
        model: the other options
    """

    variant: str
    chain: Mapping[str, str]
    options: Mapping[str, VariantOptions]
    model: ModelOptions

    @classmethod
    def from_namespace(cls, args: Any) -> EAOptions:
        """Reads ``args.ea_variant`` and ``args.ea_<option>`` where they are set.

        Names start with ``ea``, not ``encoder`` or ``decoder``: fairseq's ``TransformerConfig``
        moves names with those prefixes elsewhere.

        Raises:
            UserError: naming an option with a bad value, one that its variants do not have, or an
                ``ea_...`` that is none at all, as a checkpoint of another version may have; its
                value would be lost
        """
        given = {
            name.removeprefix("ea_"): value
            for name, value in vars(args).items()
            if name.startswith("ea_") and value is not None
        }
        variant = given.pop("variant", "evolving")
        chain = parse_chain(variant)
        beside = [item.name for item in fields(ModelOptions)]
        model = ModelOptions(**{name: given.pop(name) for name in beside if name in given})
        known = _all_options()
        if stray := sorted(given.keys() - known.keys()):
            raise UserError(
                f"ea_{stray[0]} = {given[stray[0]]!r} is no option of this version of ea_fairseq;"
                f" its options are {listed(f'ea_{name}' for name in sorted([*known, *beside]))}"
            )
        owned = owned_options(chain)
        stray = sorted(given.keys() - owned.keys())
        if stray:
            name = stray[0]
            raise UserError(
                f"{flag(name)} {given[name]} is an option of "
                f"{listed(owner.name for owner in known[name])}, not of --ea-variant {variant}"
                f" (its options: {listed(map(flag, sorted(owned))) or 'none'})"
            )
        options = {}
        for name in dict.fromkeys(chain.values()):
            own = [item.name for item in fields(VARIANTS[name].options)]
            options[name] = VARIANTS[name].options(**{n: given[n] for n in own if n in given})
        return cls(variant, chain, options, model)

    def transform(self, place: Place) -> LogitTransform:
        """A new transform for one attention of the model."""
        name = self.chain[place.attention]
        return VARIANTS[name].build(self.options[name], place)

    def score_function(self, place: Place, longest: int) -> ScoreFunction:
        """A new score function for one attention, whose sentences have up to ``longest`` tokens."""
        return build_scores(self.model.scores, place, longest)

    def as_given(self, whole: bool = False) -> dict[str, Any]:
        """Everything as ``ea_...`` attributes, as checkpoints keep it.

        An option that two variants of a chain share has one value there, unless nobody gave one
        and their defaults differ: then none. An option that came later is left out at its default,
        unless the whole is asked for.
        """
        values: dict[str, set[Any]] = {}
        for options in (*self.options.values(), self.model):
            for item in fields(options):
                value = as_text(getattr(options, item.name))
                later = item.metadata["later"] and value == as_text(item.default)
                if whole or not later:
                    values.setdefault(item.name, set()).add(value)
        agreed = {f"ea_{name}": found.pop() for name, found in values.items() if len(found) == 1}
        return {"ea_variant": self.variant, **agreed}


def parse_chain(text: Any) -> dict[str, str]:
    """The variant of each attention, from one name or ``encoder=NAME,decoder=NAME,...``.

    Raises:
        UserError: naming what is no attention or no variant, or cannot serve there
    """
    text = str(text)
    if "=" not in text:
        variant = _variant(text)
        return {kind: text if kind in variant.arrangement else PLAIN for kind in ATTENTIONS}
    chain = dict.fromkeys(ATTENTIONS, PLAIN)
    seen = set()
    for link in text.split(","):
        kind, _, name = (part.strip() for part in link.partition("="))
        if kind not in ATTENTIONS or kind in seen:
            raise UserError(
                f"--ea-variant {text}: {kind!r} must be one of {listed(ATTENTIONS)}, each once"
            )
        seen.add(kind)
        if kind not in _variant(name, text).serves:
            raise UserError(
                f"--ea-variant {text}: {name} cannot serve {kind} attention, only "
                f"{listed(VARIANTS[name].serves)}"
            )
        chain[kind] = name
    return chain


def owned_options(chain: Mapping[str, str]) -> dict[str, list[Variant]]:
    """The options of a chain's variants by name, and whose they are."""
    used = set(chain.values())
    owned = {name: [v for v in owners if v.name in used] for name, owners in _all_options().items()}
    return {name: owners for name, owners in owned.items() if owners}


def add_args(parser: argparse.ArgumentParser) -> None:
    """Adds the options of all variants, without defaults: those are the architecture's to set."""
    parser.add_argument(
        "--ea-variant",
        type=_argument_type(_parsed_chain),
        metavar="NAME",
        help="what happens to the attention maps, one of: "
        + "; ".join(f"{variant.name} ({variant.summary})" for variant in VARIANTS.values())
        + ". Or one for each attention: encoder=NAME,decoder=NAME,encoder-decoder=NAME",
    )
    for name, owners in sorted(_all_options().items()):
        item = _field(owners[0], name)
        parsers = [_field(owner, name).metadata["parse"] for owner in owners]
        defaults = {f"{_field(owner, name).default} ({owner.name})" for owner in owners}
        # A recipe's `true` is an option without a value.
        bare = {"nargs": "?", "const": "true"} if parsers == [switch] else {}
        parser.add_argument(
            flag(name),
            **bare,
            type=_argument_type(_any_of(parsers), name),
            metavar=item.metadata["metavar"],
            help=f"{item.metadata['help']}; default: {listed(sorted(defaults))}",
        )
    named = {"scores": SCORES}
    for item in fields(ModelOptions):
        about = item.metadata["help"]
        if choices := named.get(item.name):
            about += ", one of: "
            about += "; ".join(f"{one.name} ({one.summary})" for one in choices.values())
        parser.add_argument(
            flag(item.name),
            type=_argument_type(item.metadata["parse"], item.name),
            metavar=item.metadata["metavar"],
            help=f"{about}; default: {item.default}",
        )


def _variant(name: str, chain: str | None = None) -> Variant:
    if name not in VARIANTS:
        where = f"--ea-variant {chain}: {name!r}" if chain else "--ea-variant"
        chosen = "" if chain else f", not {name!r}"
        meant = perhaps_meant(name, VARIANTS)
        raise UserError(f"{where} must be one of {listed(VARIANTS)}{chosen}{meant}")
    return VARIANTS[name]


def _all_options() -> dict[str, list[Variant]]:
    """All options by name, and whose they are."""
    owners: dict[str, list[Variant]] = {}
    for variant in VARIANTS.values():
        for item in fields(variant.options):
            owners.setdefault(item.name, []).append(variant)
    return owners


def _field(variant: Variant, name: str) -> Field:
    return next(item for item in fields(variant.options) if item.name == name)


def _any_of(parsers: list[Any]) -> Any:
    """Reads a value as the first of several owners that takes it; which one is chosen later."""

    def parse(name: str, value: str) -> Any:
        for attempt in parsers[:-1]:
            try:
                return attempt(name, value)
            except UserError:
                continue
        return parsers[-1](name, value)

    return parse


def _parsed_chain(name: str, value: str) -> str:
    parse_chain(value)
    return value


def _argument_type(parse: Any, name: str = "variant") -> Any:
    """Parses one value as argparse wants it; lists stay strings, as checkpoints keep them."""

    def typed(value: str) -> Any:
        try:
            return as_text(parse(flag(name), value))
        except UserError as error:
            message = str(error).removeprefix(flag(name) + " ")
            raise argparse.ArgumentTypeError(message) from None

    return typed
