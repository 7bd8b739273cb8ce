"""Slow oracles of the score functions: the logits of one sentence, entry by entry.

Shapes: q and k are (heads, length, head_dim), logits (heads, tgt_len, src_len); params are the
score function's parameters by name.
"""

import math

import numpy as np


def product(h, t, s, q, k, params):
    """q k."""
    return q @ k / math.sqrt(len(q))


def multiplicative(h, t, s, q, k, params):
    """q W1 k."""
    return q @ params["weight"][h] @ k / math.sqrt(len(q))


def additive(h, t, s, q, k, params):
    """w2 tanh(W3 k + W4 q)."""
    hidden = np.tanh(params["of_key"][h] @ k + params["of_query"][h] @ q)
    return params["weight"][h] @ hidden / math.sqrt(len(q))


def concatenative(h, t, s, q, k, params):
    """w5 tanh(W6 [k ; q])."""
    w6 = np.concatenate([params["of_key"][h], params["of_query"][h]], axis=1)
    return params["weight"][h] @ np.tanh(w6 @ np.concatenate([k, q])) / math.sqrt(len(q))


def dense_synthesizer(h, t, s, q, k, params):
    """Entry s of W2 relu(q) + b2."""
    return np.maximum(q, 0) @ params["weight"][h, :, s] + params["bias"][h, s]


def random_synthesizer(h, t, s, q, k, params):
    """A learned number."""
    return params["weight"][h, t, s]


def logits(name, q, k, params, heads, tgt_len, src_len):
    """The logits of a score function; q or k is None where the model projects none."""
    entry = globals()[name]
    result = np.zeros((heads, tgt_len, src_len))
    for h in range(heads):
        for t in range(tgt_len):
            for s in range(src_len):
                query = None if q is None else q[h, t]
                key = None if k is None else k[h, s]
                result[h, t, s] = entry(h, t, s, query, key, params)
    return result


def mapped_keys(name, k, params):
    """The keys that a transform sees: additive scores map them once."""
    if name not in ("additive", "concatenative"):
        return k
    return np.stack([one @ w3.T for one, w3 in zip(k, params["of_key"], strict=True)])
