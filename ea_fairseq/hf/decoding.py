"""What generation keeps from step to step, in the place of a layer of transformers' own cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache
from transformers.cache_utils import Cache, DynamicLayer

from ..attention.contract import State
from ..errors import UserError


class EvolvingLayer(DynamicLayer):
    """A cache's layer that keeps a transform's rows beside keys and values, and reorders all.

    Attributes:
        state: of the transform, after the last row; None where none was kept
        rows: so many target positions were attended from
    """

    is_croppable = False

    def __init__(self, layer: DynamicLayer):
        super().__init__()
        vars(self).update(vars(layer))
        self.state: State | None = {}
        self.rows = 0

    def reset(self) -> None:
        """Forgets all."""
        super().reset()
        self.state, self.rows = {}, 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Goes on with other hypotheses."""
        super().reorder_cache(beam_idx)
        self._choose(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Goes on with some hypotheses."""
        super().batch_select_indices(indices)
        self._choose(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Goes on with each hypothesis several times."""
        super().batch_repeat_interleave(repeats)
        if self.state:
            self.state = {
                name: kept.repeat_interleave(repeats, dim=0) for name, kept in self.state.items()
            }

    def crop(self, tokens_to_remove: int) -> None:
        """Refuses to take steps back, after which earlier rows would be missing."""
        if tokens_to_remove != 0 and self.rows:
            raise UserError(
                "a cache with evolved attention cannot take steps back: no assisted decoding, no "
                "prompt lookup, no cropping"
            )

    def _choose(self, order: Tensor) -> None:
        if self.state:
            self.state = {name: kept[order.to(kept.device)] for name, kept in self.state.items()}


def layer_of(cache: Cache, index: int, kind: str, past: int, why: str) -> EvolvingLayer:
    """The layer of a cache that belongs to one attention, which from now on keeps rows too.

    Args:
        cache: that the model was given, into which it has written this call's keys already
        index: of the layer
        kind: "decoder" or "encoder-decoder"
        past: target positions of earlier calls
        why: what needs more than keys and values, for the message

    Raises:
        UserError: a cache of another kind, or one that somebody else began
    """
    if isinstance(cache, EncoderDecoderCache):
        part = "cross" if kind == "encoder-decoder" else "self"
        cache = getattr(cache, f"{part}_attention_cache")
    layer = cache.layers[index]
    if type(layer) is DynamicLayer and type(cache) is DynamicCache and not cache.offloading:
        layer = cache.layers[index] = EvolvingLayer(layer)
    if "Sliding" in type(layer).__name__:
        raise UserError(
            f"{why}: a cache with a sliding window cannot keep what it needs; "
            "config.sliding_window = None goes without the window, use_cache=False without a cache"
        )
    if type(layer) is not EvolvingLayer:
        raise UserError(
            f"{why}: a {type(cache).__name__} of {type(layer).__name__} cannot keep what it needs; "
            "use a DynamicCache, which is generate's own, or use_cache=False"
        )
    if layer.rows != past or layer.state is None:
        raise UserError(
            f"{why}: the cache holds {past} earlier positions, of which {layer.rows} came through "
            "this model in evaluation; begin with an empty cache, or use_cache=False"
        )
    return layer


def row(maps: Tensor | None, index: int, columns: int) -> Tensor | None:
    """One row of maps or a mask whose rows and columns may be broadcast, cut to some columns.

    Args:
        maps: (batch, heads, tgt_len or 1, src_len or 1), or None
        index: of the row
        columns: from the first
    """
    if maps is None:
        return None
    if maps.size(2) > 1:
        maps = maps[:, :, index : index + 1]
    return maps[..., :columns] if maps.size(3) > 1 else maps


def widen(maps: Tensor | None, columns: int) -> Any:
    """A row with hidden columns on the right up to ``columns``."""
    if maps is None:
        return None
    return torch.nn.functional.pad(maps, (0, columns - maps.size(3)))
