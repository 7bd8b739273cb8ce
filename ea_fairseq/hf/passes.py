"""What the layers of one forward pass hand to one another.

transformers' attention functions get queries, keys, values and a mask; nothing comes from the layer
below. But models hand the keywords of a call down to their attentions: the object of one pass is
such a keyword. So it belongs to one call of one thread, an exception leaves nothing behind, and
gradient checkpointing, which calls a layer again with the same keywords, finds what it found.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError

#: The keywords by which pass and cache travel.
PASS, CACHE = "evolving_pass", "evolving_cache"


class Pass:
    """One forward pass through one stack of layers.

    Args:
        keep: whether carries stay until the pass is forgotten, for layers that run again

    Attributes:
        real: bool, (batch, 1, tgt_len, 1), False where a position of the stack is padding; or None
        checked: the mask that this pass's attentions were last given, looked through
        past: positions that the stack has seen in earlier passes, where there is a cache
    """

    def __init__(self, keep: bool):
        self.keep = keep
        self.real: Tensor | None = None
        self.checked: Tensor | None = None
        self.past = 0
        self._with_gradients = torch.is_grad_enabled()
        self._carries: dict[tuple[str, int], Tensor | None] = {}
        self._below: dict[tuple[str, int], int | None] = {}
        self._latest: dict[str, int] = {}

    def carry(self, chain: str, layer: int) -> Tensor | None:
        """What the layer below left, of those that ran; None in the first.

        Args:
            chain: the attentions among which carries go
            layer: index of the one that asks

        Raises:
            UserError: the layers do not run in their order, each once
        """
        if self._with_gradients and not torch.is_grad_enabled():
            raise UserError(
                "gradient checkpointing: use_reentrant=True loses the gradients of what a layer's "
                "attention hands to the next; choose use_reentrant=False"
            )
        if (chain, layer) not in self._below:
            latest = self._latest.get(chain)
            if latest is not None and latest > layer:
                raise UserError(
                    f"layer {layer + 1} of {chain} ran after layer {latest + 1}: change a model's "
                    "layers before evolve, not afterwards"
                )
            self._below[chain, layer] = latest
        elif not self.keep:
            raise UserError(
                f"layer {layer + 1} of {chain} ran twice in one forward pass: a copy made after "
                "evolve (change the layers before), or checkpointing of one's own "
                "(call model.gradient_checkpointing_enable() instead)"
            )
        below = self._below[chain, layer]
        return None if below is None else self._carries[chain, below]

    def leave(self, chain: str, layer: int, carry: Tensor | None) -> None:
        """Leaves a layer's carry for the layer above."""
        if (chain, layer) in self._carries or self._latest.get(chain, -1) > layer:
            return  # it ran again
        if not self.keep:
            self._carries.pop((chain, self._latest.get(chain, -1)), None)
        self._carries[chain, layer] = carry
        self._latest[chain] = layer


def begin_pass(stack: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Forward pre-hook of a stack of layers."""
    if PASS in kwargs:
        return args, kwargs
    checkpoints = stack.training and any(
        getattr(module, "gradient_checkpointing", False) for module in stack.modules()
    )
    return args, {**kwargs, PASS: Pass(checkpoints)}
