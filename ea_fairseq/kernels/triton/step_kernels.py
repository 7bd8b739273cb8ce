"""One step of decoding with evolving attention on a GPU: what each launch of step.py
computes.

Same equations as ea_fairseq/attention (variants/evolving.py, `MapConvolution.step`), for one
row of each map; a program does a hypothesis. Keys and values lie by position and row, as the
decoder keeps them. What names in capitals stand for, attention_kernels.py says; COLUMNS are
a block of the row's.
"""

import triton
import triton.language as tl

from .launches import SIZES, start_of_head


@triton.jit
def _rows_of(rows, hypothesis, columns, src_len, hypotheses):
    """Whose keys and values each position of a hypothesis has."""
    if rows is None:
        owners = tl.zeros(columns.shape, tl.int64) + hypothesis // hypotheses
    else:  # not after a return, behind which Triton compiles on
        owners = tl.load(rows + hypothesis * src_len + columns, mask=columns < src_len, other=0)
    return owners


@triton.jit
def _cached(
    base, position_stride, row_stride, columns, rows, src_len, head_dim, DEPTH: tl.constexpr
):
    dims = tl.arange(0, DEPTH)
    place = base + columns[:, None] * position_stride + rows[:, None] * row_stride + dims[None, :]
    inside = (columns[:, None] < src_len) & (dims[None, :] < head_dim)
    return tl.load(place, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _visible_logits(logits, visible, first_flag, columns, src_len):
    """Of these columns of a row; -inf where they are hidden."""
    seen = columns < src_len
    if visible is not None:
        seen = seen & (tl.load(visible + first_flag + columns, mask=seen, other=0) != 0)
    return tl.load(logits + columns, mask=seen, other=float("-inf"))


@triton.jit(do_not_specialize=SIZES)
def mix_step(
    queries, keys, rows, carry, visible, mixed,
    heads, src_len, head_dim, hypotheses, alpha, scaling,
    queries_batch, queries_head, keys_position, keys_row, visible_batch,
    COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """mixed = this row of A_in. Programs: (batch * heads, column blocks)."""
    hypothesis, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < src_len
    dims = tl.arange(0, DEPTH)
    query = queries + start_of_head(hypothesis, queries_batch, head, queries_head) + dims
    q = tl.load(query, mask=dims < head_dim, other=0.0).to(tl.float32)
    owners = _rows_of(rows, hypothesis, columns, src_len, hypotheses)
    base = keys + head * head_dim
    k = _cached(base, keys_position, keys_row, columns, owners, src_len, head_dim, DEPTH)
    logits = tl.sum(k * q[None, :], axis=1) * scaling
    places = tl.program_id(0) * src_len + columns
    if carry is not None:
        logits += alpha * (tl.load(carry + places, mask=inside, other=0.0) - logits)
    if visible is not None:
        flags = visible + hypothesis * visible_batch + columns
        logits = tl.where(tl.load(flags, mask=inside, other=0) != 0, logits, 0.0)
    tl.store(mixed + places, logits, mask=inside)


@triton.jit(do_not_specialize=SIZES)
def evolve_step(
    mixed, weight, bias, visible, pending, rows_visible, evolved, new_pending,
    heads, src_len, held, right, beta, visible_batch,
    SIZE: tl.constexpr, LOWER: tl.constexpr, CHANNELS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """evolved = this row of Z; new_pending = what the next rows' convolutions have of it.

    held: columns of pending. Programs: (batch, column blocks of new_pending).
    """
    hypothesis = tl.program_id(0)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    channels = tl.arange(0, CHANNELS)
    present = channels < heads
    waiting = SIZE - 1
    wide = src_len + 2 * right
    left = (SIZE - 1) // 2 + right
    for ahead in range(SIZE):
        sums = tl.zeros((CHANNELS, COLUMNS), tl.float32)
        if pending is not None:
            waited = ((hypothesis * waiting + ahead) * heads + channels)[:, None] * held
            were = present[:, None] & (columns < held)[None, :] & (ahead < waiting)
            sums += tl.load(pending + waited + columns[None, :], mask=were, other=0.0)
        for j in range(SIZE - ahead if LOWER else SIZE):
            source = columns + j - left
            there = (source >= 0) & (source < src_len)
            tap = weight + channels * heads * SIZE * SIZE + (waiting - ahead) * SIZE + j
            for channel in range(heads):
                row = mixed + (hypothesis * heads + channel) * src_len
                number = tl.load(row + source, mask=there, other=0.0)
                factor = tl.load(tap + channel * SIZE * SIZE, mask=present, other=0.0)
                sums += factor[:, None] * number[None, :]
        if ahead > 0:
            waits = ((hypothesis * waiting + ahead - 1) * heads + channels)[:, None] * wide
            will = present[:, None] & (columns < wide)[None, :]
            tl.store(new_pending + waits + columns[None, :], sums, mask=will)
        else:
            inside = columns < src_len
            kept = inside & (columns >= right)
            if SIZE > 1:  # the row that the convolution's move puts here was visible
                if rows_visible is None:
                    kept = kept & (columns < 0)
                else:
                    kept = kept & (tl.load(rows_visible + hypothesis * (waiting // 2)) != 0)
            if visible is not None:
                flags = visible + hypothesis * visible_batch + columns
                kept = kept & (tl.load(flags, mask=kept, other=0) != 0)
                kept = kept & (tl.load(flags - right, mask=kept, other=0) != 0)
            sums += tl.load(bias + channels, mask=present, other=0.0)[:, None]
            term = tl.maximum(sums, 0.0, propagate_nan=tl.PropagateNan.ALL)
            term = tl.where(kept[None, :], term, 0.0)
            places = (hypothesis * heads + channels)[:, None] * src_len + columns[None, :]
            written = present[:, None] & inside[None, :]
            a_in = tl.load(mixed + places, mask=written, other=0.0)
            tl.store(evolved + places, a_in + beta * (term - a_in), mask=written)


@triton.jit(do_not_specialize=SIZES)
def attend_step(
    evolved, values, rows, visible, rows_visible, output, probs, new_rows_visible,
    heads, src_len, head_dim, hypotheses, values_position, values_row, visible_batch,
    SIZE: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Softmax and values of this row, and whether it was visible. Programs: batch * heads."""
    hypothesis, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    line = tl.program_id(0) * src_len
    base = values + head * head_dim
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    sums = tl.zeros((DEPTH,), tl.float32)
    for start in range(0, src_len, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        z = _visible_logits(evolved + line, visible, hypothesis * visible_batch, columns, src_len)
        higher = tl.maximum(top, tl.max(z, axis=0))
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        shrink = tl.exp(top - finite)
        top = higher
        p = tl.exp(z - finite)
        total = total * shrink + tl.sum(p, axis=0)
        owners = _rows_of(rows, hypothesis, columns, src_len, hypotheses)
        v = _cached(base, values_position, values_row, columns, owners, src_len, head_dim, DEPTH)
        sums = sums * shrink + tl.sum(p[:, None] * v, axis=0)
    share = tl.where(total == 0, 0.0, 1 / total)
    dims = tl.arange(0, DEPTH)
    result = (sums * share).to(output.dtype.element_ty)
    tl.store(output + tl.program_id(0) * head_dim + dims, result, mask=dims < head_dim)
    if probs is not None:
        finite = tl.where(top == float("-inf"), 0.0, top)
        for start in range(0, src_len, COLUMNS):
            columns = start + tl.arange(0, COLUMNS)
            z = _visible_logits(
                evolved + line, visible, hypothesis * visible_batch, columns, src_len
            )
            tl.store(probs + line + columns, tl.exp(z - finite) * share, mask=columns < src_len)
    reach: tl.constexpr = (SIZE - 1) // 2
    if SIZE > 1 and head == 0:
        newest = new_rows_visible + hypothesis * reach + reach - 1
        tl.store(newest, tl.where(total == 0, 0, 1))
        for age in range(1, reach):
            if rows_visible is None:
                tl.store(newest - age, 0)
            else:
                tl.store(newest - age, tl.load(rows_visible + hypothesis * reach + reach - age))
