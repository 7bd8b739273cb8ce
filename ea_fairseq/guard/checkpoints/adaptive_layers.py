"""Initialises the buffers that fairseq leaves as found in memory.

Replaced in fairseq:
- ``AdaptiveInput.__init__`` and ``TiedHeadModule.__init__``, the softmax' head: their buffer
  ``_float_tensor``, of which only type and device are used, was memory as it was found. It stands
  in every checkpoint, and where the memory happened to be no number, saving it was refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fairseq.modules import AdaptiveInput
from fairseq.modules.adaptive_softmax import TiedHeadModule


def _written(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self._float_tensor.zero_()

    return __init__


def install() -> None:
    """Make both write it."""
    for layer in (AdaptiveInput, TiedHeadModule):
        layer.__init__ = _written(layer.__init__)
