"""Predictive attention (PA-Transformer, ICLR 2021 submission), equation (4)."""

from .evolving import convolve_map


def before(logits, carry, visible, params, place, options, projected):
    """Z = alpha CNN(carry) + (1 - alpha) L; the first layer has Z = L."""
    heads, tgt_len, src_len = logits.shape
    if carry is None:
        return logits * visible, visible
    prediction = carry
    for index in range(options.prediction_layers):
        weight = params[f"convolutions.{index}.weight"]
        bias = params[f"convolutions.{index}.bias"]
        prediction = convolve_map(prediction, visible, weight, bias, "encoder")
    z = logits.copy()
    for h in range(heads):
        for t in range(tgt_len):
            for s in range(src_len):
                predicted = prediction[h, t, s] * visible[t, s]
                z[h, t, s] = options.alpha * predicted + (1 - options.alpha) * logits[h, t, s]
    return z * visible, visible
