"""Training with ``--amp``, automatic mixed precision: its loss scale, and recomputed layers.

Replaced in fairseq:
- ``AMPOptimizer.step``: fairseq clips the gradients of torch's optimizer and steps its own wrapper,
  which the scaler takes for another one, and divides by the loss scale again. Steps become smaller
  by that factor; with Adam, whose steps have no scale, its ``eps`` counts so much more, up to
  thousands of times.
- ``AMPOptimizer.__init__``: ``--amp-init-scale`` is the first loss scale (fairseq takes
  ``--fp16-init-scale``), and ``--amp-scale-window`` the updates until it grows (fairseq takes
  ``--amp-init-scale``).
- ``checkpoint_activations._checkpointed_forward``: ``--checkpoint-activations`` computes a layer
  again in the types that it was computed in; fairseq does so in float32, which makes gradients of
  another pass and saves less memory.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from fairseq.modules import checkpoint_activations
from fairseq.optim import AMPOptimizer


def _scale_as_asked(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(
        self: AMPOptimizer, cfg: Any, params: Any, fp32_optimizer: Any, **kwargs: Any
    ) -> None:
        original(self, cfg, params, fp32_optimizer, **kwargs)
        asked = {"init_scale": cfg.common.amp_init_scale}
        if cfg.common.amp_scale_window is not None:
            asked["growth_interval"] = cfg.common.amp_scale_window
        self._grad_scaler = torch.cuda.amp.GradScaler(**asked)

    return __init__


def _step_what_was_unscaled(self: AMPOptimizer) -> None:
    self.scaler.step(self.optimizer)
    self.scaler.update()


def _under(
    types: dict[str, torch.dtype], forward: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """What ``forward`` gives under automatic mixed precision on these kinds of devices."""
    with contextlib.ExitStack() as stack:
        for device, dtype in types.items():
            stack.enter_context(torch.autocast(device, dtype))
        return forward(*args, **kwargs)


def _compute_again_as_before(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _checkpointed_forward(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        types = {
            device: torch.get_autocast_dtype(device)
            for device in ("cpu", "cuda")
            if torch.is_autocast_enabled(device)
        }
        return original(functools.partial(_under, types, forward), *args, **kwargs)

    return _checkpointed_forward


def install() -> None:
    """Make fairseq train this way with ``--amp``."""
    AMPOptimizer.__init__ = _scale_as_asked(AMPOptimizer.__init__)
    AMPOptimizer.step = _step_what_was_unscaled
    checkpoint_activations._checkpointed_forward = _compute_again_as_before(
        checkpoint_activations._checkpointed_forward
    )
