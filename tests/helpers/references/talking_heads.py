"""Talking heads (arXiv 2003.02436): one loop for each index of a map."""

import numpy as np


def mix(maps, weight):
    """Each head's map as a weighted sum of all heads' maps."""
    mixed = np.zeros(maps.shape)
    heads, tgt_len, src_len = maps.shape
    for t in range(tgt_len):
        for s in range(src_len):
            for h in range(heads):
                for g in range(heads):
                    mixed[h, t, s] += weight[h, g] * maps[g, t, s]
    return mixed


def before(logits, carry, visible, params, place, options, projected):
    """Of the logits, where the option asks for it."""
    z = mix(logits, params["before"]) if "before" in options.head_mixing else logits
    return z * visible, visible


def after(probs, visible, params, place, options):
    """Of the probabilities."""
    return mix(probs, params["after"]) if "after" in options.head_mixing else probs
