"""Attention maps to look at: fresh logits, what evolving adds, the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..attention.contract import masked_softmax
from ..errors import UserError
from .attention_maps import LayerMaps
from .translator import Part

#: What a view may be called, in the order in which people look at them.
VIEWS = ("fresh", "added", "evolved", "map")


@dataclass(frozen=True)
class View:
    """One picture of an attention in one layer.

    Attributes:
        name: of `VIEWS`
        values: (heads, tgt_len, src_len), 0 where hidden: logits in what is added, else
            probabilities
        signed: whether values may be below 0
    """

    name: str
    values: Tensor
    signed: bool

    @property
    def in_logits(self) -> bool:
        """Whether the values are logits, not probabilities."""
        return self.name == "added"


def of_number(things: Any, number: int, name: str) -> Any:
    """One of several layers or heads, counted from 1.

    Raises:
        UserError: there are not so many; ``name`` is what is counted.
    """
    if not 1 <= number <= len(things):
        raise UserError(f"{name} is {number}: choose from 1 to {len(things)}")
    return things[number - 1]


def of_head(values: Tensor, head: int | None) -> Tensor:
    """What (heads, tgt_len, src_len) say of one head, or the mean of all: (tgt_len, src_len)."""
    return values.mean(dim=0) if head is None else of_number(values, head, "head")


def layer_views(maps: LayerMaps) -> list[View]:
    """What a layer's own queries and keys say, what is added to it, and what comes out.

    What is added is `LayerMaps.added`. A plain Transformer, to which nothing is added, has its one
    map.

    Args:
        maps: of one attention in one layer
    """
    added = []
    if maps.mixed is not None or not torch.equal(maps.evolved, maps.fresh):
        added = [View("added", maps.added, True)]
    fresh = masked_softmax(maps.fresh, maps.visible)
    # The probabilities may be mixed after the softmax, too.
    if not added and torch.allclose(fresh, maps.probs, atol=1e-5):
        return [View("map", maps.probs, False)]
    evolved = View("evolved", maps.probs, signed=bool(maps.probs.min() < 0))
    return [View("fresh", fresh, False), *added, evolved]


def axis_tokens(part: Part, attention: str) -> tuple[list[str], list[str]]:
    """The tokens of a map's rows, and those of its columns, which the rows look at.

    A row of the decoder's is named after the token that its step writes; what it looks at was
    written before, behind the end of sentence, with which decoding starts.
    """
    if attention == "encoder":
        return part.source_tokens, part.source_tokens
    if attention == "decoder":
        return part.tokens, [part.tokens[-1], *part.tokens[:-1]]
    return part.tokens, part.source_tokens
