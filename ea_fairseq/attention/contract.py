"""The contract of a transform: what happens to the maps before and after the softmax."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cached_heads import CachedHeads

State = dict[str, Tensor]


@dataclass(frozen=True)
class Place:
    """Which attention of a model a transform is built for.

    Attributes:
        attention: "encoder", "decoder" or "encoder-decoder"
        num_heads: its heads
        head_dim: width of each head
        layer: index of its layer, from 0, in its stack
        num_layers: of that stack
        is_cut: whether the stack was cut to some of its layers (--encoder-layers-to-keep,
            --decoder-layers-to-keep), so that a layer's index is not that of its training
    """

    attention: str
    num_heads: int
    head_dim: int
    layer: int
    num_layers: int
    is_cut: bool = False


@dataclass(frozen=True)
class Projected:
    """What an attention projected, for transforms that look beyond the logits.

    Attributes:
        queries: (batch, heads, tgt_len, head_dim), not scaled, as the score function maps them;
            None where it uses none
        keys: (batch, heads, src_len, head_dim), mapped likewise; step by step (sentences, heads,
            src_len, head_dim), where neighbouring hypotheses share a sentence. None where neither
            the score function nor the transform uses them
        values: as ``keys``
    """

    queries: Tensor | None
    keys: Tensor | None
    values: Tensor


class AttentionArgs(NamedTuple):
    """What an attention is told beside queries, keys and values.

    Attributes:
        scaling: factor of the products of queries and keys
        visible: bool, broadcastable to (batch, 1, tgt_len, src_len), True = may attend; None =
            everything
        carry: (batch, heads, tgt_len, src_len), of the layer below, or None
        dropout: of the probabilities
        need_probs: whether to return the probabilities
        logits: (batch, heads, tgt_len, src_len), in the place of the scaled products, or None
        bias: broadcastable to (batch, heads, tgt_len, src_len), added to the scaled products or
            ``logits`` before the transform, such as relative positions; finite, for hiding is
            ``visible``'s; or None
        causal: whether ``visible`` hides all later keys, which a faster way may then leave out
    """

    scaling: float
    visible: Tensor | None = None
    carry: Tensor | None = None
    dropout: float = 0.0
    need_probs: bool = False
    logits: Tensor | None = None
    bias: Tensor | None = None
    causal: bool = False

    def all_logits(self, queries: Tensor | None, keys: Tensor | None) -> Tensor:
        """What a transform gets: (batch, heads, tgt_len, src_len)."""
        logits = self.logits
        if logits is None:
            logits = scaled_products(queries, keys, self.scaling)
        return logits if self.bias is None else logits + self.bias


class LogitTransform(nn.Module):
    """Base class of every transform; by itself it changes nothing.

    Legend of shapes: ``batch`` sentences or hypotheses, ``heads``, ``tgt_len`` queries,
    ``src_len`` keys. ``visible`` is True where a query may attend; it excludes future keys, padded
    keys *and padded queries*; None means that everything is visible.

    A transform has three places, of which it overrides what it needs:

    - **before the softmax**: :meth:`forward` for whole maps, :meth:`step` for one new row. It reads
      hidden entries as zeros, returns zeros there, and never writes -inf: masking happens once, at
      the softmax. One that narrows ``visible`` returns the narrower mask.
    - **after the softmax**: :meth:`mix_probs` and :meth:`mix_probs_step`. Probabilities come as 0
      in hidden entries and must stay so; they need not sum to 1 afterwards. Dropout follows, so it
      sees what was mixed, and so does whoever asks for the probabilities.
    - **each head's output**, one position at a time: :meth:`mix_output`.

    The forms for one row must equal that row of the forms for whole maps; what later rows need of
    earlier ones is kept in ``state``: batch-first tensors only, so that beam search can reorder
    them; rows or contributions, never recomputed. The two forms of one row that keep something
    return what *they* keep, under names of their own.

    Maps and probabilities are float32 at least, whatever the model's own precision and under
    autocast too; parameters are cast to the maps' type where they meet them (see
    :func:`mix_heads`). Every parameter must get a gradient: where a layer's transform has no work
    to do (``place.layer``), it has no parameters.

    Attributes:
        uses_carry: True if the transform reads the logits of the layer below.
        uses_keys: True if it reads ``projected.keys``.
    """

    uses_carry: bool = False
    uses_keys: bool = False

    @property
    def reads_neighbours(self) -> bool:
        """Whether an entry of the map depends on those around it, so that what hides some entries
        from a query (a sliding window, say) does not keep it from depending on them."""
        return False

    def forward(
        self,
        logits: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        projected: Projected | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Transforms whole maps before the softmax.

        Args:
            logits: (batch, heads, tgt_len, src_len), scaled products of queries and keys
            visible: bool, broadcastable to (batch, 1, tgt_len, src_len), or None
            carry: (batch, heads, tgt_len, src_len), this attention's transformed logits one layer
                below, or None in the first layer
            projected: queries, keys and values; None only for transforms that do not ask

        Returns:
            the transformed logits, same shape, and the visibility of their entries
        """
        return zero_hidden(logits, visible), visible

    def step(
        self,
        logits: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        state: State,
        projected: Projected | None = None,
    ) -> tuple[Tensor, Tensor | None, State]:
        """Transforms one new target row; must equal that row of :meth:`forward`.

        Args:
            logits: (batch, heads, 1, src_len)
            visible: bool, broadcastable to (batch, 1, 1, src_len), or None
            carry: (batch, heads, 1, src_len) or None
            state: what the previous row left, with its hypotheses reordered since; empty at the
                first row
            projected: this row's queries, all keys and values so far

        Returns:
            transformed logits (batch, heads, 1, src_len), their visibility and what to keep
        """
        logits, visible = self(logits, visible, carry, projected)
        return logits, visible, {}

    def mix_probs(self, probs: Tensor, visible: Tensor | None) -> Tensor:
        """Transforms whole maps after the softmax, before dropout.

        Args:
            probs: (batch, heads, tgt_len, src_len), 0 in hidden entries
            visible: as :meth:`forward` returned it

        Returns:
            the same shape, 0 in hidden entries
        """
        return probs

    def mix_probs_step(
        self, probs: Tensor, visible: Tensor | None, state: State
    ) -> tuple[Tensor, State]:
        """One new row of :meth:`mix_probs`.

        Args:
            probs: (batch, heads, 1, src_len)
            visible: as :meth:`step` returned it
            state: as in :meth:`step`

        Returns:
            (batch, heads, 1, src_len), and what to keep
        """
        return self.mix_probs(probs, visible), {}

    def earlier_rows(self) -> int | None:
        """So many rows before a row are all that its form for one row needs of what was before:
        stepping through these, from an empty state, leaves the state of having stepped through all.
        None = all rows."""
        alone = (
            type(self).step is LogitTransform.step
            and type(self).mix_probs_step is LogitTransform.mix_probs_step
        )
        return 0 if alone else None

    def mix_output(self, output: Tensor) -> Tensor:
        """Transforms what each head attended to, position by position.

        Args:
            output: (batch, heads, tgt_len, head_dim), in the model's precision

        Returns:
            the same shape
        """
        return output

    def attend(
        self, queries: Tensor | None, keys: Tensor | None, values: Tensor, args: AttentionArgs
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Attention over whole maps with this transform: the equations, one after the other.

        A template over the places above. Only a faster way to the same numbers overrides it.

        Args:
            queries: (batch, heads, tgt_len, head_dim), or None where ``args.logits`` come without
            keys: (batch, heads, src_len, head_dim), or None likewise
            values: (batch, heads, src_len, head_dim)
            args: the rest

        Returns:
            output (batch, heads, tgt_len, head_dim), the carry of the layer above (the transformed
            logits, or None where the transform does not use them) and the probabilities before
            dropout (batch, heads, tgt_len, src_len), or None
        """
        logits = args.all_logits(queries, keys)
        logits, visible = self(logits, args.visible, args.carry, Projected(queries, keys, values))
        probs = self.mix_probs(masked_softmax(logits, visible), visible)
        return self._finish(logits, probs, values, args)

    def attend_step(
        self, queries: Tensor | None, cached: CachedHeads, args: AttentionArgs, state: State
    ) -> tuple[Tensor, Tensor | None, Tensor | None, State]:
        """One new target row of :meth:`attend`; a template like it.

        Args:
            queries: (batch, heads, 1, head_dim), or None where ``args.logits`` come without
            cached: keys and values, this row's own among them
            args: the rest, with tgt_len = 1; dropout is not 0 where a user wants it while decoding
            state: as in :meth:`step`

        Returns:
            as :meth:`attend`, and the new state
        """
        keys, values = cached.heads()
        logits = args.all_logits(queries, keys)
        projected = Projected(queries, keys, values)
        logits, visible, before = self.step(logits, args.visible, args.carry, state, projected)
        probs, after = self.mix_probs_step(masked_softmax(logits, visible), visible, state)
        both = before.keys() & after.keys()
        assert not both, f"step and mix_probs_step both keep {sorted(both)}: names must differ"
        return *self._finish(logits, probs, values, args), before | after

    def _finish(
        self, logits: Tensor, probs: Tensor, values: Tensor, args: AttentionArgs
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        output = _shared_matmul(F.dropout(probs, args.dropout).to(values.dtype), values)
        output = self.mix_output(output)
        carry = logits if self.uses_carry else None
        return output, carry, probs if args.need_probs else None


def zero_hidden(logits: Tensor, visible: Tensor | None) -> Tensor:
    """Sets hidden entries to 0, as whatever mixes positions must see them."""
    return logits if visible is None else logits.masked_fill(~visible, 0.0)


def scaled_products(queries: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Scaled products L of queries and keys, (batch, heads, tgt_len, src_len), float32 at least.

    The maps of all layers add up: half precision would lose digits that the softmax needs, and a
    convolution over large logits would overflow.
    """
    return at_least_float32(_shared_matmul(queries * scaling, keys.transpose(2, 3)))


def at_least_float32(maps: Tensor) -> Tensor:
    """Maps in float32 where they are in half precision."""
    return maps.float() if maps.dtype in (torch.float16, torch.bfloat16) else maps


def mix_heads(maps: Tensor, weight: Tensor) -> Tensor:
    """Mixes the heads of maps in their own precision, which autocast would halve.

    Args:
        maps: (batch, heads, tgt_len, src_len)
        weight: (new heads, heads); or (groups, new heads of each, heads of each), where
            neighbouring heads are mixed among themselves

    Returns:
        (batch, new heads, tgt_len, src_len)
    """
    with torch.autocast(maps.device.type, enabled=False):
        if weight.dim() == 2:
            return torch.einsum("oh,bhts->bots", weight.to(maps.dtype), maps)
        grouped = maps.unflatten(1, (weight.size(0), -1))
        return torch.einsum("goh,bghts->bgots", weight.to(maps.dtype), grouped).flatten(1, 2)


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
