"""Attention with its projections, and an encoder of it: drop-in for those of ``torch.nn``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from .cached_heads import Cache, reorder
from .contract import AttentionArgs, Place, State
from .functional import (
    build_transform,
    check_bias,
    check_carry,
    check_sizes,
    check_state,
    visible_pairs,
)
from .options import listed
from .projected import ProjectedAttention
from .scores.base import PRODUCT, build_scores, known_score


class AttentionCache:
    """What one attention keeps from step to step: keys, values, padding, its transform's rows.

    One for each attention of a model and each search.
    """

    def __init__(self) -> None:
        self.owner: Attention | None = None
        self.heads: Cache = {}
        self.state: State = {}
        self.padding: Tensor | None = None

    def reorder(self, order: Tensor) -> None:
        """Goes on with other hypotheses, as beam search has chosen them.

        Args:
            order: long, (new batch,): the old place of each new hypothesis; the batch may shrink
                and grow
        """
        self.heads = reorder(self.heads, order)
        self.state = {name: kept.index_select(0, order) for name, kept in self.state.items()}
        if self.padding is not None:
            self.padding = self.padding.index_select(0, order)


class Attention(ProjectedAttention):
    """Multi-head attention whose logits a variant transforms, like ``torch.nn.MultiheadAttention``.

    Evolving attention (arXiv 2102.12895) by default. The state dict of a
    ``torch.nn.MultiheadAttention`` loads with ``strict=False``: the variant's own parameters are
    all that it lacks.

    Args:
        embed_dim: width of queries and output
        num_heads: divides embed_dim
        kind: "encoder" (sees both sides), "decoder" (causal) or "encoder-decoder"
        variant: what happens to the logits, one of ``VARIANTS``
        layer: index of the layer in its stack, from 0; the first has no carry
        num_layers: of that stack
        batch_first: whether batch comes before length in inputs and outputs
        dropout: of the probabilities, in training
        bias: whether the projections have one
        kdim: width of keys and values, in encoder-decoder attention; embed_dim by default
        output_dim: width of the output; embed_dim by default
        scores: what makes the logits, one of ``SCORES``
        max_positions: longest sequence of scores that have weights by position (synthesizers)
        convolution, options: see :func:`build_transform`

    Raises:
        UserError: naming the argument, its value and the choices
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        kind: str = "encoder",
        variant: str = "evolving",
        layer: int = 0,
        num_layers: int = 1,
        batch_first: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        output_dim: int | None = None,
        scores: str = PRODUCT,
        max_positions: int = 1024,
        convolution: Any = None,
        **options: Any,
    ):
        super().__init__()
        check_sizes(embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            raise UserError(f"num_heads must divide embed_dim {embed_dim}, not {num_heads}")
        if kdim is not None and kind != "encoder-decoder":
            raise UserError(f"kdim is for kind='encoder-decoder', not {kind!r}")
        self.embed_dim, self.num_heads, self.kind = embed_dim, num_heads, kind
        self.head_dim = embed_dim // num_heads
        self.scaling = self.head_dim**-0.5
        self.batch_first, self.dropout = batch_first, dropout
        kdim = embed_dim if kdim is None else kdim
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias)
        self.k_proj = nn.Linear(kdim, embed_dim, bias)
        self.v_proj = nn.Linear(kdim, embed_dim, bias)
        output_dim = embed_dim if output_dim is None else output_dim
        self.out_proj = nn.Linear(embed_dim, output_dim, bias)
        self._reset_projections()
        place = Place(kind, num_heads, self.head_dim, layer, num_layers)
        self.transform = build_transform(
            *(variant, num_heads, self.head_dim, kind, layer, num_layers, convolution), **options
        )
        idle = num_layers == 1 and self.transform.uses_carry and "alpha" in options
        if idle and getattr(self.transform, "alpha", 0) != 0:
            raise UserError(
                "alpha would have no effect: num_layers=1 has no layer below; build each layer of "
                "a stack with layer= and num_layers=, or leave alpha out"
            )
        self.scores = build_scores(
            known_score("scores", scores), place, max_positions, "max_positions"
        )
        self.drop_unused_projections()
        self.register_load_state_dict_pre_hook(_split_projections)

    def _reset_projections(self) -> None:
        """As ``torch.nn.MultiheadAttention`` begins, whose three projections are one matrix."""
        one = (self.embed_dim + self.k_proj.in_features) == 2 * self.embed_dim
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5 if one else 1.0)
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        padding: Tensor | None = None,
        carry: Tensor | None = None,
        *,
        query_padding: Tensor | None = None,
        bias: Tensor | None = None,
        need_probs: bool = False,
    ) -> tuple[Tensor, Tensor | None] | tuple[Tensor, Tensor | None, Tensor]:
        """Attends.

        Args:
            query: (batch, tgt_len, embed_dim), or (tgt_len, batch, embed_dim) without batch_first
            key: (batch, src_len, kdim), also the values; only in encoder-decoder attention
            padding: bool, (batch, src_len), True where a token is padding, as torch's
                ``key_padding_mask``; in self-attention it counts for queries too
            carry: (batch, heads, tgt_len, src_len), that this attention one layer below returned;
                None in the first layer
            query_padding: bool, (batch, tgt_len), of queries in encoder-decoder attention. Where
                there is padding it must be given: the rows of padded queries are next to others
            bias: broadcastable to (batch, heads, tgt_len, src_len), added to the logits before
                they are transformed, such as relative positions; finite
            need_probs: whether to return the probabilities too

        Returns:
            output (as ``query``, but output_dim wide), carry (None where the variant has none), and
            with need_probs the probabilities before dropout (batch, heads, tgt_len, src_len)

        Raises:
            UserError: naming what does not fit
        """
        key = self._key(query, key, query_padding)
        query, key = self._time_first(query), self._time_first(key)
        tgt_len, bsz, _ = query.shape
        if key.size(1) != bsz:
            raise UserError(f"key has {key.size(1)} sentences for {bsz} of the query")
        shape = bsz, self.num_heads, tgt_len, len(key)
        check_carry(self.transform, carry)
        causal = self.kind == "decoder"
        query_padding = query_padding if self.kind == "encoder-decoder" else padding
        visible = self._visible(shape, padding, query_padding, causal, query.device)
        _check_maps(shape, carry, bias)
        dropout = self.dropout if self.training else 0.0
        args = AttentionArgs(
            *(self.scaling, visible, carry, dropout, need_probs), bias=bias, causal=causal
        )
        output, carry, probs = self.attend_whole(query, key, args)
        output = self._time_first(self.out_proj(output))
        return (output, carry, probs) if need_probs else (output, carry)

    def step(
        self,
        query: Tensor,
        cache: AttentionCache,
        key: Tensor | None = None,
        padding: Tensor | None = None,
        carry: Tensor | None = None,
        *,
        query_padding: Tensor | None = None,
        bias: Tensor | None = None,
        need_probs: bool = False,
    ) -> tuple[Tensor, Tensor | None] | tuple[Tensor, Tensor | None, Tensor]:
        """Attends with one new position: that row of :meth:`forward`.

        Args:
            query: (batch, 1, embed_dim), or (1, batch, embed_dim) without batch_first
            cache: of this attention and this search, a new one at the first position; changed
            key: encoder-decoder attention: (sentences, src_len, kdim) at the first position, kept
                from then on. Neighbouring hypotheses may share a sentence
            padding: self-attention: bool, (batch, 1), whether this position is padding; the cache
                keeps that of earlier ones. Encoder-decoder attention: bool, (batch, src_len), with
                the first key, kept from then on
            carry: (batch, heads, 1, src_len), of the layer below
            query_padding: bool, (batch, 1), as in :meth:`forward`
            bias: broadcastable to (batch, heads, 1, src_len)
            need_probs: as in :meth:`forward`

        Returns:
            as :meth:`forward`, with tgt_len = 1

        Raises:
            UserError: an encoder has no steps, or naming what does not fit
        """
        if self.kind == "encoder":
            raise UserError("kind='encoder' has no steps: its rows depend on later ones")
        first = not cache.heads
        if cache.owner not in (None, self):
            raise UserError("cache is another attention's: each layer needs one of its own")
        cache.owner = self
        if first or self.kind == "decoder":
            key = self._time_first(self._key(query, key, query_padding))
        query = self._time_first(query)
        tgt_len, bsz, _ = query.shape
        if tgt_len != 1:
            raise UserError(f"query must be one position, not {tgt_len}")
        check_carry(self.transform, carry)
        if not first:
            _check_cache(cache, bsz)
        if self.kind == "decoder":
            src_len = 1 if first else 1 + cache.heads["rows"].size(1)
            _check_padding("padding", padding, (bsz, 1))
            query_padding, cache.padding = padding, _longer(cache.padding, padding, bsz, src_len)
        else:
            src_len = len(key) if first else cache.heads["prev_value"].size(0)
            if first:
                if key.size(1) == 0 or bsz % key.size(1):
                    raise UserError(f"key has {key.size(1)} sentences for {bsz} hypotheses")
                cache.padding = padding
        shape = bsz, self.num_heads, 1, src_len
        visible = self._visible(shape, cache.padding, query_padding, False, query.device)
        _check_maps(shape, carry, bias)
        dropout = self.dropout if self.training else 0.0
        args = AttentionArgs(self.scaling, visible, carry, dropout, need_probs, bias=bias)
        output, carry, probs, cache.heads, cache.state = self.attend_row(
            query, key, args, cache.heads, cache.state
        )
        output = self._time_first(self.out_proj(output))
        return (output, carry, probs) if need_probs else (output, carry)

    def _key(self, query: Tensor, key: Tensor | None, query_padding: Tensor | None) -> Tensor:
        self._check_width("query", query, self.embed_dim)
        if self.kind != "encoder-decoder":
            if query_padding is not None:
                raise UserError("query_padding is for kind='encoder-decoder': here padding has it")
            if key is not None and key is not query:
                raise UserError(f"key is for kind='encoder-decoder', not {self.kind!r}")
            return query
        if key is None:
            raise UserError("kind='encoder-decoder' needs a key")
        self._check_width("key", key, self.v_proj.in_features)
        return key

    def _time_first(self, x: Tensor) -> Tensor:
        """Swaps batch and length where they come in torch's order; its own inverse."""
        if x.dim() != 3:
            raise UserError(f"query and key have three dimensions, not {tuple(x.shape)}")
        return x.transpose(0, 1) if self.batch_first else x

    def _check_width(self, name: str, x: Tensor, width: int) -> None:
        if x.size(-1) != width:
            raise UserError(f"{name} must be {width} wide, not {x.size(-1)}")

    def _visible(
        self,
        shape: tuple[int, int, int, int],
        padding: Tensor | None,
        query_padding: Tensor | None,
        causal: bool,
        device: torch.device,
    ) -> Tensor | None:
        bsz, _, tgt_len, src_len = shape
        _check_padding("padding", padding, (bsz, src_len))
        _check_padding("query_padding", query_padding, (bsz, tgt_len))
        return visible_pairs(padding, query_padding, tgt_len if causal else 0, device)


class EncoderLayer(nn.Module):
    """``torch.nn.TransformerEncoderLayer`` with a transformed self-attention.

    Parameters carry that layer's names. Args: see :class:`Encoder`.
    """

    def __init__(
        self,
        attention: Attention,
        ffn_dim: int,
        dropout: float,
        norm_first: bool,
        activation: Callable[[Tensor], Tensor],
        layer_norm_eps: float,
        bias: bool,
    ):
        super().__init__()
        width = attention.embed_dim
        self.self_attn = attention
        self.linear1 = nn.Linear(width, ffn_dim, bias)
        self.linear2 = nn.Linear(ffn_dim, width, bias)
        self.norm1 = nn.LayerNorm(width, layer_norm_eps, bias=bias)
        self.norm2 = nn.LayerNorm(width, layer_norm_eps, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.activation, self.norm_first = activation, norm_first

    def forward(
        self,
        x: Tensor,
        padding: Tensor | None = None,
        carry: Tensor | None = None,
        *,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Runs the layer.

        Args:
            x: (batch, length, embed_dim), or (length, batch, embed_dim) without batch_first
            padding, carry, bias: as :meth:`Attention.forward` has them

        Returns:
            output, as ``x``, and the carry for the layer above
        """
        if self.norm_first:
            attended, carry = self.self_attn(self.norm1(x), None, padding, carry, bias=bias)
            x = x + self.dropout(attended)
            return x + self._feed_forward(self.norm2(x)), carry
        attended, carry = self.self_attn(x, None, padding, carry, bias=bias)
        x = self.norm1(x + self.dropout(attended))
        return self.norm2(x + self._feed_forward(x)), carry

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class Encoder(nn.Module):
    """A Transformer encoder whose attention maps evolve from layer to layer.

    Like ``torch.nn.TransformerEncoder``, whose state dict loads with ``strict=False``: what the
    variant adds, such as convolutions, is all that it lacks. At alpha = beta = 0 (or another
    variant's neutral setting) both are equal.

    Args:
        num_layers: at least 1
        embed_dim: width
        num_heads: divides embed_dim
        ffn_dim: width of the feed-forward network
        dropout: of probabilities, activations and residual connections, in training
        norm_first: whether layer norms stand before attention and feed-forward network
        variant: what happens to the logits, one of ``VARIANTS``
        activation: "relu", "gelu" or a function
        layer_norm_eps: of the layer norms
        batch_first: whether batch comes before length
        bias: whether linear layers and layer norms have one
        norm: whether one more layer norm follows the last layer
        scores, max_positions, options: as :class:`Attention` has them
        convolution: a function of (num_heads, kernel_size), called for each layer, which makes the
            module with the weights of its map's convolution

    Raises:
        UserError: naming the argument, its value and the choices
    """

    def __init__(
        self,
        num_layers: int,
        embed_dim: int,
        num_heads: int,
        ffn_dim: int = 2048,
        dropout: float = 0.1,
        norm_first: bool = False,
        variant: str = "evolving",
        *,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = True,
        bias: bool = True,
        norm: bool = False,
        scores: str = PRODUCT,
        max_positions: int = 1024,
        convolution: Any = None,
        **options: Any,
    ):
        super().__init__()
        if num_layers < 1:
            raise UserError(f"num_layers must be at least 1, not {num_layers}")
        if isinstance(convolution, nn.Module):
            raise UserError(
                "convolution must be a function of (num_heads, kernel_size) that makes a module "
                "for each layer, not one module for all"
            )
        if isinstance(activation, str):
            if activation not in _ACTIVATIONS:
                raise UserError(
                    f"activation must be one of {listed(_ACTIVATIONS)} or a function, "
                    f"not {activation!r}"
                )
            activation = _ACTIVATIONS[activation]
        self.layers = nn.ModuleList(
            EncoderLayer(
                Attention(
                    *(embed_dim, num_heads, "encoder", variant, layer, num_layers),
                    batch_first=batch_first,
                    dropout=dropout,
                    bias=bias,
                    scores=scores,
                    max_positions=max_positions,
                    convolution=convolution,
                    **options,
                ),
                *(ffn_dim, dropout, norm_first, activation, layer_norm_eps, bias),
            )
            for layer in range(num_layers)
        )
        self.norm = nn.LayerNorm(embed_dim, layer_norm_eps, bias=bias) if norm else None

    def forward(
        self, x: Tensor, padding: Tensor | None = None, *, bias: Tensor | None = None
    ) -> Tensor:
        """Encodes.

        Args:
            x: (batch, length, embed_dim), or (length, batch, embed_dim) without batch_first
            padding: bool, (batch, length), True where a token is padding, as torch's
                ``src_key_padding_mask``
            bias: broadcastable to (batch, heads, length, length), added to the logits of every
                layer, such as relative positions; finite

        Returns:
            as ``x``; what stands at padded places means nothing
        """
        carry = None
        for layer in self.layers:
            x, carry = layer(x, padding, carry, bias=bias)
        return x if self.norm is None else self.norm(x)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


def _split_projections(module: Attention, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Reads what ``torch.nn.MultiheadAttention`` keeps: one matrix for three projections."""
    projections = "q_proj", "k_proj", "v_proj"
    for name in ("in_proj_weight", "in_proj_bias"):
        whole = state.pop(prefix + name, None)
        if whole is not None:
            for projection, part in zip(projections, whole.chunk(3), strict=True):
                if getattr(module, projection) is not None:
                    state[f"{prefix}{projection}.{name.removeprefix('in_proj_')}"] = part
    for projection in projections:
        weight = state.pop(f"{prefix}{projection}_weight", None)  # of other widths (kdim)
        if weight is not None and getattr(module, projection) is not None:
            state[f"{prefix}{projection}.weight"] = weight


def _check_padding(name: str, padding: Tensor | None, shape: tuple[int, int]) -> None:
    if padding is None:
        return
    if not isinstance(padding, Tensor) or padding.dtype != torch.bool or padding.shape != shape:
        raise UserError(
            f"{name} must be torch.bool {shape}, True where a token is padding (no mask over "
            f"pairs), not {_shown(padding)}"
        )


def _check_cache(cache: AttentionCache, bsz: int) -> None:
    heads = cache.heads
    if "rows" in heads:
        held = len(heads["rows"])
    else:
        held = heads["prev_value"].size(1) * int(heads["hypotheses"])
    if held != bsz:
        raise UserError(
            f"query has {bsz} hypotheses and the cache {held}: cache.reorder(order) changes them, "
            "and another search needs a new cache"
        )
    check_state(cache.state, bsz)


def _check_maps(
    shape: tuple[int, int, int, int], carry: Tensor | None, bias: Tensor | None
) -> None:
    if carry is not None and (not isinstance(carry, Tensor) or carry.shape != shape):
        raise UserError(f"carry must be {shape}, not {_shown(carry)}")
    if bias is not None:
        check_bias(bias, shape)


def _shown(given: Any) -> str:
    """What was given, for a message."""
    if not isinstance(given, Tensor):
        return f"a {type(given).__name__}"
    return f"{given.dtype} {tuple(given.shape)}"


def _longer(kept: Tensor | None, new: Tensor | None, bsz: int, length: int) -> Tensor | None:
    """Padding of all positions so far: (batch, length), or None where there is none."""
    if kept is None and new is None:
        return None
    device = (kept if new is None else new).device
    if kept is None:
        kept = torch.zeros(bsz, length - 1, dtype=torch.bool, device=device)
    if new is None:
        new = torch.zeros(bsz, 1, dtype=torch.bool, device=device)
    return torch.cat([kept, new], dim=1)
