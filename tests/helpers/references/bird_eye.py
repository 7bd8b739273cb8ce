"""BET(SF) ("Bird-Eye Transformers"), equations (6) to (10) for each head."""

import math

from . import diagonal_free


def before(logits, carry, visible, params, place, options, projected):
    """Z_tj = 2 R_j L_tj, R_j = sigmoid(w . [H_j ; K_j]), H = softmax(L) V; then the diagonal."""
    _, keys, values = projected
    heads, length, _ = logits.shape
    z = logits.copy()
    for h in range(heads):
        for j in range(length):
            seen = [s for s in range(length) if visible[j, s]]
            if not seen:
                continue
            exps = {s: math.exp(logits[h, j, s]) for s in seen}
            collected = sum(exps[s] / sum(exps.values()) * values[h, s] for s in seen)
            features = [*collected, *keys[h, j]]
            score = sum(w * x for w, x in zip(params["weight"][h], features, strict=True))
            for t in range(length):
                z[h, t, j] = 2 / (1 + math.exp(-score)) * logits[h, t, j]
    return diagonal_free.before(z, carry, visible, params, place, options, projected)
