"""Scores of a small network that sees a query and a key together."""

import math

import torch
from torch import Tensor, nn

from ..contract import Place, at_least_float32
from .base import Score, ScoreFunction, register


class Additive(ScoreFunction):
    """Score of Bahdanau et al. (arXiv 1409.0473), appendix A.1.2, in each head:

    L_ts = w2 . tanh(W3 k_s + W4 q_t) / sqrt(head_dim)

    W3 k and W4 q are computed once for each key and query; what tanh is taken of, (batch, heads,
    tgt_len, src_len, head_dim), is head_dim times as large as the map.

    Differs from the paper: heads, and the scale of the product. Equation (11) of
    "Convolution-enhanced Evolving Attention Networks" has Q in front of the sum as well, where the
    shapes do not fit; without it, this is the score that it names.

    Args:
        num_heads: of the attention
        head_dim: of queries, keys and the hidden layer
    """

    is_product = False

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        shape = (num_heads, head_dim, head_dim)
        self.of_key = nn.Parameter(torch.empty(shape))  # W3
        self.of_query = nn.Parameter(torch.empty(shape))  # W4
        # Logits that vary as much as those of the product do.
        self.weight = nn.Parameter(torch.randn(num_heads, head_dim))  # w2
        self._reset(math.sqrt(3 / head_dim))

    def _reset(self, bound: float) -> None:
        nn.init.uniform_(self.of_key, -bound, bound)
        nn.init.uniform_(self.of_query, -bound, bound)

    def map_queries(self, queries: Tensor) -> Tensor:
        """W4 q: (..., heads, head_dim), the same shape."""
        return torch.einsum("...hd,hed->...he", queries, self.of_query)

    def map_keys(self, keys: Tensor) -> Tensor:
        """W3 k: (..., heads, head_dim), the same shape."""
        return torch.einsum("...hd,hed->...he", keys, self.of_key)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        scaling: float,
        shape: tuple[int, int, int],
        visible: Tensor | None,
    ) -> Tensor:
        """See :meth:`ScoreFunction.forward`."""
        queries, keys = at_least_float32(queries), at_least_float32(keys)
        sentences = keys.size(0)
        # (sentences, hypotheses of each, heads, tgt_len, src_len, head_dim)
        queries = queries.unflatten(0, (sentences, -1)).unsqueeze(4)
        hidden = (queries + keys[:, None, :, None]).tanh()
        with torch.autocast(hidden.device.type, enabled=False):
            weight = (scaling * self.weight).to(hidden.dtype)
            return torch.einsum("bnhtsd,hd->bnhts", hidden, weight).flatten(0, 1)


class Concatenative(Additive):
    """Concatenative score of Luong et al. (arXiv 1508.04025), section 3.1, in each head:

    L_ts = w5 . tanh(W6 [k_s ; q_t]) / sqrt(head_dim)

    With W6 = [W3 W4] it is the additive score and computes the same; it starts as one matrix of
    2 head_dim columns does, smaller.
    """

    def _reset(self, bound: float) -> None:
        super()._reset(bound / math.sqrt(2))


def _additive(place: Place, longest: int) -> Additive:
    return Additive(place.num_heads, place.head_dim)


def _concatenative(place: Place, longest: int) -> Concatenative:
    return Concatenative(place.num_heads, place.head_dim)


register(Score("additive", "w2 tanh(W3 k + W4 q) (arXiv 1409.0473)", _additive))
register(Score("concatenative", "w5 tanh(W6 [k ; q]) (arXiv 1508.04025)", _concatenative))
