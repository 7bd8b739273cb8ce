"""Evolving attention (arXiv 2102.12895), equation (4) and sections 3.3 and 3.5."""

import numpy as np


def convolve_map(image, visible, weight, bias, region):
    """relu(conv(image)) of one sentence, moved; hidden and vacated pixels are 0.

    image: (heads, tgt_len, src_len); visible: (tgt_len, src_len) of bool; weight: (heads, heads, k,
    k); bias: (heads,)
    """
    heads, tgt_len, src_len = image.shape
    k = weight.shape[-1]
    p = (k - 1) // 2
    convolved = np.zeros(image.shape)
    for out in range(heads):
        for t in range(tgt_len):
            for s in range(src_len):
                if not visible[t, s]:
                    continue
                total = bias[out]
                for channel in range(heads):
                    for i in range(k):
                        for j in range(k):
                            if region == "decoder" and j > i:
                                continue  # above the kernel's diagonal
                            row, column = t + i - p, s + j - p
                            inside = 0 <= row < tgt_len and 0 <= column < src_len
                            if inside and visible[row, column]:
                                total += weight[out, channel, i, j] * image[channel, row, column]
                convolved[out, t, s] = max(total, 0.0)
    down = 0 if region == "encoder" else p
    right = p if region == "decoder" else 0
    moved = np.zeros(image.shape)
    for t in range(down, tgt_len):
        for s in range(right, src_len):
            if visible[t, s]:
                moved[:, t, s] = convolved[:, t - down, s - right]
    return moved


def evolve_map(logits, carry, visible, weight, bias, region, alpha, beta):
    """Equation (4): returns Z, 0 in hidden entries. weight None: no convolution; carry None: no
    skip connection. alpha and beta: a number, or one for each head."""
    heads, tgt_len, src_len = logits.shape
    alpha, beta = np.broadcast_to(alpha, heads), np.broadcast_to(beta, heads)
    a_in = np.zeros(logits.shape)
    for h in range(heads):
        for t in range(tgt_len):
            for s in range(src_len):
                if visible[t, s]:
                    a_in[h, t, s] = logits[h, t, s]
                    if carry is not None:
                        mixed = alpha[h] * carry[h, t, s] + (1 - alpha[h]) * logits[h, t, s]
                        a_in[h, t, s] = mixed
    if weight is None:
        return a_in
    term = convolve_map(a_in, visible, weight, bias, region)
    return np.stack([beta[h] * term[h] + (1 - beta[h]) * a_in[h] for h in range(heads)])


def before(logits, carry, visible, params, place, options, projected):
    """Equation (4) with the options of one attention."""
    region = place.attention
    z = evolve_map(
        logits,
        carry if region in options.skip else None,
        visible,
        params.get("convolution.weight"),
        params.get("convolution.bias"),
        region,
        sigmoid(params.get("learned_alpha"), options.alpha),
        sigmoid(params.get("learned_beta"), options.beta),
    )
    return z, visible


def sigmoid(learned, fixed):
    """One number for each head, where they are learned."""
    return fixed if learned is None else 1 / (1 + np.exp(-learned))
