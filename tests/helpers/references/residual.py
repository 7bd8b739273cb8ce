"""RealFormer (arXiv 2012.11747), section 3."""


def before(logits, carry, visible, params, place, options, projected):
    """Z = L + carry."""
    z = logits.copy()
    if carry is not None and place.attention in options.skip:
        z += carry
    return z * visible, visible
