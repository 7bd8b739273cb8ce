"""Tokens drawn at random by their probabilities, in the place of the most probable ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from ..errors import UserError


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn, in fairseq-generate's words; with both limits, those within both.

    Attributes:
        temperature: logits are divided by it: below 1 the probable becomes more probable
        top_k: among so many most probable tokens; None: among all
        top_p: among the fewest most probable tokens that have this share of the probability
            together (arXiv 1904.09751); None: among all
        seed: of the draws; each text has its own, whatever it is drawn beside

    Raises:
        UserError: naming the setting, its value and the choices
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        if not _is_number(self.temperature) or self.temperature <= 0:
            raise UserError(f"temperature is {self.temperature!r}: expected a number above 0")
        if self.top_k is not None and (type(self.top_k) is not int or self.top_k < 1):
            raise UserError(f"top_k is {self.top_k!r}: expected a whole number from 1")
        if self.top_p is not None and not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            raise UserError(f"top_p is {self.top_p!r}: expected a number above 0, at most 1")
        if type(self.seed) is not int:
            raise UserError(f"seed is {self.seed!r}: expected a whole number")

    def stream(self, text: int, draw: int) -> Random:
        """The random numbers of one text's one draw, counted from 0."""
        return Random(f"{self.seed} {text} {draw}")

    def draw(self, best: Tensor, token: Tensor, streams: Sequence[Random]) -> tuple[Tensor, Tensor]:
        """Draws a token of each row.

        Args:
            best: (rows, tokens), log-probabilities, the best first; what must not be drawn is -inf
            token: (rows, tokens), whose they are
            streams: the rows' random numbers

        Returns:
            log-probabilities (rows, 1) of what was drawn, and that
        """
        probs = best.double().softmax(dim=1).nan_to_num()  # of a row where nothing can be drawn
        kept = probs > 0
        if self.top_k is not None:
            kept[:, self.top_k :] = False
        if self.top_p is not None:
            kept &= probs.cumsum(dim=1) - probs < self.top_p
        up_to = (probs * kept).cumsum(dim=1)
        uniform = torch.tensor([[stream.random()] for stream in streams], dtype=torch.double)
        place = torch.searchsorted(up_to, uniform.to(best.device) * up_to[:, -1:], right=True)
        # A product that was rounded up is beyond the last one's share.
        place = place.minimum((kept.sum(dim=1, keepdim=True) - 1).clamp(min=0))
        return best.gather(1, place), token.gather(1, place)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
