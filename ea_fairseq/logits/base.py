"""The contract of a logit transform: what happens between q k^T and the softmax."""

from torch import Tensor, nn

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
