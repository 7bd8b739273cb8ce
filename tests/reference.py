"""Slow oracles: the equations as loops in float64, sharing no code with the package.

Shapes as in the package; everything is numpy. Sources: "Evolving Attention with Residual
Convolutions" (arXiv 2102.12895), equations (1), (4), (5), (6) and section 3.5; "Attention Is All
You Need" (arXiv 1706.03762), sections 3.1 to 3.5.
"""

import math

import numpy as np

REGIONS = ("encoder", "decoder", "encoder-decoder")


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
    skip connection."""
    heads, tgt_len, src_len = logits.shape
    a_in = np.zeros(logits.shape)
    for h in range(heads):
        for t in range(tgt_len):
            for s in range(src_len):
                if visible[t, s]:
                    a_in[h, t, s] = logits[h, t, s]
                    if carry is not None:
                        a_in[h, t, s] = alpha * carry[h, t, s] + (1 - alpha) * logits[h, t, s]
    if weight is None:
        return a_in
    term = convolve_map(a_in, visible, weight, bias, region)
    return beta * term + (1 - beta) * a_in


def masked_softmax(z, visible):
    """Softmax over the visible keys of each query, by its definition."""
    heads, tgt_len, src_len = z.shape
    probs = np.zeros(z.shape)
    for h in range(heads):
        for t in range(tgt_len):
            keys = [s for s in range(src_len) if visible[t, s]]
            if not keys:
                continue
            top = max(z[h, t, s] for s in keys)
            total = sum(math.exp(z[h, t, s] - top) for s in keys)
            for s in keys:
                probs[h, t, s] = math.exp(z[h, t, s] - top) / total
    return probs


class Transformer:
    """EA-Transformer on one sentence without padding.

    params: name -> float64 array, named as in the model's state dict; options: a dictionary with
    heads, layers, alpha, beta, convolution, skip, normalize_before, padding_idx
    """

    def __init__(self, params, **options):
        self.params = params
        self.options = options

    def scores(self, src_tokens, prev_output_tokens):
        """Output scores before softmax: (tgt_len, vocabulary)."""
        source = self._stack(self._embed("encoder", src_tokens), "encoder", None)
        features = self._stack(self._embed("decoder", prev_output_tokens), "decoder", source)
        return features @ self.params["decoder.output_projection.weight"].T

    def _embed(self, side, tokens):
        table = self.params[f"{side}.embed_tokens.weight"]
        dim = table.shape[1]
        half = dim // 2
        x = np.zeros((len(tokens), dim))
        for index, token in enumerate(tokens):
            position = index + 1 + self.options["padding_idx"]
            x[index] = math.sqrt(dim) * table[token]
            for i in range(half):
                angle = position * math.exp(-i * math.log(10000) / (half - 1))
                x[index, i] += math.sin(angle)
                x[index, half + i] += math.cos(angle)
        return x

    def _stack(self, x, side, source):
        length = len(x)
        everything = np.ones((length, length), dtype=bool)
        carries = {"self": None, "cross": None}
        for index in range(self.options["layers"]):
            name = f"{side}.layers.{index}"
            seen = everything if side == "encoder" else np.tril(everything)
            x = self._sublayer(
                x,
                f"{name}.self_attn_layer_norm",
                lambda y, n=name, v=seen: self._attention(
                    y, y, v, f"{n}.self_attn", side, carries, "self"
                ),
            )
            if side == "decoder":
                seen = np.ones((length, len(source)), dtype=bool)
                x = self._sublayer(
                    x,
                    f"{name}.encoder_attn_layer_norm",
                    lambda y, n=name, v=seen: self._attention(
                        y, source, v, f"{n}.encoder_attn", "encoder-decoder", carries, "cross"
                    ),
                )
            x = self._sublayer(
                x,
                f"{name}.final_layer_norm",
                lambda y, n=name: self._linear(
                    np.maximum(self._linear(y, f"{n}.fc1"), 0), f"{n}.fc2"
                ),
            )
        if self.options["normalize_before"]:
            x = self._layer_norm(x, f"{side}.layer_norm")
        return x

    def _sublayer(self, x, norm, function):
        if self.options["normalize_before"]:
            return x + function(self._layer_norm(x, norm))
        return self._layer_norm(x + function(x), norm)

    def _attention(self, query, key, visible, name, region, carries, kind):
        heads = self.options["heads"]
        q, k, v = (
            self._linear(x, f"{name}.{part}_proj")
            for x, part in ((query, "q"), (key, "k"), (key, "v"))
        )
        dim = q.shape[1] // heads
        split = [slice(h * dim, (h + 1) * dim) for h in range(heads)]
        logits = np.stack([q[:, cut] @ k[:, cut].T / math.sqrt(dim) for cut in split])
        has_convolution = region in self.options["convolution"]
        z = evolve_map(
            logits,
            carries[kind] if region in self.options["skip"] else None,
            visible,
            self.params[f"{name}.transform.convolution.weight"] if has_convolution else None,
            self.params[f"{name}.transform.convolution.bias"] if has_convolution else None,
            region,
            self.options["alpha"],
            self.options["beta"],
        )
        carries[kind] = z
        probs = masked_softmax(z, visible)
        output = np.concatenate([probs[h] @ v[:, cut] for h, cut in enumerate(split)], axis=1)
        return self._linear(output, f"{name}.out_proj")

    def _linear(self, x, name):
        return x @ self.params[f"{name}.weight"].T + self.params[f"{name}.bias"]

    def _layer_norm(self, x, name):
        mean = x.mean(axis=1, keepdims=True)
        variance = ((x - mean) ** 2).mean(axis=1, keepdims=True)
        normal = (x - mean) / np.sqrt(variance + 1e-5)
        return normal * self.params[f"{name}.weight"] + self.params[f"{name}.bias"]
