"""Logit transforms by name. This package imports only torch.

To add a variant: one file with a :class:`LogitTransform`, one builder in ``LOGIT_TRANSFORMS``.
"""

from collections.abc import Callable
from typing import Any

from .base import LogitTransform, State, zero_hidden
from .conv import MAP_CONVOLUTIONS
from .evolving import EvolvingLogits
from .residual import ResidualLogits

# Builders take the options (see ``EAOptions`` in config.py), the kind of attention and its number
# of heads.
LOGIT_TRANSFORMS: dict[str, Callable[[Any, str, int], LogitTransform]] = {
    "evolving": lambda options, attention, num_heads: EvolvingLogits(
        attention,
        num_heads,
        alpha=options.alpha,
        beta=options.beta,
        kernel_size=options.kernel_size,
        convolution=attention in options.convolution,
        skip=attention in options.skip,
    ),
    "residual": lambda options, attention, num_heads: ResidualLogits(
        skip=attention in options.skip
    ),
}

ATTENTIONS = tuple(MAP_CONVOLUTIONS)

__all__ = [
    "ATTENTIONS",
    "LOGIT_TRANSFORMS",
    "EvolvingLogits",
    "LogitTransform",
    "ResidualLogits",
    "State",
    "zero_hidden",
]
