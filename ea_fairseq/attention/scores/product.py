"""Products of queries and keys: scaled, and with a learned matrix between them."""

import torch
from torch import Tensor, nn

from ..contract import Place
from .base import PRODUCT, Score, ScoreFunction, register


class Multiplicative(ScoreFunction):
    """General score of Luong et al. (arXiv 1508.04025): L_ts = q_t . (W1 k_s) / sqrt(head_dim).

    W1 belongs to a head and starts as the identity, where this is the product. It is applied to the
    queries, so that everything behind it stays a product.

    "Convolution-enhanced Evolving Attention Networks" lists it in equation (11). Differs from both
    papers: scaled as the product is.
    """

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(head_dim).repeat(num_heads, 1, 1))

    def map_queries(self, queries: Tensor) -> Tensor:
        """q W1: (..., heads, head_dim), the same shape."""
        return torch.einsum("...hd,hde->...he", queries, self.weight)


def _product(place: Place, longest: int) -> ScoreFunction:
    return ScoreFunction()


def _multiplicative(place: Place, longest: int) -> Multiplicative:
    return Multiplicative(place.num_heads, place.head_dim)


register(Score(PRODUCT, "q k (arXiv 1706.03762)", _product))
register(Score("multiplicative", "q W1 k (arXiv 1508.04025)", _multiplicative))
