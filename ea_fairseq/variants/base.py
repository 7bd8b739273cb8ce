"""The contract of a logit transform: what happens between q k^T and the softmax."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cached_heads import CachedHeads

State = dict[str, Tensor]


class LogitTransform(nn.Module):
    """Base class and no-op default of every logit transform.

    Legend of shapes: ``batch`` sentences or hypotheses, ``heads``, ``tgt_len`` queries,
    ``src_len`` keys. ``visible`` is True where a query may attend; it excludes future keys, padded
    keys *and padded queries*; None means that everything is visible.

    A transform reads hidden entries as zeros, returns zeros there, and never writes -inf: masking
    for the softmax happens once, in the attention. A transform that narrows ``visible`` returns the
    narrower mask.

    Attributes:
        uses_carry: True if the transform reads the logits of the layer below.
    """

    uses_carry: bool = False

    def forward(
        self, logits: Tensor, visible: Tensor | None, carry: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Transforms whole maps.

        Args:
            logits: (batch, heads, tgt_len, src_len), scaled products of queries and keys
            visible: bool, broadcastable to (batch, 1, tgt_len, src_len), or None
            carry: (batch, heads, tgt_len, src_len), this attention's transformed logits one layer
                below, or None in the first layer

        Returns:
            the transformed logits, same shape, and the visibility of their entries
        """
        return logits, visible

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        scaling: float,
        visible: Tensor | None,
        carry: Tensor | None,
        dropout: float = 0.0,
        need_probs: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Attention over whole maps with this transform: the equations, one after the other.

        A transform may override it with a faster way to the same numbers.

        Args:
            queries: (batch, heads, tgt_len, head_dim)
            keys: (batch, heads, src_len, head_dim)
            values: (batch, heads, src_len, head_dim)
            scaling: factor of their products
            visible: as in :meth:`forward`
            carry: as in :meth:`forward`
            dropout: of the probabilities
            need_probs: whether to return them

        Returns:
            output (batch, heads, tgt_len, head_dim), the carry of the layer above (the transformed
            logits, or None where the transform does not use them) and the probabilities before
            dropout (batch, heads, tgt_len, src_len), or None
        """
        logits, visible = self(_products(queries * scaling, keys), visible, carry)
        return self._finish(logits, visible, values, dropout, need_probs)

    def attend_step(
        self,
        queries: Tensor,
        cached: CachedHeads,
        scaling: float,
        visible: Tensor | None,
        carry: Tensor | None,
        state: State,
        dropout: float = 0.0,
        need_probs: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, State]:
        """One new target row of :meth:`attend`.

        Args:
            queries: (batch, heads, 1, head_dim)
            cached: keys and values, this row's own among them
            scaling: factor of their products
            visible, carry, state: as in :meth:`step`
            dropout: of the probabilities; not 0 where a user wants it while decoding
            need_probs: whether to return the probabilities

        Returns:
            as :meth:`attend`, and the new state
        """
        keys, values = cached.heads()
        logits = _products(queries * scaling, keys)
        logits, visible, state = self.step(logits, visible, carry, state)
        return *self._finish(logits, visible, values, dropout, need_probs), state

    def _finish(
        self,
        logits: Tensor,
        visible: Tensor | None,
        values: Tensor,
        dropout: float,
        need_probs: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        probs = masked_softmax(logits, visible)
        output = _shared_matmul(F.dropout(probs, dropout).to(values.dtype), values)
        return output, logits if self.uses_carry else None, probs if need_probs else None

    def step(
        self, logits: Tensor, visible: Tensor | None, carry: Tensor | None, state: State
    ) -> tuple[Tensor, Tensor | None, State]:
        """Transforms one new target row; must equal that row of :meth:`forward`.

        Args:
            logits: (batch, heads, 1, src_len)
            visible: bool, broadcastable to (batch, 1, 1, src_len), or None
            carry: (batch, heads, 1, src_len) or None
            state: what the previous call returned, with its hypotheses reordered since; empty at
                the first row. Batch-first tensors only, so that beam search can reorder them.

        Returns:
            transformed logits (batch, heads, 1, src_len), their visibility and the new state
        """
        logits, visible = self(logits, visible, carry)
        return logits, visible, state


def zero_hidden(logits: Tensor, visible: Tensor | None) -> Tensor:
    """Sets hidden entries to 0, as whatever mixes positions must see them."""
    return logits if visible is None else logits.masked_fill(~visible, 0.0)


def _products(queries: Tensor, keys: Tensor) -> Tensor:
    """Products of queries and keys, (batch, heads, tgt_len, src_len), in float32 at least.

    The maps of all layers add up: half precision would lose digits that the softmax needs, and a
    convolution over large logits would overflow.
    """
    logits = _shared_matmul(queries, keys.transpose(2, 3))
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def masked_softmax(logits: Tensor, visible: Tensor | None) -> Tensor:
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
