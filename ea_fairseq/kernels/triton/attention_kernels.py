"""Evolving attention's maps on a GPU: what each launch of attention.py computes.

Same equations as ea_fairseq/attention (contract.py, convolution.py, variants/evolving.py). Maps are
contiguous (batch, heads, tgt_len, src_len) of float32, whatever the type of queries, keys and
values.

Convolutions walk over *pixels*: places (sentence, row, column) in one line, all heads of a pixel in
one program, so that no map is too narrow for a block. Products and softmax walk over blocks of rows
and columns of one head. A causal map has no more than its diagonal and below: nothing above is
read, and nothing but zeros written, where the map leaves the operator. Pointers that are None stand
for what is absent; lengths and numbers of heads are no part of a kernel's compiled form, so that
few forms serve all batches.

Names in capitals are constants of a compiled form:

    ROWS, COLUMNS   of a block of a map, powers of 2
    DEPTH           head_dim, rounded up to a power of 2
    DEEP            how many of these at a time where they are summed over
    PIXELS          of a block of pixels
    CHANNELS        heads, rounded up to a power of 2
    SIZE            of the convolution's kernel
    LOWER           whether the kernel is read on its diagonal and below alone
    CAUSAL          whether maps are causal: each row sees no column beyond its own number
    WHOLE           whether zeros are written above the diagonal of a causal map
    PRECISION       of products of float32
"""

import triton
import triton.language as tl

from .launches import SIZES, start_of_head


@triton.jit
def _positions(base, stride, positions, length, head_dim, DEPTH: tl.constexpr):
    """Rows of queries, keys or values of one head: (positions, DEPTH), 0 outside."""
    dims = tl.arange(0, DEPTH)
    inside = (positions[:, None] < length) & (dims[None, :] < head_dim)
    return tl.load(base + positions[:, None] * stride + dims[None, :], mask=inside, other=0.0)


@triton.jit
def _products(
    left, left_row, rows, tgt_len, right, right_row, columns, src_len, head_dim,
    DEPTH: tl.constexpr, DEEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Products of the positions of two sides, (rows, columns), DEEP numbers of each at a time."""
    sums = tl.zeros((rows.shape[0], columns.shape[0]), tl.float32)
    for first in range(0, DEPTH, DEEP):
        rest = head_dim - first
        one = _positions(left + first, left_row, rows, tgt_len, rest, DEEP)
        other = _positions(right + first, right_row, columns, src_len, rest, DEEP)
        sums = tl.dot(one, tl.trans(other), sums, input_precision=PRECISION)
    return sums


@triton.jit
def _write_positions(base, stride, positions, length, head_dim, result, DEPTH: tl.constexpr):
    dims = tl.arange(0, DEPTH)
    inside = (positions[:, None] < length) & (dims[None, :] < head_dim)
    place = base + positions[:, None] * stride + dims[None, :]
    tl.store(place, result.to(base.dtype.element_ty), mask=inside)


@triton.jit
def _in_map(rows, columns, tgt_len, src_len, CAUSAL: tl.constexpr):
    """Which entries of a block a map has: (rows, columns)."""
    inside = (rows[:, None] < tgt_len) & (columns[None, :] < src_len)
    if CAUSAL:
        inside = inside & (columns[None, :] <= rows[:, None])
    return inside


@triton.jit
def _columns_end(rows_end, src_len, CAUSAL: tl.constexpr):
    """Where the columns of a map end for rows that end there."""
    if CAUSAL:
        src_len = tl.minimum(src_len, rows_end)
    return src_len


@triton.jit
def _first_row(first_column, CAUSAL: tl.constexpr, ROWS: tl.constexpr):
    """Where the blocks of rows begin that have columns from there on."""
    first = 0
    if CAUSAL:
        first = first_column // ROWS * ROWS
    return first


@triton.jit
def _pixels(pixels, tgt_len, src_len, CAUSAL: tl.constexpr):
    """Sentence, row and column of pixels, by their numbers in the line of all that maps have."""
    if CAUSAL:
        area = tgt_len * (tgt_len + 1) // 2
        sentence = pixels // area
        number = pixels - sentence * area
        # Row t begins with t (t + 1) / 2, and ends before the root is t + 1.5.
        row = tl.sqrt(2.0 * number.to(tl.float32)).to(tl.int32)
        row -= tl.where(row * (row + 1) // 2 > number, 1, 0)
        column = number - row * (row + 1) // 2
    else:
        area = tgt_len * src_len
        sentence = pixels // area
        row = (pixels - sentence * area) // src_len
        column = pixels - sentence * area - row * src_len
    return sentence, row, column


@triton.jit
def _write_above(maps, sentence, row, column, inside, channels, heads, tgt_len, src_len):
    """Zeros above the diagonal of causal maps of all heads: each pixel below it has one there.

    As many columns are below the diagonal in row t as above it in row tgt_len - 1 - t.
    """
    inside = inside & (column < row)
    other = (tgt_len - 1 - row) * src_len + tgt_len - row + column
    places = (sentence * heads * tgt_len * src_len + other)[None, :]
    places += channels[:, None] * tgt_len * src_len
    written = inside[None, :] & (channels < heads)[:, None]
    tl.store(maps + places, 0.0, mask=written)


@triton.jit
def _seen(visible, base, row_stride, rows, columns, inside):
    """Which of the entries of a block that a map has are visible."""
    if visible is not None:
        flags = visible + base + rows[:, None] * row_stride + columns[None, :]
        inside = inside & (tl.load(flags, mask=inside, other=0) != 0)
    return inside


@triton.jit
def _kept(seed, dropout, places):
    """Which probabilities dropout leaves; the same for the same seed in both directions."""
    return tl.rand(tl.load(seed), places) >= dropout


@triton.jit(do_not_specialize=SIZES)
def mix(
    queries, keys, carry, visible, mixed,
    heads, tgt_len, src_len, head_dim, alpha, scaling,
    queries_batch, queries_head, queries_row, keys_batch, keys_head, keys_row,
    visible_batch, visible_row,
    CAUSAL: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, DEEP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """mixed = A_in, 0 in hidden entries. Programs: (batch * heads, row blocks, column blocks)."""
    rows_end = (tl.program_id(1) + 1) * ROWS
    if tl.program_id(2) * COLUMNS >= _columns_end(rows_end, src_len, CAUSAL):
        return
    sentence, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    queries += start_of_head(sentence, queries_batch, head, queries_head)
    keys += start_of_head(sentence, keys_batch, head, keys_head)
    logits = scaling * _products(
        queries, queries_row, rows, tgt_len, keys, keys_row, columns, src_len,
        head_dim, DEPTH, DEEP, PRECISION,
    )  # fmt: skip
    inside = _in_map(rows, columns, tgt_len, src_len, CAUSAL)
    places = (tl.program_id(0) * tgt_len + rows[:, None]) * src_len + columns[None, :]
    if carry is not None:
        logits += alpha * (tl.load(carry + places, mask=inside, other=0.0) - logits)
    seen = _seen(visible, sentence * visible_batch, visible_row, rows, columns, inside)
    tl.store(mixed + places, tl.where(seen, logits, 0.0), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def evolve(
    mixed, weight, bias, visible, evolved, active,
    total, heads, tgt_len, src_len, down, right, beta, visible_batch, visible_row,
    CAUSAL: tl.constexpr, WHOLE: tl.constexpr,
    SIZE: tl.constexpr, LOWER: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """evolved = Z; active = the heads whose relu lets through, a bit each (int16 per pixel).

    total: pixels that the maps have. What a pixel of a causal map reads is not above the diagonal
    either: the kernel is LOWER, or a single number, and moved as far down as to the right.
    """
    pixels = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    inside = pixels < total
    sentence, row, column = _pixels(pixels, tgt_len, src_len, CAUSAL)
    area = tgt_len * src_len
    place = sentence * area + row * src_len + column
    first = place + sentence * (heads - 1) * area  # the pixel's place in head 0
    channels = tl.arange(0, CHANNELS)
    present = channels < heads
    if WHOLE:
        _write_above(evolved, sentence, row, column, inside, channels, heads, tgt_len, src_len)
    above, left = down + (SIZE - 1) // 2, right + (SIZE - 1) // 2
    sums = tl.zeros((CHANNELS, PIXELS), tl.float32)
    sums += tl.load(bias + channels, mask=present, other=0.0)[:, None]
    for i in range(SIZE):
        in_row = inside & (row + i >= above) & (row + i < tgt_len + above)
        for j in range(i + 1 if LOWER else SIZE):
            there = in_row & (column + j >= left) & (column + j < src_len + left)
            source = mixed + first + (i - above) * src_len + (j - left)
            tap = weight + channels * heads * SIZE * SIZE + i * SIZE + j
            for channel in range(heads):
                pixel = tl.load(source + channel * area, mask=there, other=0.0)
                factor = tl.load(tap + channel * SIZE * SIZE, mask=present, other=0.0)
                sums += factor[:, None] * pixel[None, :]
    kept = inside & (row >= down) & (column >= right)
    if visible is not None:
        flag = visible + sentence * visible_batch + row * visible_row + column
        kept = kept & (tl.load(flag, mask=kept, other=0) != 0)
        kept = kept & (tl.load(flag - down * visible_row - right, mask=kept, other=0) != 0)
    term = tl.maximum(sums, 0.0, propagate_nan=tl.PropagateNan.ALL)
    term = tl.where(kept[None, :], term, 0.0)
    places = first[None, :] + channels[:, None] * area
    written = inside[None, :] & present[:, None]
    a_in = tl.load(mixed + places, mask=written, other=0.0)
    tl.store(evolved + places, a_in + beta * (term - a_in), mask=written)
    if active is not None:
        bits = tl.sum(tl.where(term > 0, 1, 0) << channels[:, None], axis=0)
        tl.store(active + place, bits.to(tl.int16), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def attend(
    evolved, values, visible, seed, output, normalizers, probs,
    heads, tgt_len, src_len, head_dim, dropout, factor,
    values_batch, values_head, values_row, output_batch, output_head, output_row,
    visible_batch, visible_row,
    CAUSAL: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, DEEP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Softmax, dropout and values. normalizers: the logarithm of each row's sum of exponentials.

    factor: what dropout scales by. Programs: (batch * heads, row blocks).
    """
    sentence, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    values += start_of_head(sentence, values_batch, head, values_head)
    output += start_of_head(sentence, output_batch, head, output_head)
    first = (tl.program_id(0) * tgt_len + rows) * src_len
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, DEPTH), tl.float32)
    for start in range(0, _columns_end((tl.program_id(1) + 1) * ROWS, src_len, CAUSAL), COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        inside = _in_map(rows, columns, tgt_len, src_len, CAUSAL)
        places = first[:, None] + columns[None, :]
        seen = _seen(visible, sentence * visible_batch, visible_row, rows, columns, inside)
        z = tl.load(evolved + places, mask=inside, other=0.0)
        z = tl.where(seen, z, float("-inf"))
        higher = tl.maximum(top, tl.max(z, axis=1))
        # Rows without any visible key so far: 0 instead of -inf, whose difference is no number.
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        shrink = tl.exp(top - finite)
        top = higher
        p = tl.exp(z - finite[:, None])
        total = total * shrink + tl.sum(p, axis=1)
        if seed is not None:
            p = tl.where(_kept(seed, dropout, places), p, 0.0)
        v = _positions(values, values_row, columns, src_len, head_dim, DEPTH)
        sums = sums * shrink[:, None]
        sums += tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
    # A row without visible keys gives 0; one with a NaN remains one.
    sums = sums * tl.where(total == 0, 0.0, factor / total)[:, None]
    _write_positions(output, output_row, rows, tgt_len, head_dim, sums, DEPTH)
    normalizer = tl.where(total == 0, 0.0, top + tl.log(total))
    tl.store(normalizers + tl.program_id(0) * tgt_len + rows, normalizer, mask=rows < tgt_len)
    if probs is not None:
        for start in range(0, src_len, COLUMNS):
            columns = start + tl.arange(0, COLUMNS)
            inside = _in_map(rows, columns, tgt_len, src_len, CAUSAL)
            places = first[:, None] + columns[None, :]
            seen = _seen(visible, sentence * visible_batch, visible_row, rows, columns, inside)
            z = tl.load(evolved + places, mask=inside, other=0.0)
            p = tl.where(seen, tl.exp(z - normalizer[:, None]), 0.0)
            tl.store(probs + places, p, mask=_in_map(rows, columns, tgt_len, src_len, False))


@triton.jit(do_not_specialize=SIZES)
def attend_gradient(
    evolved, values, visible, seed, output, normalizers,
    grad_output, grad_evolved, grad_probs, correction, grad_values,
    heads, tgt_len, src_len, head_dim, dropout, factor,
    values_batch, values_head, values_row, output_batch, output_head, output_row,
    grad_batch, grad_head, grad_row, visible_batch, visible_row,
    CAUSAL: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, DEEP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Writes the gradient of Z over ``evolved``, and that of the values, which lies as they do.

    correction: of each row, what grad_probs adds to the sum of gradient times probability.
    Programs: (batch * heads, column blocks).
    """
    sentence, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    values_here = start_of_head(sentence, values_batch, head, values_head)
    output += start_of_head(sentence, output_batch, head, output_head)
    grad_output += start_of_head(sentence, grad_batch, head, grad_head)
    sums = tl.zeros((COLUMNS, DEPTH), tl.float32)
    first_row = _first_row(tl.program_id(1) * COLUMNS, CAUSAL, ROWS)
    for start in range(first_row, tgt_len, ROWS):
        rows = start + tl.arange(0, ROWS)
        in_map = rows < tgt_len
        inside = _in_map(rows, columns, tgt_len, src_len, CAUSAL)
        places = ((tl.program_id(0) * tgt_len + rows) * src_len)[:, None] + columns[None, :]
        row_places = tl.program_id(0) * tgt_len + rows
        seen = _seen(visible, sentence * visible_batch, visible_row, rows, columns, inside)
        z = tl.load(evolved + places, mask=inside, other=0.0)
        normalizer = tl.load(normalizers + row_places, mask=in_map, other=0.0)
        p = tl.where(seen, tl.exp(z - normalizer[:, None]), 0.0)
        o = _positions(output, output_row, rows, tgt_len, head_dim, DEPTH)
        g = _positions(grad_output, grad_row, rows, tgt_len, head_dim, DEPTH)
        mean = tl.sum(o.to(tl.float32) * g.to(tl.float32), axis=1)
        grad = _products(
            grad_output, grad_row, rows, tgt_len, values + values_here, values_row, columns,
            src_len, head_dim, DEPTH, DEEP, PRECISION,
        )  # fmt: skip
        used = p
        if seed is not None:
            noise = tl.where(_kept(seed, dropout, places), factor, 0.0)
            grad = grad * noise
            used = p * noise
        if grad_probs is not None:
            grad += tl.load(grad_probs + places, mask=inside, other=0.0)
            mean += tl.load(correction + row_places, mask=in_map, other=0.0)
        grad = p * (grad - mean[:, None])
        if grad_evolved is not None:
            grad += tl.load(grad_evolved + places, mask=inside, other=0.0)
        tl.store(evolved + places, grad, mask=inside)
        sums += tl.dot(tl.trans(used).to(g.dtype), g, input_precision=PRECISION)
    here = grad_values + values_here
    _write_positions(here, values_row, columns, src_len, head_dim, sums, DEPTH)


@triton.jit
def _image_gradient(
    program, grad, active, weight, visible, grad_mixed,
    total, heads, tgt_len, src_len, down, right, beta, factor, visible_batch, visible_row,
    CAUSAL: tl.constexpr, WHOLE: tl.constexpr,
    SIZE: tl.constexpr, LOWER: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """grad_mixed = factor times the gradient of A_in, for a block of pixels."""
    pixels = program * PIXELS + tl.arange(0, PIXELS)
    inside = pixels < total
    sentence, row, column = _pixels(pixels, tgt_len, src_len, CAUSAL)
    area = tgt_len * src_len
    place = sentence * area + row * src_len + column
    first = place + sentence * (heads - 1) * area
    channels = tl.arange(0, CHANNELS)
    present = channels < heads
    if WHOLE:
        _write_above(grad_mixed, sentence, row, column, inside, channels, heads, tgt_len, src_len)
    below, right_of = down + (SIZE - 1) // 2, right + (SIZE - 1) // 2
    sums = tl.zeros((CHANNELS, PIXELS), tl.float32)
    for i in range(SIZE):
        in_row = inside & (row + below >= i) & (row + below < tgt_len + i)
        for j in range(i + 1 if LOWER else SIZE):
            there = in_row & (column + right_of >= j) & (column + right_of < src_len + j)
            if CAUSAL:
                there = there & (column + right_of - j <= row + below - i)
            ahead = (below - i) * src_len + (right_of - j)
            bits = tl.load(active + place + ahead, mask=there, other=0).to(tl.int32)
            tap = weight + channels * SIZE * SIZE + i * SIZE + j
            for channel in range(heads):
                through = there & (((bits >> channel) & 1) != 0)
                under = tl.load(grad + first + ahead + channel * area, mask=through, other=0.0)
                weights = tap + channel * heads * SIZE * SIZE
                taken = tl.load(weights, mask=present, other=0.0)
                sums += taken[:, None] * under[None, :]
    places = first[None, :] + channels[:, None] * area
    written = inside[None, :] & present[:, None]
    here = tl.load(grad + places, mask=written, other=0.0)
    here = factor * (here + beta * (sums - here))
    if visible is not None:
        flag = visible + sentence * visible_batch + row * visible_row + column
        here = tl.where((tl.load(flag, mask=inside, other=0) != 0)[None, :], here, 0.0)
    tl.store(grad_mixed + places, here, mask=written)


@triton.jit
def _weight_gradient(
    program, grad, active, mixed, sums_by_part,
    total, heads, tgt_len, src_len, down, right, parts,
    CAUSAL: tl.constexpr,
    SIZE: tl.constexpr, OUT: tl.constexpr, TAPS: tl.constexpr, GROUPS: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One part's sums of gradient times image: (heads out, heads in * SIZE * SIZE, and the bias).

    Every part takes the same blocks of pixels in the same order in each run.
    """
    part, group = program // GROUPS, program % GROUPS
    taps = group * TAPS + tl.arange(0, TAPS)
    channel, tap = taps // (SIZE * SIZE), taps % (SIZE * SIZE)
    up = tap // SIZE - down - (SIZE - 1) // 2
    along = tap % SIZE - right - (SIZE - 1) // 2
    outs = tl.arange(0, OUT)
    area = tgt_len * src_len
    sums = tl.zeros((OUT, TAPS), tl.float32)
    for start in range(part * BLOCK, total, parts * BLOCK):
        pixels = start + tl.arange(0, BLOCK)
        inside = pixels < total
        sentence, row, column = _pixels(pixels, tgt_len, src_len, CAUSAL)
        place = sentence * area + row * src_len + column
        first = place + sentence * (heads - 1) * area
        bits = tl.load(active + place, mask=inside, other=0).to(tl.int32)
        through = ((bits[None, :] >> outs[:, None]) & 1) != 0
        under = tl.load(grad + first[None, :] + outs[:, None] * area, mask=through, other=0.0)
        from_row, from_column = row[:, None] + up[None, :], column[:, None] + along[None, :]
        there = inside[:, None] & (channel < heads)[None, :]
        there = there & (from_row >= 0) & (from_row < tgt_len)
        there = there & (from_column >= 0) & (from_column < src_len)
        if CAUSAL:
            there = there & (from_column <= from_row)
        source = first[:, None] + (channel * area + up * src_len + along)[None, :]
        image = tl.load(mixed + source, mask=there, other=0.0)
        image = tl.where((taps == heads * SIZE * SIZE)[None, :], 1.0, image)
        sums += tl.dot(under, image, input_precision=PRECISION)
    places = (part * heads + outs[:, None]) * GROUPS * TAPS + taps[None, :]
    tl.store(sums_by_part + places, sums, mask=(outs < heads)[:, None])


@triton.jit(do_not_specialize=SIZES)
def evolve_gradient(
    grad, active, mixed, weight, visible, grad_mixed, sums_by_part,
    total, heads, tgt_len, src_len, down, right, beta, factor, visible_batch, visible_row,
    images, parts,
    CAUSAL: tl.constexpr, WHOLE: tl.constexpr,
    SIZE: tl.constexpr, LOWER: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
    OUT: tl.constexpr, TAPS: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of the convolution's image and, in parts, of its parameters.

    The first ``images`` programs take a block of pixels each, the others a part of the sums.
    """
    program = tl.program_id(0)
    if program < images:
        _image_gradient(
            program, grad, active, weight, visible, grad_mixed,
            total, heads, tgt_len, src_len, down, right, beta, factor, visible_batch, visible_row,
            CAUSAL, WHOLE, SIZE, LOWER, CHANNELS, PIXELS,
        )  # fmt: skip
    else:
        _weight_gradient(
            program - images, grad, active, mixed, sums_by_part,
            total, heads, tgt_len, src_len, down, right, parts,
            CAUSAL, SIZE, OUT, TAPS, GROUPS, BLOCK, PRECISION,
        )  # fmt: skip


@triton.jit
def _queries_gradient(
    block, map_index, grad_mixed, keys, keys_row, grad_queries, queries_row,
    tgt_len, src_len, head_dim, factor, scaling,
    CAUSAL: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rows = block * ROWS + tl.arange(0, ROWS)
    sums = tl.zeros((ROWS, DEPTH), tl.float32)
    for start in range(0, _columns_end((block + 1) * ROWS, src_len, CAUSAL), COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        inside = _in_map(rows, columns, tgt_len, src_len, CAUSAL)
        places = (map_index * tgt_len + rows[:, None]) * src_len + columns[None, :]
        grad = factor * tl.load(grad_mixed + places, mask=inside, other=0.0)
        k = _positions(keys, keys_row, columns, src_len, head_dim, DEPTH)
        sums += tl.dot(grad.to(k.dtype), k, input_precision=PRECISION)
    _write_positions(grad_queries, queries_row, rows, tgt_len, head_dim, scaling * sums, DEPTH)


@triton.jit
def _keys_gradient(
    block, map_index, grad_mixed, queries, queries_row, grad_keys, keys_row,
    tgt_len, src_len, head_dim, factor, scaling,
    CAUSAL: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    sums = tl.zeros((COLUMNS, DEPTH), tl.float32)
    for start in range(_first_row(block * COLUMNS, CAUSAL, ROWS), tgt_len, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = _in_map(rows, columns, tgt_len, src_len, CAUSAL)
        places = (map_index * tgt_len + rows[:, None]) * src_len + columns[None, :]
        grad = factor * tl.load(grad_mixed + places, mask=inside, other=0.0)
        q = _positions(queries, queries_row, rows, tgt_len, head_dim, DEPTH)
        sums += tl.dot(tl.trans(grad).to(q.dtype), q, input_precision=PRECISION)
    _write_positions(grad_keys, keys_row, columns, src_len, head_dim, scaling * sums, DEPTH)


@triton.jit
def _sum_parts(
    program, sums_by_part, grad_weight, grad_bias, heads, beta, parts,
    SIZE: tl.constexpr, WIDTH: tl.constexpr, TOGETHER: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    """The sums of all parts, in the order of the parts."""
    entries = program * ENTRIES + tl.arange(0, ENTRIES)
    out, tap = entries // WIDTH, entries % WIDTH
    taps = heads * SIZE * SIZE
    sums = tl.zeros((TOGETHER, ENTRIES), tl.float32)
    for start in range(0, parts, TOGETHER):
        part = start + tl.arange(0, TOGETHER)
        inside = (part < parts)[:, None] & (out < heads)[None, :]
        places = part[:, None] * heads * WIDTH + entries[None, :]
        sums += tl.load(sums_by_part + places, mask=inside, other=0.0)
    sums = beta * tl.sum(sums, axis=0)
    tl.store(grad_weight + out * taps + tap, sums, mask=(out < heads) & (tap < taps))
    tl.store(grad_bias + out, sums, mask=(out < heads) & (tap == taps))


@triton.jit(do_not_specialize=SIZES)
def products_gradient(
    grad_mixed, queries, keys, sums_by_part, grad_queries, grad_keys, grad_weight, grad_bias,
    heads, tgt_len, src_len, head_dim, beta, factor, scaling,
    queries_batch, queries_head, queries_row, keys_batch, keys_head, keys_row,
    row_blocks, column_blocks, total, parts,
    CAUSAL: tl.constexpr,
    SIZE: tl.constexpr, WIDTH: tl.constexpr, TOGETHER: tl.constexpr, ENTRIES: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, DEEP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of queries, keys (which lie as they do) and, from their parts, of the parameters.

    factor: what grad_mixed times scaling must be multiplied by. total: batch * heads.
    Programs: row blocks of all maps, column blocks of all maps, blocks of parameters.
    """
    program = tl.program_id(0)
    if program < total * (row_blocks + column_blocks):
        of_keys = program >= total * row_blocks
        blocks = tl.where(of_keys, column_blocks, row_blocks)
        program -= tl.where(of_keys, total * row_blocks, 0)
        index, block = program // blocks, program % blocks
        sentence, head = index // heads, index % heads
        queries_here = start_of_head(sentence, queries_batch, head, queries_head)
        keys_here = start_of_head(sentence, keys_batch, head, keys_head)
        if of_keys:
            _keys_gradient(
                block, index, grad_mixed, queries + queries_here, queries_row,
                grad_keys + keys_here, keys_row, tgt_len, src_len, head_dim, factor, scaling,
                CAUSAL, ROWS, COLUMNS, DEPTH, PRECISION,
            )  # fmt: skip
        else:
            _queries_gradient(
                block, index, grad_mixed, keys + keys_here, keys_row,
                grad_queries + queries_here, queries_row, tgt_len, src_len, head_dim, factor,
                scaling, CAUSAL, ROWS, COLUMNS, DEPTH, PRECISION,
            )  # fmt: skip
    else:
        _sum_parts(
            program - total * (row_blocks + column_blocks), sums_by_part, grad_weight, grad_bias,
            heads, beta, parts, SIZE, WIDTH, TOGETHER, ENTRIES,
        )  # fmt: skip
