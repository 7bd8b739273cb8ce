"""A language model's losses on a text, block by block, and the perplexity that they come to.

A word is what stands between two spaces or line ends, whatever pieces it is split into; each line's
end counts as a word of its own. An unknown word is predicted as the one entry of the dictionary
that they all are. Of an unknown piece nobody knows any more whether a word ends there: BPE's count
as a word each, sentencepiece's as none, and `LossMeasure.warning` says so. Where the tokens are
bytes, all this is about characters: a line's end is the line feed.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy

from ...files import read_json, write_json
from .significance import draw_sentences, sampled_scores

UNITS = ("word", "character")
#: Samples of the bootstrap that a perplexity's interval comes from.
SAMPLES = 1000
#: How a text of bytes writes them.
_BYTES = {str(byte) for byte in range(256)}


@dataclass(frozen=True)
class ScoredText:
    """What is the same for all models that read a text alike: its blocks and their words.

    Attributes:
        unit: "word" or "character"
        text: a hash of the words
        mode: fairseq's --sample-break-mode
        subword: "bpe", "sentencepiece" or "none"
        tokens: (blocks,), what the model predicts in each block
        units: (blocks,), words or characters that end there (with sentencepiece: that begin)
        line_ends: how many of them are a line's end
        unknown: how many tokens are not in the dictionary
    """

    unit: str
    text: str
    mode: str
    subword: str
    tokens: list[int]
    units: list[int]
    line_ends: int
    unknown: int


def scored_text(
    blocks: list[list[int]], symbols: list[str], eos: int, unk: int, settings: dict[str, str]
) -> ScoredText:
    """Count what a model scored.

    Args:
        blocks: the tokens of each block, as numbers
        symbols: the dictionary's entries
        eos, unk: the numbers of a line's end and of unknown words
        settings: unit, mode and subword
    """
    whole = numpy.array([_is_unit(symbol, settings["subword"]) for symbol in symbols])
    whole[eos] = True
    text = hashlib.sha256()
    rest = ""
    for block in blocks:
        pieces = "".join("\n" if token == eos else f"{symbols[token]} " for token in block)
        # Pieces of a word may stand in two blocks: what may go on is kept for the next.
        done, rest = _words(rest + pieces, settings["subword"])
        text.update(done.encode())
    text.update(rest.encode())
    return ScoredText(
        text=text.hexdigest(),
        tokens=[len(block) for block in blocks],
        units=[int(whole[block].sum()) for block in blocks],
        line_ends=sum(block.count(eos) for block in blocks),
        unknown=sum(block.count(unk) for block in blocks),
        **settings,
    )


def check_units(symbols: list[str], unit: str, subword: str) -> None:
    """Refuse a dictionary whose entries are seen to be no such pieces: the counts would be wrong.

    Args:
        symbols: the dictionary's entries
        unit: "word" or "character"
        subword: "bpe", "sentencepiece" or "none"

    Raises:
        ValueError: naming the option and what to choose.
    """
    # A word of a text may look like a piece: one entry in a hundred is not held against it.
    few = len(symbols) / 100
    begun = sum(symbol.startswith("\u2581") for symbol in symbols)
    cut = sum(symbol.endswith("@@") for symbol in symbols)
    found = "sentencepiece" if begun > few else "bpe" if cut > few else "none"
    wrong = begun == 0 if subword == "sentencepiece" else found not in (subword, "none")
    if wrong:
        raise ValueError(f"--subword {subword}: the dictionary's entries look like {found}'s")
    single = sum(len(symbol) == 1 or symbol in _BYTES for symbol in symbols)
    if unit == "character" and single < len(symbols) / 2:
        raise ValueError(
            f"--unit character: of the dictionary's {len(symbols)} entries only {single} are "
            "characters or bytes (0 to 255): choose word"
        )


def _is_unit(symbol: str, subword: str) -> bool:
    """Whether a token ends a word; of sentencepiece's, which mark beginnings, begins one."""
    if subword == "sentencepiece":
        return symbol.startswith("\u2581")
    return subword == "none" or not symbol.endswith("@@")


def _words(text: str, subword: str) -> tuple[str, str]:
    """Tokens without the marks of subwords, as far as the last line's end; and the rest."""
    done, end, rest = text.rpartition("\n")
    done += end
    if subword == "bpe":
        return done.replace("@@ ", ""), rest
    if subword == "sentencepiece":
        return done.replace(" ", "").replace("\u2581", " "), rest
    return done, rest


@dataclass(frozen=True)
class LossMeasure:
    """A perplexity per word, or bits per character, with what the bootstrap needs of it.

    The interface is that of `scoring.Measure`, with blocks in the place of sentences.

    Args:
        scored: the text
        context: tokens that each block sees before it
        nats: (blocks,), sums of -ln p over the tokens
    """

    scored: ScoredText
    context: int
    nats: list[float]
    #: What differs where two of these cannot be compared.
    compared = "text, or the blocks that it was scored in,"

    @property
    def label(self) -> str:
        """What the number is called."""
        name = "perplexity per word" if self.scored.unit == "word" else "bits per character"
        return f"{name}, context window {self.context}" if self.context else name

    @property
    def digits(self) -> int:
        """Digits behind the point that are worth showing."""
        return 2 if self.scored.unit == "word" else 4

    @property
    def references(self) -> tuple[str, list[int]]:
        """What two models must have in common to be compared."""
        return self.scored.text, self.scored.units

    @cached_property
    def statistics(self) -> numpy.ndarray:
        """What is summed over blocks: (blocks, 2), nats and words."""
        return numpy.array([self.nats, self.scored.units], dtype=float).T

    def score_of(self, total: list[float]) -> float:
        """The score that sums of ``statistics`` over blocks give."""
        nats, units = total
        if not units:
            return math.inf
        if self.scored.unit == "character":
            return nats / units / math.log(2)
        return math.exp(nats / units) if nats / units < 700 else math.inf

    def score(self) -> dict[str, Any]:
        """The score of the whole text, with the middle 95 % of a bootstrap over its blocks."""
        counts = draw_sentences(len(self.nats), SAMPLES)
        samples = sampled_scores(self.statistics, counts, self.score_of)
        # Of samples as they are: between two that are infinite there is no number.
        ends = numpy.quantile(samples, [0.025, 0.975], method="nearest")
        return {
            "label": self.label,
            "score": self.score_of(self.statistics.sum(0).tolist()),
            "interval": [float(end) for end in ends],
            "digits": self.digits,
            "nats": math.fsum(self.nats),
            "signature": self.signature,
        }

    @property
    def warning(self) -> str | None:
        """What makes the number of words uncertain, in a line; None where it is certain."""
        scored = self.scored
        if not scored.unknown or scored.subword == "none":
            return None
        many, what = ("many", "a word each") if scored.subword == "bpe" else ("few", "no word")
        return (
            f"unknown pieces count as {what}, and a word may have several: of "
            f"{sum(scored.units)} words up to {scored.unknown} are too {many}"
        )

    @property
    def signature(self) -> str:
        """How it was counted."""
        scored = self.scored
        tokens = f"tokens:{sum(scored.tokens)}" + (
            f" ({scored.subword})" if scored.subword != "none" else ""
        )
        return "|".join(
            [
                f"{scored.unit}s:{sum(scored.units)}",
                f"of these line ends:{scored.line_ends}",
                tokens,
                f"unknown tokens:{scored.unknown}",
                f"blocks:{len(scored.units)} ({scored.mode})",
                f"context:{self.context}",
                f"interval:95 %, bootstrap of blocks, {SAMPLES} samples",
            ]
        )


def write_losses(path: Path, measures: list[LossMeasure]) -> None:
    """Keep the losses of every block, with each context window, in a file."""
    write_json(path, [asdict(measure) for measure in measures])


def read_losses(path: Path) -> list[LossMeasure]:
    """What `write_losses` wrote.

    Raises:
        ValueError: naming the file, if it holds something else.
    """
    found = read_json(path, list)
    try:
        return [
            LossMeasure(ScoredText(**one["scored"]), one["context"], one["nats"]) for one in found
        ]
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path}: not what evaluate_lm.py writes: {error}") from None
