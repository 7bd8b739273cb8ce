"""What attention maps are like over a corpus, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError
from .attention_maps import LayerMaps
from .translator import Translator

#: What a transformed map is put together of.
TERMS = ("fresh", "carry", "added")


@dataclass(frozen=True)
class LayerStatistics:
    """One attention in one layer. NaN stands for what there is not.

    Attributes:
        similarity: Pearson's correlation of each head's probabilities with those of the same head
            one layer below; the mean over heads and sentences
        similarity_best: with the head below that is most like it: a plain Transformer's heads have
            no order
        entropy: of the probabilities, in bits; the mean over heads and rows
        current: CA, the mean weight of a token on itself, the diagonal of self-attention
        earlier: HA, the mean weight on each earlier token, what lies below the diagonal
        earlier_deviation: standard deviation of the latter
        shares: of `TERMS`, and "other" for what is made of Z in another way: each one's root mean
            square about the mean of its row, which the softmax does not see, as a part of their sum
    """

    similarity: float
    similarity_best: float
    entropy: float
    current: float
    earlier: float
    earlier_deviation: float
    shares: dict[str, float]

    @property
    def ratio(self) -> float:
        """CA / HA."""
        return self.current / self.earlier if self.earlier else math.nan


def map_statistics(
    translator: Translator, texts: Iterable[str], progress: bool = False
) -> dict[str, list[LayerStatistics]]:
    """The statistics of a model's maps while it translates texts; of an ensemble, the first's.

    Returns:
        as `statistics_of`

    Raises:
        UserError: naming a text that the model cannot take.
    """
    translations = translator.stream(texts, details=True, attention=False, progress=progress)

    def maps() -> Iterator[dict[str, list[LayerMaps]]]:
        for number, found in enumerate(translations, start=1):
            if found.problem and not found.parts:
                raise UserError(f"text {number}: {found.problem}")
            for part in found.parts:
                yield translator.attention_maps(part)

    return statistics_of(maps())


def statistics_of(texts: Iterable[dict[str, list[LayerMaps]]]) -> dict[str, list[LayerStatistics]]:
    """The statistics of maps, as attention_maps.py gives them, over all texts.

    CA, HA and their ratio are those of "Bird-Eye Transformers for Text Generation Models", section
    4.2 and Table 1: over all entries of all maps, the first row among them, which sees itself
    alone. In correlation and entropy rows with one visible key have no part: there is nothing to
    choose there.

    Returns:
        attention -> layers, the lowest first
    """
    found: dict[str, list[_Layer]] = {}
    for text in texts:
        for attention, layers in text.items():
            sums = found.setdefault(attention, [_Layer(attention) for _ in layers])
            below = None
            for layer, maps in zip(sums, layers, strict=True):
                layer.add(maps, below)
                below = maps
    return {attention: [layer.summary() for layer in layers] for attention, layers in found.items()}


class _Layer:
    """Sums over a corpus for one attention in one layer: memory does not grow with it."""

    def __init__(self, attention: str):
        self.attention = attention
        self.means = {
            name: _Mean()
            for name in ("similarity", "similarity_best", "entropy", "current", "earlier")
        }
        self.products: Tensor = torch.zeros(1)  # (terms, terms, heads), Z the last term

    def add(self, maps: LayerMaps, below: LayerMaps | None) -> None:
        """Counts one sentence."""
        probs = maps.probs.double()
        visible = maps.visible
        choice = visible & (visible.sum(dim=1, keepdim=True) > 1)
        if choice.any():
            self.means["entropy"].add(_entropy(probs[:, choice.any(dim=1)]))
            if below is not None:
                likeness = _correlations(probs[:, choice], below.probs.double()[:, choice])
                self.means["similarity"].add(likeness.diagonal())
                self.means["similarity_best"].add(likeness.amax(dim=1))
        if self.attention != "encoder-decoder":
            self.means["current"].add(probs.diagonal(dim1=1, dim2=2))
            self.means["earlier"].add(probs[:, torch.ones_like(visible).tril(-1)])
        self.products = self.products + _products(maps, visible)

    def summary(self) -> LayerStatistics:
        """The layer's statistics."""
        return LayerStatistics(
            **{name: mean.value for name, mean in self.means.items()},
            earlier_deviation=self.means["earlier"].deviation,
            shares=_shares(self.products),
        )


class _Mean:
    """Mean and standard deviation of numbers as they come; NaN is no number."""

    def __init__(self) -> None:
        self.count, self.sum, self.squares = 0, 0.0, 0.0

    def add(self, values: Tensor) -> None:
        values = values[~values.isnan()]
        self.count += values.numel()
        self.sum += float(values.sum())
        self.squares += float(values.square().sum())

    @property
    def value(self) -> float:
        return self.sum / self.count if self.count else math.nan

    @property
    def deviation(self) -> float:
        if not self.count:
            return math.nan
        return math.sqrt(max(self.squares / self.count - self.value**2, 0.0))


def _entropy(probs: Tensor) -> Tensor:
    """Of each row, in bits; NaN where learned mixing after the softmax left weights below 0.

    Args:
        probs: (heads, rows, keys); where they do not sum to 1, their parts of the sum count
    """
    weights = probs.clamp(min=0) / probs.sum(dim=-1, keepdim=True)
    entropy = torch.special.entr(weights).sum(dim=-1) / math.log(2)
    return entropy.masked_fill((probs < 0).any(dim=-1), math.nan)


def _correlations(maps: Tensor, others: Tensor) -> Tensor:
    """Pearson's, of each head with each: (heads, heads) from (heads, entries). NaN where one does
    not vary."""
    maps, others = (x - x.mean(dim=1, keepdim=True) for x in (maps, others))
    lengths = maps.norm(dim=1)[:, None] * others.norm(dim=1)
    return torch.where(lengths > 1e-12, maps @ others.T / lengths, math.nan)


def _products(maps: LayerMaps, visible: Tensor) -> Tensor:
    """Products of each term with each, summed over visible entries: (terms, terms, heads)."""
    added = None if maps.mixed is None else maps.added
    terms = [maps.fresh, maps.carry, added, maps.evolved]
    stacked = torch.stack([torch.zeros_like(maps.fresh) if x is None else x for x in terms])
    stacked = stacked.double() * visible
    means = stacked.sum(dim=-1, keepdim=True) / visible.sum(dim=-1, keepdim=True)
    centred = (stacked - means) * visible
    return torch.einsum("ahts,bhts->abh", centred, centred)


def _shares(products: Tensor) -> dict[str, float]:
    """What Z is made of.

    Z is a sum of multiples of the terms, whatever the numbers (alpha and beta, fixed or learned for
    each head), in every variant that carries or convolves: least squares find them exactly. What
    they leave over is "other".

    Args:
        products: (terms, terms, heads), Z the last term
    """
    names = [*TERMS, "other"]
    if products.dim() < 3:
        return dict.fromkeys(names, math.nan)
    sizes = torch.zeros(len(names), dtype=torch.double)
    for head in products.unbind(dim=2):
        lengths = head.diagonal().clamp(min=0).sqrt()
        scale = torch.where(lengths > 0, lengths, 1.0)  # a term that is not there has no product
        cosines = head / scale[:, None] / scale
        weights = torch.linalg.pinv(cosines[:-1, :-1], rtol=1e-9, hermitian=True) @ cosines[:-1, -1]
        sizes[:-1] += weights.abs() * scale[-1] * (lengths[:-1] > 0)
        rest = float(cosines[-1, -1] - weights @ cosines[:-1, -1])
        if rest > 1e-6:  # float32's rounding apart
            sizes[-1] += math.sqrt(rest) * scale[-1]
    total = float(sizes.sum())
    return {
        name: float(size) / total if total else math.nan
        for name, size in zip(names, sizes, strict=True)
    }
