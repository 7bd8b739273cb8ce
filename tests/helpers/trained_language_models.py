"""Language models trained by fairseq-train on a tiny text, once for all tests."""

import random

from fairseq_commands import USER_DIR, WORDS, shared, succeeds

SIZES = [
    *("--decoder-embed-dim", "16", "--decoder-ffn-embed-dim", "16"),
    *("--decoder-attention-heads", "2", "--decoder-layers", "2"),
]


@shared
def _text(folder):
    generator = random.Random(1)

    def text(count):
        for _ in range(count):
            words = [generator.randrange(20)]
            for _ in range(generator.randint(2, 9)):
                words.append((words[-1] + generator.choice((1, 3))) % 20)
            yield " ".join(WORDS[word] for word in words)

    arguments = ["--only-source", "--workers", "1", "--destdir", folder / "bin"]
    for split, count in (("train", 120), ("valid", 12), ("test", 15)):
        (folder / split).write_text("".join(f"{line}\n" for line in text(count)))
        arguments += [f"--{split}pref", folder / split]
    succeeds("preprocess", *arguments)


def corpus():
    """Binarized text in which each word is followed by one of two."""
    return _text() / "bin"


def training(save_dir, *more, arch="ea_transformer_lm_lite", data=None):
    return [
        data or corpus(),
        *("--user-dir", USER_DIR, "--task", "language_modeling", "--arch", arch, *SIZES),
        *("--tokens-per-sample", "24", "--optimizer", "adam", "--lr", "0.01", "--dropout", "0.1"),
        *("--max-tokens", "120", "--num-workers", "0", "--save-dir", save_dir),
        *("--share-decoder-input-output-embed", "--no-progress-bar", *more),
    ]


@shared
def _language_model(folder, mode, arch):
    more = ["--max-epoch", "4", "--sample-break-mode", mode]
    succeeds("train", *training(folder, *more, arch=arch))


def trained(mode="none", arch="ea_transformer_lm_lite"):
    """A folder with the checkpoints of four epochs on `corpus`."""
    return _language_model(mode, arch)
