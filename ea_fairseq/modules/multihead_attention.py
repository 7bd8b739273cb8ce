"""The attention of every EA model: fairseq's, with a score function and a logit transform."""

from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..scores import ScoreFunction
from ..variants import LogitTransform
from ..variants.cached_heads import CachedHeads, append, share
from .dropout import rate_in_use

IncrementalState = dict[str, dict[str, Tensor | None]]


class TransformedAttention(MultiheadAttention):
    """Multi-head attention whose logits pass through a :class:`LogitTransform`.

    Parameters carry the names of fairseq's ``MultiheadAttention``, so that its checkpoints load;
    those of the transform and the score function are added. fairseq's ``forward`` is replaced as a
    whole: it uses torch's fused attention in training, which has no place for a transform.

    Args:
        transform: what happens to the logits
        scores: what makes them; the scaled product by default. Queries and keys that nobody uses
            are not projected
        kwargs: those of fairseq's ``MultiheadAttention``
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        transform: LogitTransform,
        scores: ScoreFunction | None = None,
        **kwargs: Any,
    ):
        super().__init__(embed_dim, num_heads, **kwargs)
        self.transform = transform
        self.scores = scores or ScoreFunction()
        if not self.scores.uses_queries:
            self.q_proj = None
        if not (self.scores.uses_keys or transform.uses_keys):
            self.k_proj = None

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        visible: Tensor | None,
        carry: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = False,
        causal: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Attends.

        Args:
            query: (tgt_len, batch, embed_dim); tgt_len = 1 with an incremental state
            key: (src_len, batch, embed_dim), also the values; the query itself in self-attention.
                In encoder-decoder attention unused once its projections are cached, and with an
                incremental state (src_len, sentences, embed_dim) where neighbouring hypotheses
                share a sentence
            visible: bool, broadcastable to (batch, 1, tgt_len, src_len), True = may attend; None =
                everything. With an incremental state, src_len counts the earlier keys too.
            carry: (batch, heads, tgt_len, src_len), the carry of the layer below, or None
            incremental_state: fairseq's cache for decoding step by step, or None
            need_weights: whether to return the probabilities
            causal: whether ``visible`` hides all later keys, of whole maps

        Returns:
            output: (tgt_len, batch, embed_dim)
            probs: (heads, batch, tgt_len, src_len), or None
            carry: (batch, heads, tgt_len, src_len), the transformed logits with 0 in hidden
                entries, or None where the transform does not use them
        """
        attend = self._attend_full if incremental_state is None else self._attend_step
        output, carry, probs = attend(
            query,
            key,
            visible,
            carry,
            incremental_state,
            need_weights,
            causal,
        )
        output = output.permute(2, 0, 1, 3).reshape(query.shape[0], query.shape[1], self.embed_dim)
        return self.out_proj(output), probs.transpose(0, 1) if need_weights else None, carry

    def _attend_full(
        self,
        query: Tensor,
        key: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        _: None,
        need_weights: bool,
        causal: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        queries, keys = self._heads(self._queries(query)), self._heads(self._keys(key))
        values = self._heads(self.v_proj(key))
        logits = None
        if not self.scores.is_product:
            shape = (query.size(1), query.size(0), key.size(0))
            logits = self.scores(queries, keys, self.scaling, shape, visible)
        dropout = rate_in_use(self.dropout_module)
        return self.transform.attend(
            *(queries, keys, values, self.scaling, visible, carry, dropout, need_weights, logits),
            causal=causal,
        )

    def _attend_step(
        self,
        query: Tensor,
        key: Tensor | None,
        visible: Tensor | None,
        carry: Tensor | None,
        incremental_state: IncrementalState,
        need_weights: bool,
        _: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        queries = self._heads(self._queries(query))
        cached = self._cached_heads(query.size(1), key, incremental_state)
        logits = None
        if not self.scores.is_product:
            shape = (query.size(1), 1, cached.src_len)
            logits = self.scores(queries, cached.heads()[0], self.scaling, shape, visible)
        state = self.get_incremental_state(incremental_state, "logit_state") or {}
        dropout = rate_in_use(self.dropout_module)
        output, carry, probs, state = self.transform.attend_step(
            queries, cached, self.scaling, visible, carry, state, dropout, need_weights, logits
        )
        self.set_incremental_state(incremental_state, "logit_state", state)
        return output, carry, probs

    def _queries(self, query: Tensor) -> Tensor | None:
        """(tgt_len, batch, embed_dim), projected and mapped; None where none are used."""
        if self.q_proj is None:
            return None
        queries = self.q_proj(query).unflatten(2, (self.num_heads, -1))
        return self.scores.map_queries(queries).flatten(2)

    def _keys(self, key: Tensor) -> Tensor | None:
        """(src_len, batch, embed_dim), projected and mapped; None where none are used."""
        if self.k_proj is None:
            return None
        keys = self.k_proj(key).unflatten(2, (self.num_heads, -1))
        return self.scores.map_keys(keys).flatten(2)

    def _heads(self, projected: Tensor | None) -> Tensor | None:
        """(length, batch, embed_dim) to (batch, heads, length, head_dim)."""
        if projected is None:
            return None
        length, bsz, _ = projected.shape
        return projected.view(length, bsz, self.num_heads, self.head_dim).permute(1, 2, 0, 3)

    def _cached_heads(
        self, bsz: int, key: Tensor | None, incremental_state: IncrementalState
    ) -> CachedHeads:
        """Keys and values so far, which are then cached."""
        cache = self._get_input_buffer(incremental_state)
        if not self.encoder_decoder_attention:
            cache = append(cache, self._keys(key), self.v_proj(key))
        elif not cache:
            kept = {"prev_key": self._keys(key), "prev_value": self.v_proj(key)}
            cache = {name: one for name, one in kept.items() if one is not None}
            cache["hypotheses"] = torch.tensor(bsz // key.size(1), device="cpu")
        self._set_input_buffer(incremental_state, cache)
        return CachedHeads(
            cache.get("prev_key"),
            cache["prev_value"],
            self.num_heads,
            cache.get("rows"),
            int(cache.get("hypotheses", 1)),
        )

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Moves what is kept to its new hypotheses: the transform's state, and whose keys and
        values are whose."""
        cache = self._get_input_buffer(incremental_state)
        if "rows" in cache:
            cache = {**cache, "rows": cache["rows"].index_select(0, new_order)}
        elif cache:
            together = int(cache["hypotheses"])
            kept = {name: one for name, one in cache.items() if name != "hypotheses"}
            sentences, together = share(new_order, kept["prev_value"].size(1), together)
            if sentences is not None:
                kept = {name: one.index_select(1, sentences) for name, one in kept.items()}
            cache = {**kept, "hypotheses": torch.tensor(together, device="cpu")}
        self._set_input_buffer(incremental_state, cache)
        state = self.get_incremental_state(incremental_state, "logit_state")
        if state:
            state = {name: kept.index_select(0, new_order) for name, kept in state.items()}
            self.set_incremental_state(incremental_state, "logit_state", state)
        return incremental_state
