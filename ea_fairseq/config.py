"""The ``--ea-*`` options: default, help, source and validation, each in one place."""

import argparse
from dataclasses import dataclass, field, fields
from typing import Any

from .errors import UserError
from .variants import ATTENTIONS, LOGIT_TRANSFORMS


def _fraction(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0.0 <= number <= 1.0:
        raise UserError(f"{name} must be a number in [0, 1], not {value!r}")
    return number


def _kernel_size(name: str, value: Any) -> int:
    choices = (1, 3, 5, 7, 9)
    if isinstance(value, float) or str(value) not in map(str, choices):
        raise UserError(f"{name} must be odd, one of {_listed(choices)}, not {value!r}")
    return int(value)


def _attentions(name: str, value: Any) -> tuple[str, ...]:
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
    if parts == ["none"]:
        return ()
    if not parts or not set(parts) <= set(ATTENTIONS) or len(parts) != len(set(parts)):
        raise UserError(
            f"{name} must be 'none' or a comma-separated subset of {','.join(ATTENTIONS)}, "
            f"not {value!r}"
        )
    return tuple(kind for kind in ATTENTIONS if kind in parts)


def _variant(name: str, value: Any) -> str:
    if value not in LOGIT_TRANSFORMS:
        raise UserError(f"{name} must be one of {_listed(LOGIT_TRANSFORMS)}, not {value!r}")
    return value


def _listed(choices: Any) -> str:
    return ", ".join(str(choice) for choice in choices)


def _option(default: Any, parse: Any, metavar: str, help: str) -> Any:
    return field(default=default, metadata={"parse": parse, "metavar": metavar, "help": help})


@dataclass(frozen=True)
class EAOptions:
    """Options of evolving attention; field ``x_y`` is the command line's ``--ea-x-y``.

    Names start with ``ea``, not ``encoder`` or ``decoder``: fairseq's ``TransformerConfig`` moves
    names with those prefixes elsewhere.

    Raises:
        UserError: naming the option, its value and the choices
    """

    alpha: float = _option(
        0.1, _fraction, "A", "weight of the previous layer's logits, in [0, 1] (equation 4)"
    )
    beta: float = _option(0.1, _fraction, "B", "weight of the convolution, in [0, 1] (equation 4)")
    kernel_size: int = _option(
        3, _kernel_size, "K", "size of the convolution's kernel: 1, 3, 5, 7 or 9 (section 3.3)"
    )
    convolution: tuple[str, ...] = _option(
        "encoder,decoder,encoder-decoder",
        _attentions,
        "WHERE",
        "attentions with a convolution: comma-separated, of encoder, decoder, encoder-decoder; or "
        "none (section 3.5)",
    )
    skip: tuple[str, ...] = _option(
        "encoder",
        _attentions,
        "WHERE",
        "attentions with a skip connection between layers: comma-separated, of encoder, decoder, "
        "encoder-decoder; or none (section 3.3)",
    )
    variant: str = _option(
        "evolving",
        _variant,
        "NAME",
        "what happens to the logits before the softmax: evolving, or residual (RealFormer, "
        "arXiv 2012.11747; only --ea-skip applies)",
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            value = item.metadata["parse"](_flag(item.name), getattr(self, item.name))
            object.__setattr__(self, item.name, value)

    @classmethod
    def from_namespace(cls, args: Any) -> "EAOptions":
        """Reads ``args.ea_<field>`` where it is set, else takes the default.

        Raises:
            UserError: naming an ``ea_...`` that is no option, as a checkpoint of another version
                may have; its value would be lost
        """
        known = [f"ea_{item.name}" for item in fields(cls)]
        for name in vars(args):
            if name.startswith("ea_") and name not in known:
                raise UserError(
                    f"{name} = {getattr(args, name)!r} is no option of this version of ea_fairseq;"
                    f" its options are {_listed(known)}"
                )
        names = (
            item.name for item in fields(cls) if getattr(args, f"ea_{item.name}", None) is not None
        )
        return cls(**{name: getattr(args, f"ea_{name}") for name in names})

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Adds the options without defaults: those are the architecture's to set."""
        for item in fields(cls):
            parser.add_argument(
                _flag(item.name),
                type=_argument_type(item),
                metavar=item.metadata["metavar"],
                help=f"{item.metadata['help']}; default: {item.default}",
            )


def _flag(name: str) -> str:
    return "--ea-" + name.replace("_", "-")


def _argument_type(item: Any) -> Any:
    """Parses one value as argparse wants it; lists stay strings, as checkpoints keep them."""

    def parse(value: str) -> Any:
        try:
            parsed = item.metadata["parse"](_flag(item.name), value)
        except UserError as error:
            raise argparse.ArgumentTypeError(
                str(error).removeprefix(_flag(item.name) + " ")
            ) from None
        return value if isinstance(parsed, tuple) else parsed

    return parse
