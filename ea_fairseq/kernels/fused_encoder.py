"""A Transformer's encoder with plain or evolving attention, whole."""

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .cpp.library import Held, address, call, fields
from .transformer_parts import (
    Attention,
    AttentionParts,
    Kept,
    Network,
    NetworkParts,
    Stack,
    StackParts,
    attention,
    network,
    stack,
)


@dataclass(frozen=True)
class EncoderLayerParts:
    """A layer of an encoder."""

    attention: AttentionParts
    network: NetworkParts


class FusedEncoder(Held):
    """An encoder's weights, packed for the compiled library, float32 or int8 on the CPU.

    Later changes of the weights have no part in it, but for those of embedded words, which are read
    where they are. Threads may share one.

    Args:
        parts: what is around the layers
        layers: from the first
    """

    def __init__(self, parts: StackParts, layers: Sequence[EncoderLayerParts]):
        self._kept: Kept = []
        packed: Kept = []
        found = [_Layer(attention(x.attention, packed), network(x.network, packed)) for x in layers]
        array = (_Layer * len(found))(*found)
        given = stack(parts, self._kept)
        weights = _Encoder(given, ctypes.cast(array, ctypes.c_void_p), len(found))
        self._vocabulary, self._width = parts.words.shape
        #: The longest sentence that there are positions for.
        self.longest = sys.maxsize if parts.positions is None else len(parts.positions)
        self._handle = self.hold("encoder", ctypes.byref(weights))

    def __call__(self, sentences: Sequence[Sequence[int]]) -> Tensor:
        """Encodes sentences, of which none is empty or has padding.

        Raises:
            IndexError: a token is none of the vocabulary

        Returns:
            (positions, embed_dim) of all sentences, one after the other
        """
        lengths = torch.tensor([len(sentence) for sentence in sentences])
        tokens = torch.tensor([token for sentence in sentences for token in sentence])
        if not 0 <= int(tokens.min()) <= int(tokens.max()) < self._vocabulary:
            raise IndexError(f"tokens are numbers from 0 to {self._vocabulary - 1}")
        encoded = torch.empty(len(tokens), self._width)
        batch = _Encoding(
            *(len(sentences), torch.get_num_threads()),
            *map(address, (lengths, tokens, encoded)),
        )
        call("encoder_run", self._handle, ctypes.byref(batch))
        return encoded


# The structures of encoder.cpp, field by field.


class _Layer(ctypes.Structure):
    _fields_ = [("attention", Attention), ("network", Network)]


class _Encoder(ctypes.Structure):
    _fields_ = [("stack", Stack), ("layers", ctypes.c_void_p), ("layer_count", ctypes.c_int64)]


class _Encoding(ctypes.Structure):
    _fields_ = [
        *fields(ctypes.c_int64, "sentences threads"),
        *fields(ctypes.c_void_p, "lengths tokens out"),
    ]
