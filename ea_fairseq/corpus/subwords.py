"""Learning subwords: subword-nmt's BPE, or sentencepiece."""

import io
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path

from subword_nmt.learn_bpe import learn_bpe

from ..files import LineWriter, new_file
from .mixing import divide
from .parallel import ordered_map

# Different words that BPE is learned on at most: each takes about a kilobyte while it learns.
MOST_WORDS = 4_000_000
# Sentences that sentencepiece learns from, drawn at random from a larger corpus.
SENTENCES = 5_000_000
# Its own default. What it learns depends on their number: each sums up a part of the text.
THREADS = 16


def learn(
    kind: str,
    files: list[Path],
    size: int,
    seed: int,
    workers: int,
    path: Path,
    tags: Collection[str] = (),
) -> None:
    """Learns subwords on all `files` together and writes them to `path`.

    Args:
        kind: "bpe" or "sentencepiece".
        files: tokenised text.
        size: number of merges, or of pieces.
        seed: of sentencepiece's sampling.
        workers: number of processes that count words for BPE; the result is the same for any.
        path: the codes, or the sentencepiece model.
        tags: what lines may begin with that is no text to learn from.
    """
    if kind == "bpe":
        _learn_bpe(files, size, workers, path, tags)
    else:  # not by several processes: text and seed give the same pieces on any machine
        _learn_sentencepiece(files, size, seed, path, tags)


def read_tokens(path: Path, without: Collection[str] = ()) -> Iterator[str]:
    """The lines of a tokenised file, without some tags that they may begin with."""
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield divide(line.removesuffix("\n"), without)[1]


def _count(lines: list[str]) -> Counter:
    return Counter(word for line in lines for word in line.split(" ") if word)


def _learn_bpe(
    files: list[Path], size: int, workers: int, path: Path, tags: Collection[str]
) -> None:
    words: Counter = Counter()
    for file in files:
        lines = read_tokens(file, tags)
        for counts in ordered_map(_count, lines, workers, f"words of {file.name}"):
            words.update(counts)
            if len(words) > MOST_WORDS:
                words = _without_rarest(words, MOST_WORDS // 2)
    # Single characters have no pair to merge, and subword-nmt fails if there is no pair at all.
    if not any(len(word) > 1 for word in words):
        raise ValueError(f"{files[0]}: no word in it to learn subwords from")
    codes = io.StringIO()
    learn_bpe((f"{word} {n}" for word, n in words.items()), codes, size, is_dict=True)
    with new_file(path) as temporary, LineWriter(temporary) as file:
        file.write(codes.getvalue().rstrip("\n"))


def _without_rarest(words: Counter, most: int) -> Counter:
    """The words seen more often than some number of times, at most `most` words."""
    seen = sorted(words.values(), reverse=True)[most]
    kept = Counter({word: times for word, times in words.items() if times > seen})
    print(
        f"{len(words):,} different words, more than memory is meant for: those seen up to "
        f"{seen} times are forgotten, {len(kept):,} stay",
        file=sys.stderr,
    )
    return kept


def _learn_sentencepiece(
    files: list[Path], size: int, seed: int, path: Path, tags: Collection[str]
) -> None:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.set_random_generator_seed(seed)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=chain.from_iterable(read_tokens(file, tags) for file in files),
            model_writer=model,
            vocab_size=size,
            hard_vocab_limit=False,  # a small corpus may not have as many pieces
            character_coverage=1.0,
            normalization_rule_name="identity",  # restoring must give back the very words
            input_sentence_size=SENTENCES,
            shuffle_input_sentence=True,
            num_threads=THREADS,
            minloglevel=1,
        )
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"subword_size {size}: sentencepiece refused: {reason}") from error
    with new_file(path) as temporary:
        temporary.write_bytes(model.getvalue())
