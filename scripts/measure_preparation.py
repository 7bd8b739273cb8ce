#!/usr/bin/env python3
"""Measures the streaming part of prepare.py: pairs per second and peak memory.

    python scripts/measure_preparation.py --pairs 1000000

Generates random pairs, then reads, cleans, tokenises and writes them, and splits them into
subwords, as prepare.py does. Memory is printed along the way: it should not grow with the corpus.
"""

import argparse
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

from ea_fairseq.corpus.config import Cleaning, Corpus, Part
from ea_fairseq.corpus.inputs import Source
from ea_fairseq.corpus.mixing import PartText
from ea_fairseq.corpus.pipeline import split_text, tokenize_splits
from ea_fairseq.corpus.readers import Pair, read_pairs
from ea_fairseq.corpus.subwords import learn
from ea_fairseq.files import LineWriter
from ea_fairseq.text.tokens import Tokenization

CORPUS = Corpus(
    name="generated",
    source_lang="de",
    target_lang="en",
    files={split: [Part(split + ".{lang}")] for split in ("train", "valid", "test")},
    tokenize=Tokenization(normalize=("train",), lowercase=True, escape=True),
    clean=Cleaning(max=175, ratio=1.5),
)
SAMPLE, MERGES = 5_000, 1_000  # lines and merges: learning is not what is measured


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="default: all cores")
    parser.add_argument("--folder", type=Path, help="for temporary files (default: the system's)")
    args = parser.parse_args(argv)
    if args.pairs < 1:
        parser.error(f"--pairs is {args.pairs}: expected a whole number from 1")
    if args.workers < 1:
        parser.error(f"--workers is {args.workers}: expected a whole number from 1")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        measure(Path(folder), args.pairs, args.workers)
    return 0


def measure(folder: Path, pairs: int, workers: int) -> None:
    """Prints what each step took."""
    for name in ("in", "raw", "tok", "bpe"):
        (folder / name).mkdir()
    generate(folder / "in", pairs)
    sides = [folder / "in" / f"train.{lang}" for lang in CORPUS.languages]
    sources = [Source(path, str(path), "lines", path.name) for path in sides]
    with measured("read, clean, tokenise, write", pairs), ExitStack() as stack:
        stream = watched(read_pairs(*sources), every=max(pairs // 4, 1))
        writers = [
            stack.enter_context(LineWriter(folder / name / f"train.{lang}"))
            for name in ("raw", "tok")
            for lang in CORPUS.languages
        ]
        tokenize_splits(CORPUS, {"train": [PartText(stream)]}, {"train": writers}, workers)

    sample = folder / "sample"
    with open(folder / "tok" / "train.de", encoding="utf-8") as lines:
        sample.write_text("".join(islice(lines, SAMPLE)), encoding="utf-8")
    learn("bpe", [sample], MERGES, 1, 1, folder / "codes")
    with measured("split into subwords, write", pairs):
        split_text(CORPUS, "train", folder / "tok", folder / "codes", folder / "bpe", workers)


def generate(folder: Path, pairs: int) -> None:
    """Writes random sentences of 5 to 30 words, frequent words more often than rare ones."""
    draw = random.Random(1)
    letters = "aeinrstdhulcgmobwfkzpvüäöjyxqéß"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 11))) for _ in range(100_000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    text = draw.choices(words, weights, k=1_000_000)
    with LineWriter(folder / "train.de") as source, LineWriter(folder / "train.en") as target:
        for _ in range(pairs):
            length = draw.randint(5, 30)
            for writer in (source, target):
                start = draw.randrange(len(text) - length)
                sentence = text[start : start + length]
                sentence[length // 2] += ","
                writer.write(" ".join(sentence).capitalize() + ".")


def watched(stream: Iterator[Pair], every: int) -> Iterator[Pair]:
    """The same stream; prints the memory in use after each `every` pairs."""
    for number, pair in enumerate(stream, start=1):
        yield pair
        if number % every == 0:
            print(f"  {number} pairs read, {memory()}", flush=True)


@contextmanager
def measured(what: str, pairs: int) -> Iterator[None]:
    """Prints how fast the block was, and the most memory used up to now."""
    start, cpu = time.monotonic(), processor_time()
    yield
    seconds, cpu = time.monotonic() - start, processor_time() - cpu
    print(
        f"{what}: {pairs / seconds:,.0f} pairs/s ({seconds:.0f} s), "
        f"{pairs / cpu:,.0f} pairs per second of processor time, {memory()}",
        flush=True,
    )


def processor_time() -> float:
    """Seconds used by this process and its finished workers."""
    times = os.times()
    return sum(times[:4])


def memory() -> str:
    """The most memory that this process, and any of its finished workers, has used."""
    own, workers = (
        resource.getrusage(who).ru_maxrss // 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return f"peak memory {own} MiB" + (f", largest worker {workers} MiB" if workers else "")


if __name__ == "__main__":
    sys.exit(main())
