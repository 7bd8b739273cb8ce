"""Evolving attention and its relatives for any model; imports torch alone.

>>> from ea_fairseq.attention import Encoder
>>> encoder = Encoder(num_layers=6, embed_dim=256, num_heads=8, alpha=0.1, beta=0.1)
>>> encoded = encoder(x, padding)  # (batch, length, 256), True where a token is padding

In reading order:

    layers.py          `Attention` and `Encoder`: drop-in for those of torch.nn; steps with a cache
    functional.py      `attend`: the same for queries, keys and values of your own
    contract.py        what a transform does to the maps, before and after the softmax
    convolution.py     convolutions over maps: encoder, decoder, encoder-decoder
    variants/          the transforms, one file each: evolving attention and its relatives
    scores/            what makes the logits: scaled products and other score functions
    projected.py       projections around a transform, which fairseq's models share with `Attention`
    cached_heads.py    keys and values that decoding keeps
    registry.py        what a variant is: options, architectures, transform and test cases
    options.py         how options are declared and read
    configuration.py   the options of a fairseq model: which variant serves which attention
"""

from .contract import LogitTransform
from .convolution import MapConvolution
from .functional import Attended, attend, attend_step, build_transform, visible_pairs
from .layers import Attention, AttentionCache, Encoder
from .scores import SCORES
from .variants import VARIANTS

__all__ = [
    "SCORES",
    "VARIANTS",
    "Attended",
    "Attention",
    "AttentionCache",
    "Encoder",
    "LogitTransform",
    "MapConvolution",
    "attend",
    "attend_step",
    "build_transform",
    "visible_pairs",
]
