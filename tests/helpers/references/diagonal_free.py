"""Diagonal-free mask and scaled diagonal ("Bird-Eye Transformers", sections 3.2 and 4.3)."""


def before(logits, carry, visible, params, place, options, projected):
    """(t, t) is hidden but in the first row, or L_tt is multiplied."""
    z, visible = logits.copy(), visible.copy()
    for t in range(logits.shape[1]):
        if options.diagonal != "hidden":
            z[:, t, t] *= options.diagonal
        elif t > 0:
            visible[t, t] = False
    return z * visible, visible
