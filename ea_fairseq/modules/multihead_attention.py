"""The attention of every EA model: fairseq's, with a logit transform before the softmax."""

from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..variants import LogitTransform
from ..variants.cached_heads import CachedHeads, append, share
from .dropout import rate_in_use

IncrementalState = dict[str, dict[str, Tensor | None]]


class TransformedAttention(MultiheadAttention):
    """Multi-head attention whose logits pass through a :class:`LogitTransform`.

    Parameters carry the names of fairseq's ``MultiheadAttention``, so that its checkpoints load;
    those of the transform are added. fairseq's ``forward`` is replaced as a whole: it uses torch's
    fused attention in training, which has no place for a transform.

    Args:
        transform: what happens to the logits
        kwargs: those of fairseq's ``MultiheadAttention``
    """

    def __init__(self, embed_dim: int, num_heads: int, transform: LogitTransform, **kwargs: Any):
        super().__init__(embed_dim, num_heads, **kwargs)
        self.transform = transform

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        visible: Tensor | None,
        carry: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = False,
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

        Returns:
            output: (tgt_len, batch, embed_dim)
            probs: (heads, batch, tgt_len, src_len), or None
            carry: (batch, heads, tgt_len, src_len), the transformed logits with 0 in hidden
                entries, or None where the transform does not use them
        """
        attend = self._attend_full if incremental_state is None else self._attend_step
        output, carry, probs = attend(
            self._heads(self.q_proj(query)),
            key,
            visible,
            carry,
            incremental_state,
            need_weights,
        )
        output = output.permute(2, 0, 1, 3).reshape(query.shape[0], query.shape[1], self.embed_dim)
        return self.out_proj(output), probs.transpose(0, 1) if need_weights else None, carry

    def _attend_full(
        self,
        queries: Tensor,
        key: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        _: None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        keys, values = self._heads(self.k_proj(key)), self._heads(self.v_proj(key))
        dropout = rate_in_use(self.dropout_module)
        return self.transform.attend(
            queries, keys, values, self.scaling, visible, carry, dropout, need_weights
        )

    def _attend_step(
        self,
        queries: Tensor,
        key: Tensor | None,
        visible: Tensor | None,
        carry: Tensor | None,
        incremental_state: IncrementalState,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        cached = self._cached_heads(queries.size(0), key, incremental_state)
        state = self.get_incremental_state(incremental_state, "logit_state") or {}
        dropout = rate_in_use(self.dropout_module)
        output, carry, probs, state = self.transform.attend_step(
            queries, cached, self.scaling, visible, carry, state, dropout, need_weights
        )
        self.set_incremental_state(incremental_state, "logit_state", state)
        return output, carry, probs

    def _heads(self, projected: Tensor) -> Tensor:
        """(length, batch, embed_dim) to (batch, heads, length, head_dim)."""
        length, bsz, _ = projected.shape
        return projected.view(length, bsz, self.num_heads, self.head_dim).permute(1, 2, 0, 3)

    def _cached_heads(
        self, bsz: int, key: Tensor | None, incremental_state: IncrementalState
    ) -> CachedHeads:
        """Keys and values so far, which are then cached."""
        cache = self._get_input_buffer(incremental_state)
        if not self.encoder_decoder_attention:
            cache = append(cache, self.k_proj(key), self.v_proj(key))
        elif not cache:
            cache = {
                "prev_key": self.k_proj(key),
                "prev_value": self.v_proj(key),
                "hypotheses": torch.tensor(bsz // key.size(1)),
            }
        self._set_input_buffer(incremental_state, cache)
        return CachedHeads(
            cache["prev_key"],
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
            keys, values = cache["prev_key"], cache["prev_value"]
            sentences, together = share(new_order, keys.size(1), int(cache["hypotheses"]))
            if sentences is not None:
                keys, values = keys.index_select(1, sentences), values.index_select(1, sentences)
            cache = {
                "prev_key": keys,
                "prev_value": values,
                "hypotheses": torch.tensor(together),
            }
        self._set_input_buffer(incremental_state, cache)
        state = self.get_incremental_state(incremental_state, "logit_state")
        if state:
            state = {name: kept.index_select(0, new_order) for name, kept in state.items()}
            self.set_incremental_state(incremental_state, "logit_state", state)
        return incremental_state
