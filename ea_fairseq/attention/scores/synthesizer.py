"""Synthesizers: logits without products of queries and keys."""

import torch
from torch import Tensor, nn

from ...errors import UserError
from ..contract import Place, at_least_float32
from .base import Score, ScoreFunction, register

_SELF_ATTENTION = ("encoder", "decoder")


class Synthesizer(ScoreFunction):
    """Base of both: logits by position in the sentence, cut to its length.

    Positions count from the sentence's first token, wherever padding puts it.

    Args:
        name: of the score function, for messages
        place: the attention
        longest: positions that there are weights for
    """

    is_product = False
    uses_keys = False

    def __init__(self, name: str, place: Place, longest: int):
        super().__init__()
        self.name, self.longest = name, longest
        side = "target" if place.attention == "decoder" else "source"
        self.longest_option = f"--max-{side}-positions"

    def _positions(
        self, shape: tuple[int, int, int], visible: Tensor | None, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Positions of queries (batch or 1, tgt_len) and keys (batch or 1, tgt_len or 1, src_len)
        in their sentences, long; any that there are weights for where hidden.

        Raises:
            UserError: a sentence is longer than there are weights
        """
        _, tgt_len, src_len = shape
        rows = torch.arange(src_len - tgt_len, src_len, device=device)[None]
        columns = torch.arange(src_len, device=device)[None, None]
        if visible is not None:
            seen = visible[:, 0].expand(-1, -1, src_len)
            first = seen.int().argmax(dim=-1)  # the first key that is visible to each query
            rows, columns = rows - first, columns - first[:, :, None]
        if src_len > self.longest:
            length = src_len if visible is None else int(seen.sum(dim=-1).max())
            if length > self.longest:
                raise UserError(
                    f"a sentence of {length} tokens is longer than {self.longest_option} "
                    f"{self.longest}, the longest that the scores {self.name} have learned"
                )
        last = self.longest - 1
        return rows.clamp(0, last), columns.clamp(0, last)


class DenseSynthesizer(Synthesizer):
    """Dense synthesizer (arXiv 2005.00743), equations (1) to (3): each query names its positions.

    L_ts = (W2 relu(W1 x_t + b1) + b2)_s

    W1 and b1 are the attention's query projection, so that each head has its part of the hidden
    layer, as wide as a query; W2 and b2 belong to a head. There are no keys.
    """

    def __init__(self, place: Place, longest: int):
        super().__init__("dense_synthesizer", place, longest)
        self.weight = nn.Parameter(torch.empty(place.num_heads, place.head_dim, longest))
        self.bias = nn.Parameter(torch.zeros(place.num_heads, longest))
        nn.init.normal_(self.weight, std=(2 / place.head_dim) ** 0.5)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor | None,
        scaling: float,
        shape: tuple[int, int, int],
        visible: Tensor | None,
    ) -> Tensor:
        """See :meth:`ScoreFunction.forward`."""
        src_len = shape[2]
        _, columns = self._positions(shape, visible, queries.device)
        weight, bias = self.weight[:, :, :src_len], self.bias[:, None, :src_len]
        named = at_least_float32(queries.relu() @ weight)
        named = named + bias.to(named.dtype)
        if visible is None:
            return named
        return named.gather(3, columns[:, None].expand(*named.shape[:3], src_len))


class RandomSynthesizer(Synthesizer):
    """Random synthesizer (arXiv 2005.00743), equation (4): L_ts = R_ts, learned, one for each head.

    There are neither queries nor keys: all sentences share their logits.
    """

    uses_queries = False

    def __init__(self, place: Place, longest: int):
        super().__init__("random_synthesizer", place, longest)
        self.weight = nn.Parameter(torch.randn(place.num_heads, longest, longest))

    def forward(
        self,
        queries: Tensor | None,
        keys: Tensor | None,
        scaling: float,
        shape: tuple[int, int, int],
        visible: Tensor | None,
    ) -> Tensor:
        """See :meth:`ScoreFunction.forward`."""
        rows, columns = self._positions(shape, visible, self.weight.device)
        logits = at_least_float32(self.weight[:, rows[:, :, None], columns]).transpose(0, 1)
        return logits.expand(shape[0], -1, -1, -1)


register(
    Score(
        "dense_synthesizer",
        "W2 relu(W1 x + b1) + b2, self-attention only (arXiv 2005.00743)",
        DenseSynthesizer,
        serves=_SELF_ATTENTION,
    )
)
register(
    Score(
        "random_synthesizer",
        "a learned matrix, self-attention only (arXiv 2005.00743)",
        RandomSynthesizer,
        serves=_SELF_ATTENTION,
    )
)
