"""The attention of every EA model: fairseq's, with a logit transform before the softmax."""

from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..logits import LogitTransform

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
            key: (src_len, batch, embed_dim), also the values; the query itself in self-attention;
                unused in encoder-decoder attention once its projections are cached
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
        values, logits, visible = attend(query, key, visible, carry, incremental_state)

        probs = _masked_softmax(logits, visible)
        output = _shared_matmul(self.dropout_module(probs).to(values.dtype), values)
        output = output.permute(2, 0, 1, 3).reshape(query.shape[0], query.shape[1], self.embed_dim)
        return (
            self.out_proj(output),
            probs.transpose(0, 1) if need_weights else None,
            logits if self.transform.uses_carry else None,
        )

    def _attend_full(
        self,
        query: Tensor,
        key: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        _: None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        keys, values = self._heads(self.k_proj(key)), self._heads(self.v_proj(key))
        logits = self._logits(query, keys)
        logits, visible = self.transform(logits, visible, carry)
        return values, logits, visible

    def _attend_step(
        self,
        query: Tensor,
        key: Tensor | None,
        visible: Tensor | None,
        carry: Tensor | None,
        incremental_state: IncrementalState,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        keys, values = self._cached_heads(key, incremental_state)
        logits = self._logits(query, keys)
        state = self.get_incremental_state(incremental_state, "logit_state") or {}
        logits, visible, state = self.transform.step(logits, visible, carry, state)
        self.set_incremental_state(incremental_state, "logit_state", state)
        return values, logits, visible

    def _heads(self, projected: Tensor) -> Tensor:
        """(length, batch, embed_dim) to (batch, heads, length, head_dim)."""
        length, bsz, _ = projected.shape
        return projected.view(length, bsz, self.num_heads, self.head_dim).permute(1, 2, 0, 3)

    def _logits(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scaled products, (batch, heads, tgt_len, src_len), in float32 at least.

        The maps of all layers add up: half precision would lose digits that the softmax needs, and
        a convolution over large logits would overflow.
        """
        queries = self._heads(self.q_proj(query) * self.scaling)
        logits = _shared_matmul(queries, keys.transpose(2, 3))
        return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits

    def _cached_heads(
        self, key: Tensor | None, incremental_state: IncrementalState
    ) -> tuple[Tensor, Tensor]:
        """Keys and values so far, which are then cached.

        Returns:
            keys and values, each (batch, heads, src_len, head_dim); in encoder-decoder attention
            after ``set_beam_size``, batch counts sentences instead of hypotheses
        """
        cache = self._get_input_buffer(incremental_state)
        if not (self.encoder_decoder_attention and "prev_key" in cache):
            if self.encoder_decoder_attention and self.beam_size > 1:
                key = key[:, :: self.beam_size]  # the hypotheses of a sentence share its source
            keys, values = self._heads(self.k_proj(key)), self._heads(self.v_proj(key))
            if "prev_key" in cache:
                keys = torch.cat([cache["prev_key"], keys], dim=2)
                values = torch.cat([cache["prev_value"], values], dim=2)
            cache = {"prev_key": keys, "prev_value": values}
            self._set_input_buffer(incremental_state, cache)
        return cache["prev_key"], cache["prev_value"]

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Moves cached keys, values and the transform's state to their new hypotheses.

        fairseq leaves cached keys alone where the hypotheses of a sentence share them; the state of
        the transform belongs to one hypothesis and moves all the same.
        """
        incremental_state = super().reorder_incremental_state(incremental_state, new_order)
        state = self.get_incremental_state(incremental_state, "logit_state")
        if state:
            state = {name: kept.index_select(0, new_order) for name, kept in state.items()}
            self.set_incremental_state(incremental_state, "logit_state", state)
        return incremental_state


def _masked_softmax(logits: Tensor, visible: Tensor | None) -> Tensor:
    """Softmax over visible keys, in float32 at least; rows without any are 0, not NaN."""
    if visible is None:
        return logits.softmax(dim=-1)
    # The lowest finite number instead of -inf: exp gives 0 all the same wherever there is a
    # visible key, and rows without one keep finite gradients.
    lowest = torch.finfo(logits.dtype).min
    probs = logits.masked_fill(~visible, lowest).softmax(dim=-1)
    return probs.masked_fill(~visible.any(dim=-1, keepdim=True), 0.0)


def _shared_matmul(rows: Tensor, matrices: Tensor) -> Tensor:
    """Products of each hypothesis's rows with the matrices of its sentence.

    Args:
        rows: (batch, heads, tgt_len, a); tgt_len = 1 where hypotheses share matrices
        matrices: (batch, heads, a, b), or (sentences, heads, a, b) with batch a multiple of
            sentences

    Returns:
        (batch, heads, tgt_len, b)
    """
    bsz, num_heads, tgt_len, width = rows.shape
    sentences = matrices.size(0)
    if bsz == sentences:
        return rows @ matrices
    assert tgt_len == 1
    rows = rows.view(sentences, bsz // sentences, num_heads, width).transpose(1, 2)
    return (rows @ matrices).transpose(1, 2).reshape(bsz, num_heads, 1, -1)
