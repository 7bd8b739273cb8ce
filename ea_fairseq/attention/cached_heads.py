"""Keys and values that decoding keeps from step to step."""

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor

Cache = dict[str, Tensor]


@dataclass(frozen=True)
class CachedHeads:
    """Keys and values where they were written; who they belong to is told beside.

    Attributes:
        keys: (positions, rows, embed_dim), the first ``src_len`` positions in use; None where
            scores need none
        values: as ``keys``
        num_heads: of the attention
        rows: long, (batch, src_len), the row of each position of each hypothesis; or None:
        hypotheses: so many neighbouring hypotheses share a row, in every position
    """

    keys: Tensor | None
    values: Tensor
    num_heads: int
    rows: Tensor | None = None
    hypotheses: int = 1

    @property
    def src_len(self) -> int:
        """Positions in use."""
        return self.values.size(0) if self.rows is None else self.rows.size(1)

    def heads(self) -> tuple[Tensor | None, Tensor]:
        """Keys and values (batch, heads, src_len, head_dim), or (sentences, ...) where hypotheses
        share rows."""
        return self._heads(self.keys), self._heads(self.values)

    def _heads(self, kept: Tensor | None) -> Tensor | None:
        if kept is None:
            return None
        if self.rows is not None:
            positions = torch.arange(self.rows.size(1), device=kept.device)
            kept = kept[positions.unsqueeze(1), self.rows.t()]
        return kept.unflatten(2, (self.num_heads, -1)).permute(1, 2, 0, 3)


def append(cache: Cache, keys: Tensor | None, values: Tensor) -> Cache:
    """Self-attention's cache with one more position.

    Nothing written is ever moved: reordering changes the table of rows alone.

    Args:
        cache: empty at the first step, then as returned
            prev_key, prev_value: (positions, rows, embed_dim)
            rows: long, (batch, src_len)
            filled: long, positions written so far, on the CPU
            own: long, (most hypotheses so far, 1), the row in which each writes
        keys: (1, batch, embed_dim), or None where scores need none: then none are kept
        values: (1, batch, embed_dim)
    """
    bsz = values.size(1)
    buffers = {"prev_value": values} if keys is None else {"prev_key": keys, "prev_value": values}
    if not cache:
        cache = {name: row[:0] for name, row in buffers.items()}
        cache["rows"] = torch.empty(bsz, 0, dtype=torch.long, device=values.device)
    rows = cache["rows"]
    written = rows.size(1)
    kept = {name: cache[name] for name in buffers}
    capacity, held, _ = kept["prev_value"].shape
    filled = cache.get("filled")
    # Full; or another decoding went on from the same step and wrote there: leave that to it.
    if filled is None or written == capacity or bsz > held or int(filled) != written:
        filled = torch.tensor(written, device="cpu")
        shape = (max(16, 2 * written), max(bsz, held))
        for name, old in kept.items():
            new = old.new_empty(*shape, old.size(2))
            new[:written, :held] = old[:written]
            kept[name] = new
    for name, row in buffers.items():
        kept[name][written, :bsz] = row[0]
    filled.fill_(written + 1)
    own = cache.get("own")
    if own is None or len(own) < bsz:
        own = torch.arange(bsz, device=rows.device).unsqueeze(1)
    rows = torch.cat([rows, own[:bsz]], dim=1)
    return {**kept, "rows": rows, "filled": filled, "own": own}


def keep_source(keys: Tensor | None, values: Tensor, bsz: int) -> Cache:
    """Encoder-decoder attention's cache, which every step reads and none changes.

    Args:
        keys: (src_len, sentences, embed_dim), or None where scores need none
        values: (src_len, sentences, embed_dim)
        bsz: hypotheses; those of a sentence are neighbours and share its keys and values
    """
    cache = {} if keys is None else {"prev_key": keys}
    hypotheses = torch.tensor(bsz // values.size(1), device="cpu")
    return {**cache, "prev_value": values, "hypotheses": hypotheses}


def read(cache: Cache, num_heads: int) -> CachedHeads:
    """Keys and values of a cache that :func:`append` or :func:`keep_source` returned."""
    return CachedHeads(
        cache.get("prev_key"),
        cache["prev_value"],
        num_heads,
        cache.get("rows"),
        int(cache.get("hypotheses", 1)),
    )


def reorder(cache: Cache, new_order: Tensor) -> Cache:
    """The cache of the hypotheses that beam search goes on with.

    Args:
        cache: of :func:`append` or :func:`keep_source`, or empty
        new_order: long, old place of each new hypothesis
    """
    if "rows" in cache:
        return {**cache, "rows": cache["rows"].index_select(0, new_order)}
    if not cache:
        return cache
    kept = {name: one for name, one in cache.items() if name != "hypotheses"}
    sentences, together = share(new_order, kept["prev_value"].size(1), int(cache["hypotheses"]))
    if sentences is not None:
        kept = {name: one.index_select(1, sentences) for name, one in kept.items()}
    return {**kept, "hypotheses": torch.tensor(together, device="cpu")}


def share(new_order: Tensor, sentences: int, hypotheses: int) -> tuple[Tensor | None, int]:
    """Which sentences remain, and how many neighbouring hypotheses share each, after a reorder.

    All attentions of a model ask the same of one reorder: the first has the answer worked out, on
    the CPU, so that a GPU is waited for once.

    Args:
        new_order: long, old hypothesis of each new one
        sentences: so far
        hypotheses: of each sentence so far

    Returns:
        the old sentences (long) in their new order, or None where nothing changes, and the number
        of hypotheses that share each
    """
    global _latest
    if new_order.is_inference():  # its changes are not counted
        return _share(new_order, sentences, hypotheses)
    asked = new_order._version, sentences, hypotheses
    latest = _latest
    if latest is None or latest[0]() is not new_order or latest[1] != asked:
        answer = _share(new_order, sentences, hypotheses)
        _latest = latest = weakref.ref(new_order), asked, answer
    return latest[2]


#: The reorder that was last asked about, what was asked, and the answer.
_latest: tuple[weakref.ref[Tensor], tuple[int, int, int], tuple[Tensor | None, int]] | None = None


def _share(new_order: Tensor, sentences: int, hypotheses: int) -> tuple[Tensor | None, int]:
    order = new_order.cpu()
    source = order if hypotheses == 1 else order.div(hypotheses, rounding_mode="floor")
    together = hypotheses
    if hypotheses == 1 and len(source):
        changes = (source != source[0]).nonzero()
        together = int(changes[0]) if len(changes) else len(source)
    if together > 1:
        groups = None if len(source) % together else source.view(-1, together)
        if groups is None or not bool((groups == groups[:, :1]).all()):
            return source.to(new_order.device), 1
        source = groups[:, 0]
    same = len(source) == sentences
    if same and torch.equal(source, torch.arange(sentences, device=source.device)):
        return None, together
    return source.to(new_order.device), together
