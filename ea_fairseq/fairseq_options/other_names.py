"""Other toolkits' names of fairseq's options, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Collection

#: Words for a thing -> fairseq's options for it, in training or in generation.
OTHER_NAMES = {
    "learning-rate": ("lr",),
    "epochs": ("max-epoch",),
    "num-epochs": ("max-epoch",),
    "steps": ("max-update",),
    "max-steps": ("max-update",),
    "num-steps": ("max-update",),
    "iterations": ("max-update",),
    "warmup": ("warmup-updates",),
    "warmup-steps": ("warmup-updates",),
    "batch": ("max-tokens", "batch-size"),
    "tokens-per-batch": ("max-tokens",),
    "accumulate": ("update-freq",),
    "gradient-accumulation": ("update-freq",),
    "gradient-accumulation-steps": ("update-freq",),
    "gradient-clipping": ("clip-norm",),
    "max-grad-norm": ("clip-norm",),
    "scheduler": ("lr-scheduler",),
    "schedule": ("lr-scheduler",),
    "loss": ("criterion",),
    "model": ("arch",),
    "architecture": ("arch",),
    "early-stopping": ("patience",),
    "early-stopping-patience": ("patience",),
    "hidden-size": ("encoder-embed-dim", "decoder-embed-dim"),
    "d-model": ("encoder-embed-dim", "decoder-embed-dim"),
    "embed-dim": ("encoder-embed-dim", "decoder-embed-dim"),
    "embedding-size": ("encoder-embed-dim", "decoder-embed-dim"),
    "ffn-dim": ("encoder-ffn-embed-dim", "decoder-ffn-embed-dim"),
    "layers": ("encoder-layers", "decoder-layers"),
    "num-layers": ("encoder-layers", "decoder-layers"),
    "heads": ("encoder-attention-heads", "decoder-attention-heads"),
    "num-heads": ("encoder-attention-heads", "decoder-attention-heads"),
    "tie-embeddings": ("share-all-embeddings", "share-decoder-input-output-embed"),
    "tied-embeddings": ("share-all-embeddings", "share-decoder-input-output-embed"),
    "mixed-precision": ("fp16", "bf16", "amp"),
    "half": ("fp16", "bf16"),
    "save-steps": ("save-interval-updates",),
    "alpha": ("ea-alpha",),
    "beta": ("ea-beta",),
    "kernel": ("ea-kernel-size",),
    "kernel-size": ("ea-kernel-size",),
    "skip": ("ea-skip",),
    "convolution": ("ea-convolution",),
    "beam-size": ("beam",),
    "num-beams": ("beam",),
    "length-penalty": ("lenpen",),
    "max-length": ("max-len-a", "max-len-b"),
    "top-k": ("sampling-topk",),
    "top-p": ("sampling-topp",),
    "n-best": ("nbest",),
    "detokenize": ("post-process",),
}


def near(name: str, known: Collection[str]) -> list[str]:
    """The options that somebody may have meant by a name, those of its meaning first.

    Args:
        name: what was written, without dashes in front.
        known: the options that there are, without dashes in front.
    """
    plain = name.lower().replace("_", "-")
    words = [plain, *difflib.get_close_matches(plain, OTHER_NAMES, n=1, cutoff=0.85)]
    found = [option for word in words for option in OTHER_NAMES.get(word, ())]
    found += difflib.get_close_matches(plain, known, n=5)
    return [option for option in dict.fromkeys(found) if option in known]
