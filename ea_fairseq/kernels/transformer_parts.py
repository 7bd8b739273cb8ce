"""What encoders and decoders of Transformers are made of, as the compiled library wants it."""

import ctypes
from dataclasses import dataclass

from torch import Tensor, nn

from .cpp.library import address, fields

Kept = list[Tensor]  # what pointers point to


@dataclass(frozen=True)
class MapStep:
    """What an attention does to its maps; see ``EvolvingLogits``.

    Attributes:
        alpha: weight of the layer below's maps
        beta: weight of the convolution
        carries: whether the layer below's maps are mixed in
        kernel: (heads out, heads in, size, size), or None without a convolution
        bias: (heads), or None
        right: how far the convolution's result moves along the keys
    """

    alpha: float = 0.0
    beta: float = 0.0
    carries: bool = False
    kernel: Tensor | None = None
    bias: Tensor | None = None
    right: int = 0


#: Zeros around a row of maps are so many (map_row.h).
LARGEST_KERNEL = 17


@dataclass(frozen=True)
class AttentionParts:
    """An attention, and the norm in front of it or behind."""

    queries: nn.Linear
    keys: nn.Linear
    values: nn.Linear
    output: nn.Linear
    norm: nn.LayerNorm
    map: MapStep


@dataclass(frozen=True)
class NetworkParts:
    """A feed-forward network with relu, and the norm in front of it or behind."""

    first: nn.Linear
    second: nn.Linear
    norm: nn.LayerNorm


@dataclass(frozen=True)
class StackParts:
    """What is around the layers of an encoder or a decoder.

    Attributes:
        heads: of every attention
        norm_first: whether norms are in front of attentions and networks, not behind
        words: embedding, (vocabulary, embed_dim)
        scale: its factor
        positions: (longest, embed_dim), or None
        embedding_norm, final_norm: or None
        int8: whether linear layers multiply bytes, not float32
    """

    heads: int
    norm_first: bool
    words: Tensor
    scale: float
    positions: Tensor | None
    embedding_norm: nn.LayerNorm | None
    final_norm: nn.LayerNorm | None
    int8: bool = False


def _pointer(tensor: Tensor | None, kept: Kept) -> int | None:
    if tensor is None:
        return None
    kept.append(tensor.detach().float().contiguous())
    return address(kept[-1])


def linear(layer: nn.Linear, kept: Kept) -> "Linear":
    pointers = _pointer(layer.weight, kept), _pointer(layer.bias, kept)
    return Linear(*pointers, layer.out_features, layer.in_features)


def _norm(norm: nn.LayerNorm | None, kept: Kept) -> "Norm":
    if norm is None:
        return Norm(None, None, 0.0)
    return Norm(_pointer(norm.weight, kept), _pointer(norm.bias, kept), norm.eps)


def attention(parts: AttentionParts, kept: Kept) -> "Attention":
    map_ = parts.map
    size = 1 if map_.kernel is None else map_.kernel.size(-1)
    return Attention(
        *(linear(x, kept) for x in (parts.queries, parts.keys, parts.values, parts.output)),
        _norm(parts.norm, kept),
        Map(
            *(_pointer(map_.kernel, kept), _pointer(map_.bias, kept)),
            *(size, map_.right, map_.carries, map_.alpha, map_.beta),
        ),
    )


def network(parts: NetworkParts, kept: Kept) -> "Network":
    return Network(
        *(linear(parts.first, kept), linear(parts.second, kept), _norm(parts.norm, kept))
    )


def stack(parts: StackParts, kept: Kept) -> "Stack":
    """What is kept must live as long as the library uses it."""
    return Stack(
        *(parts.words.size(1), parts.heads, parts.norm_first, parts.int8),
        *(_pointer(parts.words, kept), _pointer(parts.positions, kept), parts.scale),
        *(_norm(parts.embedding_norm, kept), _norm(parts.final_norm, kept)),
    )


# The structures of linear.h, map_row.h and layers.h, field by field.


class Linear(ctypes.Structure):
    _fields_ = [
        *fields(ctypes.c_void_p, "weight bias"),
        *fields(ctypes.c_int64, "columns steps"),
    ]


class Norm(ctypes.Structure):
    _fields_ = [*fields(ctypes.c_void_p, "weight bias"), ("eps", ctypes.c_double)]


class Map(ctypes.Structure):
    _fields_ = [
        *fields(ctypes.c_void_p, "kernel bias"),
        *fields(ctypes.c_int64, "size right carries"),
        *fields(ctypes.c_double, "alpha beta"),
    ]


class Attention(ctypes.Structure):
    _fields_ = [*fields(Linear, "queries keys values output"), ("norm", Norm), ("map", Map)]


class Network(ctypes.Structure):
    _fields_ = [*fields(Linear, "first second"), ("norm", Norm)]


class Stack(ctypes.Structure):
    _fields_ = [
        *fields(ctypes.c_int64, "width heads norm_first int8"),
        *fields(ctypes.c_void_p, "words positions"),
        ("scale", ctypes.c_double),
        *fields(Norm, "embedding_norm final_norm"),
    ]
