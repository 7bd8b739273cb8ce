"""Multi-token attention (arXiv 2504.00927), sections 3.1 to 3.3, one sum for each entry."""

import math

import numpy as np


def before(logits, carry, visible, params, place, options, projected):
    """The convolution of each head's map over queries and keys."""
    heads, tgt_len, src_len = logits.shape
    if "kernel" not in params:
        return logits * visible, visible
    rows, columns = options.query_kernel, options.key_kernel
    first = -(rows // 2) if place.attention == "encoder" else 1 - rows  # row read, relative to t
    z = np.zeros(logits.shape)
    for h in range(heads):
        for t in range(tgt_len):
            for s in range(src_len):
                for a in range(rows):
                    for b in range(columns):
                        row, column = t + first + a, s + b - (columns - 1) // 2
                        inside = 0 <= row < tgt_len and 0 <= column < src_len
                        if inside and visible[row, column] and visible[t, s]:
                            z[h, t, s] += params["kernel"][h, 0, a, b] * logits[h, row, column]
    return z, visible


def after(probs, visible, params, place, options):
    """Within each group, every head becomes a weighted sum of the group's heads."""
    size = options.head_group
    if size == 1:
        return probs
    mixed = np.zeros(probs.shape)
    for h in range(len(probs)):
        group, place_in_group = divmod(h, size)
        for other in range(size):
            weight = params["mixing"][group, place_in_group, other]
            mixed[h] += weight * probs[group * size + other]
    return mixed


def output(output, params, place, options):
    """Each head's output over its root mean square, times the gains and the layer's scale."""
    if not options.head_norm:
        return output
    scale = 1 - (0.8 - 0.6 * math.exp(-0.3 * place.layer))
    normal = np.zeros(output.shape)
    for h in range(output.shape[0]):
        for t in range(output.shape[1]):
            size = math.sqrt(sum(x * x for x in output[h, t]) / output.shape[2] + 1e-5)
            normal[h, t] = scale * params["gain"] * output[h, t] / size
    return normal
