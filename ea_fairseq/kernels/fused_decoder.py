"""A Transformer's decoder with plain or evolving attention, a whole step of a search at once."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .cpp.library import Held, address, call, fields
from .transformer_parts import (
    Attention,
    AttentionParts,
    Kept,
    Linear,
    Network,
    NetworkParts,
    Stack,
    StackParts,
    attention,
    linear,
    network,
    stack,
)


@dataclass(frozen=True)
class DecoderLayerParts:
    """A layer of a decoder."""

    self_attention: AttentionParts
    cross_attention: AttentionParts
    network: NetworkParts


@dataclass(frozen=True)
class DecoderParts:
    """A decoder: what is around its layers, these, and the output layer."""

    stack: StackParts
    layers: Sequence[DecoderLayerParts]
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


class FusedDecoder(Held):
    """A decoder's weights, packed for the compiled library, float32 or int8 on the CPU.

    Later changes of the weights have no part in it, but for those of embedded words, which are read
    where they are. Threads may share one.

    Args:
        parts: of the decoder
    """

    def __init__(self, parts: DecoderParts):
        self._kept: Kept = []
        packed: Kept = []
        layers = [_layer(layer, packed) for layer in parts.layers]
        array = (_Layer * len(layers))(*layers)
        weights = _Decoder(
            *(stack(parts.stack, self._kept), ctypes.cast(array, ctypes.c_void_p), len(layers)),
            linear(parts.output, packed),
        )
        self.vocabulary = parts.output.out_features
        self.handle = self.hold("decoder", ctypes.byref(weights))

    def begin(self, encoded: Tensor, lengths: Sequence[int]) -> "FusedDecoding":
        """Starts a search.

        Args:
            encoded: (positions, embed_dim) of the encoder, one sentence after the other
            lengths: of the sentences
        """
        return FusedDecoding(self, encoded, lengths)


class FusedDecoding(Held):
    """One search: what its steps leave for later ones. Not for several threads at once."""

    def __init__(self, decoder: FusedDecoder, encoded: Tensor, lengths: Sequence[int]):
        assert encoded.dtype == torch.float32 and encoded.device.type == "cpu"
        assert len(encoded) == sum(lengths)
        encoded, counts = encoded.contiguous(), torch.tensor(lengths)
        self._decoder = decoder
        given = _Encoded(*(address(encoded), len(counts), address(counts), torch.get_num_threads()))
        self._handle = self.hold("decoding", decoder.handle, ctypes.byref(given))

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
        # What the library takes on trust: it would read and write beyond its memory.
        assert tokens.dtype == sentences.dtype == torch.long
        assert last.dtype == torch.bool and len(tokens) == len(sentences) == len(last)
        assert parents is None or (parents.dtype == torch.long and len(parents) == len(tokens))
        assert 1 <= most <= self._decoder.vocabulary
        tokens, sentences, last = (x.contiguous() for x in (tokens, sentences, last))
        parents = None if parents is None else parents.contiguous()
        best = torch.empty(len(tokens), most)
        best_tokens = torch.empty(len(tokens), most, dtype=torch.long)
        step = _Step(
            *(len(tokens), torch.get_num_threads(), *map(address, (tokens, sentences, parents))),
            *(rules.pad, rules.eos, rules.unk, rules.unk_penalty),
            *(no_end, address(last), most, address(best), address(best_tokens)),
        )
        call("decoding_step", self._handle, ctypes.byref(step))
        return best, best_tokens


def _layer(parts: DecoderLayerParts, kept: Kept) -> "_Layer":
    attentions = parts.self_attention, parts.cross_attention
    return _Layer(*(attention(x, kept) for x in attentions), network(parts.network, kept))


# The structures of decoder.cpp, field by field.


class _Layer(ctypes.Structure):
    _fields_ = [*fields(Attention, "self_attention cross_attention"), ("network", Network)]


class _Decoder(ctypes.Structure):
    _fields_ = [
        *(("stack", Stack), ("layers", ctypes.c_void_p), ("layer_count", ctypes.c_int64)),
        ("output", Linear),
    ]


class _Encoded(ctypes.Structure):
    _fields_ = [
        *(("data", ctypes.c_void_p), ("sentences", ctypes.c_int64)),
        *(("lengths", ctypes.c_void_p), ("threads", ctypes.c_int64)),
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
