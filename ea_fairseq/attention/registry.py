"""What a variant is, and all variants by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .contract import LogitTransform, Place
from .options import ATTENTIONS, VariantOptions, flag, listed

#: Of architectures, as the papers have them.
SIZES = ("lite", "base")


@dataclass(frozen=True)
class Architecture:
    """A name for ``--arch``: a variant in one of the papers' sizes.

    Attributes:
        name: such as ``ea_transformer_lite``
        size: "lite" or "base" (see ``models/ea_transformer.py``)
        options: those of the variant's options that differ from their defaults
        model: likewise of the options that go with every variant (configuration.py)
    """

    name: str
    size: str
    options: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Variant:
    """All that there is to know about one kind of attention, in one place.

    Attributes:
        name: for ``--ea-variant``
        summary: one line of help, with the source
        options: its options
        build: makes the transform of one attention
        serves: attentions that it can serve; another one in a chain is refused
        arrangement: those of ``serves`` in which it stands where ``--ea-variant`` names it alone,
            as its paper has it; the others stay plain. All by default
        architectures: its names for ``--arch``
        cases: sets of options that the tests hold to every property; between them they use each
            part of the code
        neutral: options with which it equals fairseq's Transformer, or None if there are none
    """

    name: str
    summary: str
    options: type[VariantOptions]
    build: Callable[[Any, Place], LogitTransform]
    serves: tuple[str, ...] = ATTENTIONS
    arrangement: tuple[str, ...] = ()
    architectures: tuple[Architecture, ...] = ()
    cases: tuple[Mapping[str, Any], ...] = ({},)
    neutral: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.arrangement:
            object.__setattr__(self, "arrangement", self.serves)

    def default(self, option: str) -> Any:
        """The value of one of the variant's options where nobody gives one."""
        return next(item.default for item in fields(self.options) if item.name == option)

    def is_neutral(self, option: str, options: VariantOptions) -> bool:
        """Whether an option has its neutral value, such as alpha 0, which says what is so anyway
        where it has no effect."""
        return option in (self.neutral or {}) and self.neutral[option] == getattr(options, option)


VARIANTS: dict[str, Variant] = {}
_listeners: list[Callable[[Variant], None]] = []


def register(variant: Variant) -> Variant:
    """Makes a variant known: to options, architectures, help, cost table, benchmark and tests.

    Raises:
        ValueError: another variant has the name, or one of the architectures; one of its options
            cannot be read; what it serves is no attention
    """
    _check_options(variant)
    for name in ("serves", "arrangement"):
        for kind in getattr(variant, name):
            if kind not in ATTENTIONS:
                raise ValueError(
                    f"variant {variant.name}: {name}: {kind!r} must be one of {listed(ATTENTIONS)}"
                )
    for kind in variant.arrangement:
        if kind not in variant.serves:
            raise ValueError(
                f"variant {variant.name}: arrangement: {kind!r} is none of the attentions that it "
                f"serves: {listed(variant.serves)}"
            )
    taken = {arch.name for other in VARIANTS.values() for arch in other.architectures}
    names = [variant.name, *(arch.name for arch in variant.architectures)]
    for name in names:
        if name in VARIANTS or name in taken:
            raise ValueError(f"variant {variant.name}: the name {name} is taken")
    VARIANTS[variant.name] = variant
    for listener in _listeners:
        listener(variant)
    return variant


def _check_options(variant: Variant) -> None:
    """Refuses options that would fail where a model is built, hours of writing later.

    Raises:
        ValueError: naming the variant, the option, and what it is to be
    """
    for item in fields(variant.options):
        where = f"variant {variant.name}: {variant.options.__name__}.{item.name}"
        if "parse" not in item.metadata:
            raise ValueError(f"{where}: make it by option(default, parse, metavar, help)")
        try:
            item.metadata["parse"](flag(item.name), item.default)
        except Exception as error:
            raise ValueError(
                f"{where}: its parse takes the option's name and a value, as fraction(name, value) "
                f"does, and reads the default {item.default!r}: {type(error).__name__}: {error}"
            ) from error
    known = [item.name for item in fields(variant.options)]
    if clashing := {"variant", "scores", "branch"}.intersection(known):
        raise ValueError(
            f"variant {variant.name}: {variant.options.__name__}.{min(clashing)}: the name is "
            f"taken, by {flag(min(clashing))}"
        )
    for architecture in variant.architectures:
        if architecture.size not in SIZES:
            raise ValueError(
                f"variant {variant.name}: architecture {architecture.name}: size is "
                f"{architecture.size!r}: choose from {', '.join(SIZES)}"
            )
    for what, cases in (
        ("cases", variant.cases),
        ("neutral", [variant.neutral or {}]),
        ("architectures", [architecture.options for architecture in variant.architectures]),
    ):
        for name in {name for case in cases for name in case}:
            if name not in known:
                raise ValueError(
                    f"variant {variant.name}: {what}: {name!r} is no option of "
                    f"{variant.options.__name__}: {listed(known) or 'it has none'}"
                )


def on_registration(listener: Callable[[Variant], None]) -> None:
    """Calls a function with every variant: those there are now, and each that comes later."""
    for variant in VARIANTS.values():
        listener(variant)
    _listeners.append(listener)


def language_model(variant: Variant, architecture: Architecture) -> str | None:
    """The name of an architecture's language model, which is its decoder alone.

    ``ea_transformer_lm_lite`` for ``ea_transformer_lite``; None where there is none.
    """
    if "decoder" not in variant.arrangement or architecture.size != "lite":
        return None
    return architecture.name.removesuffix("_lite") + "_lm_lite"


def language_models() -> dict[str, str]:
    """The translation models that have a language model, and its name."""
    names = {name: language_model(*found) for name, found in architectures().items()}
    return {name: model for name, model in names.items() if model is not None}


def architectures() -> dict[str, tuple[Variant, Architecture]]:
    """All architectures by name, with their variants."""
    return {
        arch.name: (variant, arch)
        for variant in VARIANTS.values()
        for arch in variant.architectures
    }
