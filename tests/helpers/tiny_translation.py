"""A corpus and recipes small enough to go from raw text to scores in seconds."""

import os
import random
import subprocess
import sys
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPTS = REPOSITORY / "scripts"

SIZES = {"train": 240, "valid": 20, "first": 21, "second": 13}

NOUNS = {"Hund": "dog", "Haus": "house", "Baum": "tree", "Buch": "book", "Auto": "car"}
VERBS = {"sieht": "sees", "mag": "likes", "findet": "finds", "kennt": "knows"}

#: A model of a few thousand parameters, for any of the architectures.
TINY_MODEL = {
    f"{side}-{name}": value
    for side in ("encoder", "decoder")
    for name, value in {
        "layers": 2,
        "embed-dim": 16,
        "ffn-embed-dim": 16,
        "attention-heads": 2,
    }.items()
}

COMMON = {
    "corpus": "corpus.yml",
    "train": {
        "task": "translation",
        **TINY_MODEL,
        "share-decoder-input-output-embed": True,
        "optimizer": "adam",
        "lr": 0.01,
        "criterion": "label_smoothed_cross_entropy",
        "label-smoothing": 0.1,
        "max-tokens": 300,
        "max-epoch": 12,
        "keep-last-epochs": 3,
        "log-format": "json",
        "log-interval": 5,
    },
    "average": {"num-epoch-checkpoints": 3},
    "generate": {"beam": 2, "post-process": "subword_nmt"},
    "evaluate": {"lowercase": True},
}


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """German-English pairs that a dictionary and one rule translate."""
    choose = random.Random(seed).choice
    pairs = []
    for _ in range(count):
        (a, b), (v, w), (c, d) = (choose(list(x.items())) for x in (NOUNS, VERBS, NOUNS))
        pairs.append((f"Ein {a} {v} das {c}.", f"A {b} {w} the {d}."))
    return pairs


def make_corpus(folder: Path) -> Path:
    """Raw text, corpus.yml and recipes below ``folder``; returns the recipes' folder."""
    recipes = folder / "tiny.de-en"
    raw = recipes / "raw"
    raw.mkdir(parents=True)
    for seed, (split, size) in enumerate(SIZES.items()):
        pairs = sentences(size, seed)
        for lang, lines in zip(("de", "en"), zip(*pairs, strict=True), strict=True):
            (raw / f"{split}.{lang}").write_text("".join(f"{line}\n" for line in lines))
    corpus = {
        "source_lang": "de",
        "target_lang": "en",
        "files": {split: split for split in SIZES},
        "tokenize": {"lowercase": True},
        "subword_size": 40,
    }
    write_yaml(recipes / "corpus.yml", corpus)
    write_yaml(recipes / "common.yml", COMMON)
    for arch in ("transformer_lite", "ea_transformer_lite"):
        write_yaml(recipes / f"{arch}.yml", {"base": "common.yml", "train": {"arch": arch}})
    return recipes


def write_yaml(path: Path, content: dict) -> None:
    """A YAML file."""
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def arguments(recipe: Path, *options: str) -> list[str]:
    """Arguments of run_recipe.py: data and runs beside the recipes' folder."""
    work = recipe.parents[1] / "work"
    fixed = ["--work-dir", str(work), "--raw", str(recipe.parent / "raw")]
    return [str(recipe), *fixed, "--workers", "1", "--threads", "1", *options]


def command(*arguments: str) -> list[str]:
    """run_recipe.py as a process of its own."""
    return [sys.executable, str(SCRIPTS / "run_recipe.py"), *arguments]


def run(arguments: list, **options) -> subprocess.CompletedProcess:
    """A command with its output as text; what it prints is shown where the test fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(argument) for argument in arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        **options,
    )
    print(done.stdout)
    return done
