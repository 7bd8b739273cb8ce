"""Every number reported for a translation: all from sacrebleu, each under its own label."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from ..files import read_json, read_lines
from ..text.tokens import detokenize
from .generation import read_generated


@dataclass(frozen=True)
class Score:
    """A score, what it is called, and the signature that says how it was computed."""

    label: str
    score: float
    signature: str


@dataclass(frozen=True)
class Translation:
    """Translations of one test set with all that scoring them needs, one sentence an item.

    ``tokens`` are without BPE marks; ``tokenized_references`` and ``references`` are the same
    sentences, the former as the model sees them, the latter as in the corpus.
    """

    tokens: list[str]
    tokenized_references: list[str]
    references: list[str]
    target_lang: str
    lowercase: bool = False
    compound_split: bool = False

    @property
    def text(self) -> list[str]:
        """The translations as one would print them."""
        return detokenize(self.tokens, self.target_lang)


def check_lengths(files: dict[str | Path, list[str]]) -> None:
    """Refuse files of different length: sacrebleu would ignore what one has more."""
    first, *others = files.items()
    for name, lines in others:
        if len(lines) != len(first[1]):
            raise ValueError(
                f"{first[0]} has {len(first[1])} lines, {name} has {len(lines)}: "
                "they must hold the same sentences"
            )


def read_scored(path: Path) -> Translation:
    """The translation that evaluate.py wrote the scores of to ``path``."""
    record = read_json(path)
    files = {name: path.parent / file for name, file in record["files"].items()}
    generated = "generated" in files
    tokens = read_generated(files["generated"])[1] if generated else read_lines(files["hypotheses"])
    return Translation(
        tokens=tokens,
        tokenized_references=read_lines(files["tokenized_references"]),
        references=read_lines(files["references"]),
        target_lang=record["target_lang"],
        lowercase=record["lowercase"],
        compound_split=record["compound_split"],
    )


def split_compounds(tokens: list[str]) -> list[str]:
    """Words joined by a hyphen as three tokens, as published WMT'14 En-De scores count them.

    Hyphens that Moses' aggressive splitting has set apart (``@-@``) are joined first, so that
    both kinds of tokenized text give the same.
    """
    joined = [line.replace(" @-@ ", "-") for line in tokens]
    return [re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line) for line in joined]


@dataclass(frozen=True)
class Measure:
    """One way to score: its label, sacrebleu's metric, and the lines it compares."""

    label: str
    metric: Metric
    hypotheses: list[str]
    references: list[str]

    def score(self) -> Score:
        """The score of all sentences together."""
        score = self.metric.corpus_score(self.hypotheses, [self.references]).score
        return Score(self.label, score, str(self.metric.get_signature()))

    def statistics(self) -> numpy.ndarray:
        """What the metric sums over sentences before it scores: (sentences, quantities)."""
        found = self.metric._extract_corpus_statistics(self.hypotheses, [self.references])
        return numpy.array(found, dtype=float)

    def score_of(self, total: list[float]) -> float:
        """The score that sums of ``statistics`` over sentences give."""
        return float(self.metric._compute_score_from_stats(total).score)


def measures(translation: Translation) -> list[Measure]:
    """Tokenized BLEU, compound-split BLEU if asked for, sacreBLEU, chrF and TER."""
    lowercase = translation.lowercase
    case = ", lower-cased" if lowercase else ""
    tokens, references = translation.tokens, translation.tokenized_references
    # force: the lines are tokens on purpose, no warning about that
    on_tokens = BLEU(lowercase=lowercase, tokenize="none", force=True)
    found = [Measure(f"tokenized BLEU{case}", on_tokens, tokens, references)]
    if translation.compound_split:
        split = split_compounds(tokens), split_compounds(references)
        found.append(Measure(f"compound-split BLEU{case}", on_tokens, *split))
    return found + text_measures(translation.text, translation.references, lowercase)


def text_measures(text: list[str], references: list[str], lowercase: bool) -> list[Measure]:
    """sacreBLEU, chrF and TER of detokenized text; sacrebleu's TER never minds the case."""
    case = ", lower-cased" if lowercase else ""
    return [
        Measure(f"sacreBLEU{case}", BLEU(lowercase=lowercase), text, references),
        Measure(f"chrF{case}", CHRF(lowercase=lowercase), text, references),
        Measure("TER", TER(), text, references),
    ]


def comet_score(
    sources: list[str], translations: list[str], references: list[str], model: str
) -> Score:
    """COMET, where the package unbabel-comet is installed.

    Raises:
        ValueError: it is not.
    """
    try:
        from comet import download_model, load_from_checkpoint
    except ImportError:
        raise ValueError(
            "--comet: the package unbabel-comet is not installed; in an environment of its own "
            "(it needs an older torch and numpy): pip install unbabel-comet"
        ) from None
    import torch

    triples = zip(sources, translations, references, strict=True)
    samples = [{"src": source, "mt": text, "ref": ref} for source, text, ref in triples]
    scorer = load_from_checkpoint(download_model(model))
    output = scorer.predict(samples, batch_size=16, gpus=int(torch.cuda.is_available()))
    return Score("COMET", float(output.system_score), f"model:{model}")


def as_json(scores: list[Score]) -> list[dict[str, Any]]:
    """Scores as JSON writes them."""
    return [asdict(score) for score in scores]
