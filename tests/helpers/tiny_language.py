"""A text of one language and recipes of it, small enough to train on in seconds."""

import random
from pathlib import Path

from tiny_translation import NOUNS, VERBS, write_yaml

LINES = {"train": 240, "valid": 20, "test": 21}

COMMON = {
    "corpus": "corpus.yml",
    "train": {
        "task": "language_modeling",
        "decoder-layers": 2,
        "decoder-embed-dim": 16,
        "decoder-ffn-embed-dim": 16,
        "decoder-attention-heads": 2,
        "share-decoder-input-output-embed": True,
        "sample-break-mode": "none",
        "tokens-per-sample": 24,
        "optimizer": "adam",
        "lr": 0.01,
        "max-tokens": 300,
        "max-epoch": 3,
        "keep-last-epochs": 2,
    },
    "average": {"num-epoch-checkpoints": 2},
    "evaluate": {
        "sample-break-mode": "none",
        "tokens-per-sample": 24,
        "context-window": 8,
        "max-tokens": 300,
    },
}


def make_corpus(folder: Path) -> Path:
    """Raw text, corpus.yml and common.yml below ``folder``; returns the recipes' folder."""
    recipes = folder / "tiny.en"
    (recipes / "raw").mkdir(parents=True)
    for seed, (split, count) in enumerate(LINES.items()):
        choose = random.Random(seed).choice
        nouns, verbs = list(NOUNS.values()), list(VERBS.values())
        text = [f"A {choose(nouns)} {choose(verbs)} the {choose(nouns)}." for _ in range(count)]
        (recipes / "raw" / f"{split}.en").write_text("".join(f"{line}\n" for line in text))
    corpus = {"language": "en", "files": {split: split for split in LINES}, "subword_size": 10}
    write_yaml(recipes / "corpus.yml", corpus)
    write_yaml(recipes / "common.yml", COMMON)
    return recipes
