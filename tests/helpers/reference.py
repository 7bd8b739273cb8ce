"""Slow oracle of a whole model: loops in float64, sharing no code with the package.

Shapes as in the package; everything is numpy. Source: "Attention Is All You Need" (arXiv
1706.03762), sections 3.1 to 3.5; what a variant does to the maps stands in references/.
"""

import math

import numpy as np
import score_references
from references import reference_of

from ea_fairseq.attention.scores import SCORES
from ea_fairseq.attention.variants import Place

REGIONS = ("encoder", "decoder", "encoder-decoder")


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


def attention(variant, logits, carry, visible, params, place, options, projected):
    """One sentence through a variant's attention.

    Returns z (the layer above's carry), probabilities and each head's output.
    """
    reference = reference_of(variant)
    z, seen = reference.before(logits, carry, visible, params, place, options, projected)
    probs = reference.after(masked_softmax(z, seen), seen, params, place, options)
    output = np.stack([p @ v for p, v in zip(probs, projected[2], strict=True)])
    return z, probs, reference.output(output, params, place, options)


class Transformer:
    """A model on one sentence without padding.

    params: name -> float64 array, named as in the model's state dict; chosen: the model's
    EAOptions; options: a dictionary with heads, layers, normalize_before, padding_idx
    """

    def __init__(self, params, chosen, **options):
        self.params = params
        self.chosen = chosen
        self.options = options

    def scores(self, src_tokens, prev_output_tokens):
        """Output scores before softmax: (tgt_len, vocabulary). A language model has no source."""
        source = None
        if "encoder.embed_tokens.weight" in self.params:
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
                lambda y, n=name, v=seen: self._self_attention(
                    y, v, f"{n}.self_attn", side, carries
                ),
            )
            if source is not None:
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

    def _self_attention(self, x, visible, name, region, carries):
        if self.chosen.model.branch == "none":
            return self._attention(x, x, visible, name, region, carries, "self")
        half = x.shape[1] // 2
        attended = self._attention(
            x[:, :half], x[:, :half], visible, f"{name}.attention", region, carries, "self"
        )
        convolved = self._convolution(x[:, half:], f"{name}.convolution", region == "decoder")
        return np.concatenate([attended, convolved], axis=1)

    def _convolution(self, x, name, causal):
        """Linear, GLU, a kernel for each group of channels, linear (arXiv 2004.11886)."""
        length, width = x.shape
        both = self._linear(x, f"{name}.gated")
        gated = both[:, :width] / (1 + np.exp(-both[:, width:]))
        weight = self.params[f"{name}.convolution.weight"][:, 0]
        heads, size = weight.shape
        convolved = np.zeros(x.shape)
        for head in range(heads):
            kernel = np.exp(weight[head]) / np.exp(weight[head]).sum()
            for t in range(length):
                for i in range(size):
                    read = t + i - (size - 1 if causal else (size - 1) // 2)
                    if 0 <= read < length:
                        channels = slice(head * width // heads, (head + 1) * width // heads)
                        convolved[t, channels] += kernel[i] * gated[read, channels]
        return self._linear(convolved, f"{name}.out_proj")

    def _attention(self, query, key, visible, name, region, carries, kind):
        heads = self.options["heads"]
        parts = ((query, "q"), (key, "k"), (key, "v"))
        q, k, v = (self._projected(x, f"{name}.{part}_proj") for x, part in parts)
        scores = self.chosen.model.scores
        if region not in SCORES[scores].serves:
            scores = "product"
        params = self._under(f"{name}.scores.")
        logits = score_references.logits(scores, q, k, params, heads, len(query), len(key))
        k = score_references.mapped_keys(scores, k, params)
        head_dim = v.shape[2]
        layer = int(name.split(".")[2])
        place = Place(region, heads, head_dim, layer, self.options["layers"])
        variant = self.chosen.chain[region]
        params = self._under(f"{name}.transform.")
        options = self.chosen.options[variant]
        carries[kind], _, output = attention(
            variant, logits, carries[kind], visible, params, place, options, (q, k, v)
        )
        return self._linear(np.concatenate(list(output), axis=1), f"{name}.out_proj")

    def _under(self, prefix):
        """Parameters whose names start so, by the rest of their names."""
        return {
            name.removeprefix(prefix): value
            for name, value in self.params.items()
            if name.startswith(prefix)
        }

    def _projected(self, x, name):
        """(heads, length, head_dim), or None where the model has no such projection."""
        if f"{name}.weight" not in self.params:
            return None
        return self._heads(self._linear(x, name))

    def _heads(self, x):
        """(length, embed_dim) to (heads, length, head_dim)."""
        heads = self.options["heads"]
        return x.reshape(len(x), heads, -1).transpose(1, 0, 2)

    def _linear(self, x, name):
        return x @ self.params[f"{name}.weight"].T + self.params[f"{name}.bias"]

    def _layer_norm(self, x, name):
        mean = x.mean(axis=1, keepdims=True)
        variance = ((x - mean) ** 2).mean(axis=1, keepdims=True)
        normal = (x - mean) / np.sqrt(variance + 1e-5)
        return normal * self.params[f"{name}.weight"] + self.params[f"{name}.bias"]
