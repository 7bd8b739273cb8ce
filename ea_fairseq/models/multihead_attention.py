"""The attention of every EA model: fairseq's, with a score function and a logit transform."""

from typing import Any

from fairseq.modules import FairseqDropout, MultiheadAttention
from torch import Tensor

from ..attention.cached_heads import reorder
from ..attention.contract import AttentionArgs
from ..attention.projected import ProjectedAttention
from ..attention.scores import ScoreFunction
from ..attention.variants import LogitTransform

IncrementalState = dict[str, dict[str, Tensor | None]]


def rate_in_use(dropout: FairseqDropout) -> float:
    """The share of numbers that fairseq's module would drop now: 0 in evaluation, unless it is to
    drop there too."""
    return dropout.p if dropout.training or dropout.apply_during_inference else 0.0


class TransformedAttention(ProjectedAttention, MultiheadAttention):
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
        self.kind = "encoder-decoder" if self.encoder_decoder_attention else "self"
        self.drop_unused_projections()

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
        dropout = rate_in_use(self.dropout_module)
        args = AttentionArgs(self.scaling, visible, carry, dropout, need_weights, causal=causal)
        if incremental_state is None:
            output, carry, probs = self.attend_whole(query, key, args)
        else:
            cache = self._get_input_buffer(incremental_state)
            state = self.get_incremental_state(incremental_state, "logit_state") or {}
            output, carry, probs, cache, state = self.attend_row(query, key, args, cache, state)
            self._set_input_buffer(incremental_state, cache)
            self.set_incremental_state(incremental_state, "logit_state", state)
        return self.out_proj(output), probs.transpose(0, 1) if need_weights else None, carry

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Moves what is kept to its new hypotheses: the transform's state, and whose keys and
        values are whose."""
        cache = reorder(self._get_input_buffer(incremental_state), new_order)
        self._set_input_buffer(incremental_state, cache)
        state = self.get_incremental_state(incremental_state, "logit_state")
        if state:
            state = {name: kept.index_select(0, new_order) for name, kept in state.items()}
            self.set_incremental_state(incremental_state, "logit_state", state)
        return incremental_state
