"""Every number reported for a translation: all from sacrebleu, each under its own label."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacremoses import MosesDetokenizer


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


def read_lines(path: Path) -> list[str]:
    """Lines of a file, of which only newlines separate them."""
    try:
        with open(path, encoding="utf-8", newline="\n") as lines:
            return [line.removesuffix("\n") for line in lines]
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None


def check_lengths(files: dict[str | Path, list[str]]) -> None:
    """Refuse files of different length: sacrebleu would ignore what one has more."""
    first, *others = files.items()
    for name, lines in others:
        if len(lines) != len(first[1]):
            raise ValueError(
                f"{first[0]} has {len(first[1])} lines, {name} has {len(lines)}: "
                "they must hold the same sentences"
            )


def detokenize(tokens: list[str], lang: str) -> list[str]:
    """Undo Moses tokenization."""
    detokenizer = MosesDetokenizer(lang=lang)
    return [detokenizer.detokenize(line.split()) for line in tokens]


def split_compounds(tokens: list[str]) -> list[str]:
    """Words joined by a hyphen as three tokens, as published WMT'14 En-De scores count them.

    Hyphens that Moses' aggressive splitting has set apart (``@-@``) are joined first, so that
    both kinds of tokenized text give the same.
    """
    joined = [line.replace(" @-@ ", "-") for line in tokens]
    return [re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line) for line in joined]


def metric_on_tokens(lowercase: bool) -> Metric:
    """BLEU that takes the tokens as they are (``force``: no warning that they are tokens)."""
    return BLEU(lowercase=lowercase, tokenize="none", force=True)


def metric_on_text(lowercase: bool) -> Metric:
    """BLEU with sacrebleu's own tokens: comparable between papers."""
    return BLEU(lowercase=lowercase)


def all_scores(translation: Translation) -> list[Score]:
    """Tokenized BLEU, compound-split BLEU if asked for, sacreBLEU, chrF and TER."""
    lowercase = translation.lowercase
    case = ", lower-cased" if lowercase else ""
    tokens, references = translation.tokens, translation.tokenized_references
    on_tokens = metric_on_tokens(lowercase)
    scores = [_score(f"tokenized BLEU{case}", on_tokens, tokens, references)]
    if translation.compound_split:
        split = split_compounds(tokens), split_compounds(references)
        scores.append(_score(f"compound-split BLEU{case}", on_tokens, *split))
    text = translation.text
    for label, metric in [
        (f"sacreBLEU{case}", metric_on_text(lowercase)),
        (f"chrF{case}", CHRF(lowercase=lowercase)),
        ("TER", TER()),
    ]:
        scores.append(_score(label, metric, text, translation.references))
    return scores


def _score(label: str, metric: Metric, hypotheses: list[str], references: list[str]) -> Score:
    score = metric.corpus_score(hypotheses, [references]).score
    return Score(label, score, str(metric.get_signature()))


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
