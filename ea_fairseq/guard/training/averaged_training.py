"""``--store-ema``: the average of a training's weights is of the whole model.

Replaced in fairseq:
- ``EMA.restore``: at every update it is given the weights without the versions of encoder and
  decoder. A model that loads weights without a version takes them for those of an early fairseq and
  throws its last layer norms away, which pre-norm models have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fairseq.models.ema.ema import EMA


def _with_versions(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def restore(self: EMA, state_dict: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        versions = {k: v for k, v in self.model.state_dict().items() if "version" in k}
        original(self, {**versions, **state_dict}, *args, **kwargs)

    return restore


def install() -> None:
    """Make fairseq keep the versions."""
    EMA.restore = _with_versions(EMA.restore)
