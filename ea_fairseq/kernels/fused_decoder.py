"""A Transformer's decoder with plain or evolving attention, a whole step of a search at once."""

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .library import address, fields, load_library


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


@dataclass(frozen=True)
class AttentionParts:
    """An attention of a decoder's layer, and the norm in front of it or behind."""

    queries: nn.Linear
    keys: nn.Linear
    values: nn.Linear
    output: nn.Linear
    norm: nn.LayerNorm
    map: MapStep


@dataclass(frozen=True)
class LayerParts:
    """A layer: self-attention, encoder-decoder attention, feed-forward network with relu."""

    self_attention: AttentionParts
    cross_attention: AttentionParts
    first: nn.Linear
    second: nn.Linear
    norm: nn.LayerNorm


@dataclass(frozen=True)
class DecoderParts:
    """A decoder.

    Attributes:
        layers: from the first
        heads: of every attention
        norm_first: whether norms are in front of attentions and networks, not behind
        embedding: (vocabulary, embed_dim)
        scale: its factor
        positions: (longest, embed_dim), or None
        embedding_norm, final_norm: or None
        output: to the vocabulary
    """

    layers: Sequence[LayerParts]
    heads: int
    norm_first: bool
    embedding: Tensor
    scale: float
    positions: Tensor | None
    embedding_norm: nn.LayerNorm | None
    final_norm: nn.LayerNorm | None
    output: nn.Linear


@dataclass(frozen=True)
class Rules:
    """Which tokens a search may choose.

    Attributes:
        pad, eos, unk: numbers of padding, which is never chosen, the end and the unknown word
        unk_penalty: what the unknown word's log-probability loses
    """

    pad: int
    eos: int
    unk: int
    unk_penalty: float


class FusedDecoder:
    """A decoder's weights, packed for the compiled library, float32 on the CPU.

    Later changes of the weights have no part in it. Threads may share one.

    Args:
        parts: of the decoder
    """

    def __init__(self, parts: DecoderParts):
        library = _library()
        kept: list[Tensor] = []  # what the pointers need until the weights are packed
        layers = (_Layer * len(parts.layers))(*(_layer(layer, kept) for layer in parts.layers))
        # These two are read where they are.
        self._embedding = parts.embedding.detach().contiguous()
        self._positions = None if parts.positions is None else parts.positions.contiguous()
        weights = _Decoder(
            ctypes.cast(layers, ctypes.c_void_p),
            *(len(layers), self._embedding.size(1), parts.heads, parts.norm_first),
            *(address(self._embedding), address(self._positions), parts.scale),
            *(_norm(parts.embedding_norm, kept), _norm(parts.final_norm, kept)),
            _linear(parts.output, kept),
        )
        self.vocabulary = parts.output.out_features
        self.handle = library.decoder_new(ctypes.byref(weights))
        weakref.finalize(self, library.decoder_free, self.handle)

    def begin(self, encoded: Tensor, lengths: Sequence[int]) -> "FusedDecoding":
        """Starts a search.

        Args:
            encoded: (longest, sentences, embed_dim) of the encoder, sentences at the right end
            lengths: of the sentences
        """
        return FusedDecoding(self, encoded, lengths)


class FusedDecoding:
    """One search: what its steps leave for later ones. Not for several threads at once."""

    def __init__(self, decoder: FusedDecoder, encoded: Tensor, lengths: Sequence[int]):
        assert encoded.dtype == torch.float32 and encoded.device.type == "cpu"
        encoded = encoded if encoded.stride(2) == 1 else encoded.contiguous()
        longest, sentences, _ = encoded.shape
        assert len(lengths) == sentences and max(lengths) == longest
        library = _library()
        self._decoder = decoder
        counts = torch.tensor(lengths)
        given = _Encoded(
            address(encoded),
            *(encoded.stride(0), encoded.stride(1), longest, sentences, address(counts)),
            torch.get_num_threads(),
        )
        self._handle = library.decoding_new(decoder.handle, ctypes.byref(given))
        weakref.finalize(self, library.decoding_free, self._handle)

    def step(
        self,
        tokens: Tensor,
        sentences: Tensor,
        parents: Tensor | None,
        most: int,
        rules: Rules,
        no_end: bool,
        last: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Reads one more token of every hypothesis.

        Args:
            tokens: long, (rows), the newest token of each hypothesis
            sentences: long, (rows), whose they are; those of a sentence stand together
            parents: long, (rows), the row of each hypothesis in the step before; None at first
            most: how many tokens each hypothesis may go on with
            rules: what may be chosen
            no_end: whether no hypothesis may end
            last: bool, (rows), which must end

        Returns:
            log-probabilities (rows, most) of the most probable tokens, the best first, and these
        """
        tokens, sentences, last = (x.contiguous() for x in (tokens, sentences, last))
        parents = None if parents is None else parents.contiguous()
        best = torch.empty(len(tokens), most)
        best_tokens = torch.empty(len(tokens), most, dtype=torch.long)
        step = _Step(
            *(len(tokens), torch.get_num_threads(), *map(address, (tokens, sentences, parents))),
            *(rules.pad, rules.eos, rules.unk, rules.unk_penalty),
            *(no_end, address(last), most, address(best), address(best_tokens)),
        )
        _library().decoding_step(self._handle, ctypes.byref(step))
        return best, best_tokens


def _library() -> ctypes.CDLL:
    library = load_library()
    library.decoder_new.restype = library.decoding_new.restype = ctypes.c_void_p
    library.decoding_new.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.decoding_step.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    for name in ("decoder_new", "decoder_free", "decoding_free"):
        getattr(library, name).argtypes = (ctypes.c_void_p,)
    return library


def _pointer(tensor: Tensor | None, kept: list[Tensor]) -> int | None:
    if tensor is None:
        return None
    kept.append(tensor.detach().float().contiguous())
    return address(kept[-1])


def _linear(layer: nn.Linear, kept: list[Tensor]) -> "_Linear":
    pointers = _pointer(layer.weight, kept), _pointer(layer.bias, kept)
    return _Linear(*pointers, layer.out_features, layer.in_features)


def _norm(norm: nn.LayerNorm | None, kept: list[Tensor]) -> "_Norm":
    if norm is None:
        return _Norm(None, None, 0.0)
    return _Norm(_pointer(norm.weight, kept), _pointer(norm.bias, kept), norm.eps)


def _attention(parts: AttentionParts, kept: list[Tensor]) -> "_Attention":
    map_ = parts.map
    size = 1 if map_.kernel is None else map_.kernel.size(-1)
    return _Attention(
        *(_linear(x, kept) for x in (parts.queries, parts.keys, parts.values, parts.output)),
        _norm(parts.norm, kept),
        _Map(
            *(_pointer(map_.kernel, kept), _pointer(map_.bias, kept)),
            *(size, map_.right, map_.carries, map_.alpha, map_.beta),
        ),
    )


def _layer(parts: LayerParts, kept: list[Tensor]) -> "_Layer":
    return _Layer(
        _attention(parts.self_attention, kept),
        _attention(parts.cross_attention, kept),
        *(_linear(parts.first, kept), _linear(parts.second, kept), _norm(parts.norm, kept)),
    )


# The structures of linear.h, map_row.h and decoder.cpp, field by field.


class _Linear(ctypes.Structure):
    _fields_ = [
        *fields(ctypes.c_void_p, "weight bias"),
        *fields(ctypes.c_int64, "columns steps"),
    ]


class _Norm(ctypes.Structure):
    _fields_ = [*fields(ctypes.c_void_p, "weight bias"), ("eps", ctypes.c_double)]


class _Map(ctypes.Structure):
    _fields_ = [
        *fields(ctypes.c_void_p, "kernel bias"),
        *fields(ctypes.c_int64, "size right carries"),
        *fields(ctypes.c_double, "alpha beta"),
    ]


class _Attention(ctypes.Structure):
    _fields_ = [*fields(_Linear, "queries keys values output"), ("norm", _Norm), ("map", _Map)]


class _Layer(ctypes.Structure):
    _fields_ = [
        *fields(_Attention, "self_attention cross_attention"),
        *fields(_Linear, "first second"),
        ("norm", _Norm),
    ]


class _Decoder(ctypes.Structure):
    _fields_ = [
        ("layers", ctypes.c_void_p),
        *fields(ctypes.c_int64, "layer_count width heads norm_first"),
        *fields(ctypes.c_void_p, "embedding positions"),
        ("embedding_scale", ctypes.c_double),
        *fields(_Norm, "embedding_norm final_norm"),
        ("output", _Linear),
    ]


class _Encoded(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        *fields(ctypes.c_int64, "position_stride sentence_stride longest sentences"),
        ("lengths", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
    ]


class _Step(ctypes.Structure):
    _fields_ = [
        *fields(ctypes.c_int64, "rows threads"),
        *fields(ctypes.c_void_p, "tokens sentences parents"),
        *fields(ctypes.c_int64, "pad eos unk"),
        ("unk_penalty", ctypes.c_double),
        ("no_end", ctypes.c_int64),
        ("last", ctypes.c_void_p),
        ("most", ctypes.c_int64),
        *fields(ctypes.c_void_p, "best best_tokens"),
    ]
