"""The numbers of a training: ``--amp``, averaged weights, buffers.

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
- ``BaseFairseqModel.half``: weights that float16 cannot hold become infinite.
- ``EMA.restore``: ``--store-ema`` gives it, at every update, the weights without the versions of
  encoder and decoder. A model that loads weights without a version takes them for those of an early
  fairseq and throws its last layer norms away, which pre-norm models have.
- ``AdaptiveInput.__init__`` and ``TiedHeadModule.__init__``, the softmax' head: their buffer
  ``_float_tensor``, of which only type and device are used, was memory as it was found. It stands
  in every checkpoint, and where the memory happened to be no number, saving it was refused.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from fairseq.models import BaseFairseqModel
from fairseq.models.ema.ema import EMA
from fairseq.modules import AdaptiveInput, checkpoint_activations
from fairseq.modules.adaptive_softmax import TiedHeadModule
from fairseq.optim import AMPOptimizer

from ..checkpoints.finite_weights import unusable_weight
from ..errors import UserError
from .around import around


@around(AMPOptimizer, "__init__")
def _scale_as_asked(original: Any, self: AMPOptimizer, cfg: Any, *args: Any, **kwargs: Any) -> None:
    original(self, cfg, *args, **kwargs)
    asked = {"init_scale": cfg.common.amp_init_scale}
    if cfg.common.amp_scale_window is not None:
        asked["growth_interval"] = cfg.common.amp_scale_window
    self._grad_scaler = torch.cuda.amp.GradScaler(**asked)


@around(AMPOptimizer, "step")
def _step_what_was_unscaled(original: Any, self: AMPOptimizer) -> None:
    self.scaler.step(self.optimizer)
    self.scaler.update()


@around(checkpoint_activations, "_checkpointed_forward")
def _recompute_in_the_same_types(
    original: Any, forward: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    types = {
        device: torch.get_autocast_dtype(device)
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    }
    return original(functools.partial(_under_autocast, types, forward), *args, **kwargs)


def _under_autocast(
    types: dict[str, torch.dtype], forward: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """What ``forward`` gives under automatic mixed precision on these kinds of devices."""
    with contextlib.ExitStack() as stack:
        for device, dtype in types.items():
            stack.enter_context(torch.autocast(device, dtype))
        return forward(*args, **kwargs)


@around(BaseFairseqModel, "half")
def _refuse_weights_beyond_float16(original: Any, self: BaseFairseqModel) -> Any:
    if bad := unusable_weight(dict(self.named_parameters()), torch.float16):
        raise UserError(f"--fp16: {bad}: leave it out")
    return original(self)


@around(EMA, "restore")
def _keep_versions(
    original: Any, self: EMA, state_dict: dict[str, Any], *args: Any, **kwargs: Any
) -> None:
    versions = {k: v for k, v in self.model.state_dict().items() if "version" in k}
    original(self, {**versions, **state_dict}, *args, **kwargs)


@around(AdaptiveInput, "__init__")
@around(TiedHeadModule, "__init__")
def _initialise_the_buffer(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    self._float_tensor.zero_()
