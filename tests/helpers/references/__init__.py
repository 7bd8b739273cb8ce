"""Slow oracles of the variants, one file each, named as the variant: the equations as loops.

Each file has functions over one sentence, in numpy and float64; a function that a variant does not
need is left out. ``place`` is the attention's ``Place``, ``options`` are the variant's options,
``params`` its transform's parameters by name, ``projected`` queries, keys and values (heads,
length, head_dim) in a tuple, ``visible`` (tgt_len, src_len) of bool:

    before(logits, carry, visible, params, place, options, projected) -> (z, visible)
    after(probs, visible, params, place, options) -> probs
    output(output, params, place, options) -> output (heads, tgt_len, head_dim)
"""

import importlib
from types import SimpleNamespace


def reference_of(variant):
    """The oracle of a variant, with what it leaves out filled in."""
    found = importlib.import_module(f"references.{variant}")
    nothing = {
        "before": lambda logits, carry, visible, *_: (logits * visible, visible),
        "after": lambda probs, *_: probs,
        "output": lambda output, *_: output,
    }
    return SimpleNamespace(**{name: getattr(found, name, nothing[name]) for name in nothing})
