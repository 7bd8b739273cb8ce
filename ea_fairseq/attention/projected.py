"""Attention with its projections: what fairseq's models and :class:`Attention` share."""

from torch import Tensor, nn

from .cached_heads import Cache, CachedHeads, append, keep_source, read
from .contract import AttentionArgs, LogitTransform, State
from .scores import ScoreFunction


class ProjectedAttention(nn.Module):
    """Projects, scores, transforms and attends, with time in front; the base of two classes.

    Attributes, which they set:
        transform: what happens to the logits
        scores: what makes them
        q_proj, k_proj: linear, or None where neither scores nor transform use queries or keys
        v_proj: linear
        kind: "encoder", "decoder" or "encoder-decoder"
        num_heads, head_dim, scaling: as in fairseq's ``MultiheadAttention``
    """

    transform: LogitTransform
    scores: ScoreFunction
    q_proj: nn.Module | None
    k_proj: nn.Module | None
    v_proj: nn.Module
    num_heads: int
    head_dim: int
    scaling: float

    def drop_unused_projections(self) -> None:
        """Takes out the projections that nobody reads, which would never get a gradient."""
        if not self.scores.uses_queries:
            self.q_proj = None
        if not (self.scores.uses_keys or self.transform.uses_keys):
            self.k_proj = None

    def attend_whole(
        self, query: Tensor, key: Tensor, args: AttentionArgs
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Whole maps.

        Args:
            query: (tgt_len, batch, embed_dim)
            key: (src_len, batch, embed_dim), also the values
            args: the rest

        Returns:
            output before the last projection (tgt_len, batch, embed_dim), carry and probabilities
            (batch, heads, tgt_len, src_len), or None
        """
        queries, keys = self._heads(self._queries(query)), self._heads(self._keys(key))
        values = self._heads(self.v_proj(key))
        if not self.scores.is_product:
            shape = (query.size(1), query.size(0), key.size(0))
            args = self.scores.scored(queries, keys, args, shape)
        output, carry, probs = self.transform.attend(queries, keys, values, args)
        return self._joined(output), carry, probs

    def attend_row(
        self, query: Tensor, key: Tensor | None, args: AttentionArgs, cache: Cache, state: State
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Cache, State]:
        """One new row.

        Args:
            query: (1, batch, embed_dim)
            key: (1, batch, embed_dim), the query itself in self-attention; in encoder-decoder
                attention (src_len, sentences, embed_dim), unused once it is cached
            args: the rest, with tgt_len = 1
            cache: keys and values so far, empty at the first row
            state: the transform's

        Returns:
            as :meth:`attend_whole`, and cache and state for the next row
        """
        queries = self._heads(self._queries(query))
        cached, cache = self._cached(query.size(1), key, cache)
        if not self.scores.is_product:
            shape = (query.size(1), 1, cached.src_len)
            args = self.scores.scored(queries, cached.heads()[0], args, shape)
        output, carry, probs, state = self.transform.attend_step(queries, cached, args, state)
        return self._joined(output), carry, probs, cache, state

    def _cached(self, bsz: int, key: Tensor | None, cache: Cache) -> tuple[CachedHeads, Cache]:
        if self.kind != "encoder-decoder":
            cache = append(cache, self._keys(key), self.v_proj(key))
        elif not cache:
            cache = keep_source(self._keys(key), self.v_proj(key), bsz)
        return read(cache, self.num_heads), cache

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

    def _joined(self, output: Tensor) -> Tensor:
        """(batch, heads, length, head_dim) to (length, batch, embed_dim)."""
        return output.permute(2, 0, 1, 3).flatten(2)
