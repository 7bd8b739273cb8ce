"""Every number reported for a translation: all from sacrebleu, each under its own label."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from ...files import check_file_name, check_shape, read_json, read_lines, shortened
from ...text.tokens import detokenize, plain_language
from ...text.usual_form import accents_apart
from ..runs.generation import read_generated


@dataclass(frozen=True)
class Score:
    """A score, what it is called, and the signature that says how it was computed."""

    label: str
    score: float
    signature: str


@dataclass(frozen=True)
class Translation:
    """Translations of one test set with all that scoring them needs, one sentence an item.

    ``text`` and ``references`` are as one would print them. ``tokens`` are the translations
    without BPE marks, and ``tokenized_references`` the references as the model sees them; where
    either is not known there is no score on tokens. ``language`` is that of the translations.
    """

    text: list[str]
    references: list[str]
    tokens: list[str] | None = None
    tokenized_references: list[str] | None = None
    lowercase: bool = False
    compound_split: bool = False
    language: str | None = None


def check_lengths(files: dict[str | Path, list[str]]) -> None:
    """Refuse files of different length: sacrebleu would ignore what one has more."""
    first, *others = files.items()
    if not first[1]:
        raise ValueError(f"{first[0]} is empty: there is nothing to score")
    for name, lines in others:
        if len(lines) != len(first[1]):
            raise ValueError(
                f"{first[0]} has {len(first[1])} lines, {name} has {len(lines)}: "
                "they must hold the same sentences"
            )


#: A piece that continues, as subword-nmt writes it; a diff's "@@ -1 +1 @@" is none.
_BPE_MARK = re.compile(r"(?<!\S)\S+@@(?= |$)")
_SENTENCEPIECE_MARK = re.compile("\u2581\\S*")


def check_words(files: dict[str | Path, list[str]]) -> None:
    """Refuse text in which words are still split into pieces: its scores would mean nothing."""
    for name, lines in files.items():
        for post_process, pieces in _pieces(lines).items():
            if found := next(pieces, None):
                number, piece = found
                raise ValueError(
                    f"{name}: {piece!r} in sentence {number} is a piece of a word: translate with "
                    f"--post-process {post_process}, and score whole words"
                )


def check_reference_words(name: str | Path, lines: list[str]) -> None:
    """Refuse references in subwords; a corpus may have something like a piece here and there."""
    for pieces in _pieces(lines).values():
        found = list(pieces)
        if len(found) > len(lines) / 20:
            number, piece = found[0]
            raise ValueError(
                f"{name}: {piece!r} in sentence {number} is a piece of a word: give the references "
                "as they were before they were split into subwords"
            )


def warning_of_accents(files: dict[str | Path, list[str]]) -> str | None:
    """What to say where one file writes accents as characters of their own (Unicode's NFD) and
    another as parts of their letters: words that look alike count as errors."""
    apart = {name: sum(map(accents_apart, lines)) for name, lines in files.items()}
    few, many = (choose(apart, key=apart.get) for choose in (min, max))
    if apart[many] <= max(10 * apart[few], len(files[many]) / 100):
        return None
    return (
        f"{many}: {apart[many]} lines have accents apart from their letters (Unicode's NFD), {few} "
        f"{apart[few]}: words that look alike count as errors; bring both to one form (NFC) first"
    )


def _pieces(lines: list[str]) -> dict[str, Iterator[tuple[int, str]]]:
    """By the --post-process that joins them: the first piece in each line that has one, and the
    line's number."""

    def found(mark: re.Pattern[str]) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(lines, start=1):
            if match := mark.search(line):
                yield number, shortened(match[0])

    return {"subword_nmt": found(_BPE_MARK), "sentencepiece": found(_SENTENCEPIECE_MARK)}


def read_record(path: Path) -> dict[str, Any]:
    """What evaluate.py or evaluate_lm.py wrote with ``--json``.

    Raises:
        ValueError: naming the file, if they have not written that.
    """
    return checked_record(read_json(path), str(path))


#: What evaluate.py and evaluate_lm.py write; what only the first does.
_SCORE = {"label": str, "score": int | float}
_RECORD = {"files": {str: str}, "scores": [_SCORE | {"signature": str}]}
_OF_TEXT = {"lowercase": bool, "compound_split": bool, "target_lang": str | None}
#: What a run's results.json has, as far as it is read here.
_RESULTS = {
    "corpus": str,
    "scores": {str: {"scores": [_SCORE]}},
    "settings": dict,
    "data": dict,
    "parameters": int | None,
}


def checked_record(found: Any, name: str) -> dict[str, Any]:
    """What evaluate.py or evaluate_lm.py wrote into a file.

    Raises:
        ValueError: naming the file, if they have not written that.
    """
    try:
        check_shape(found, _RECORD, name)
        if "losses" not in found["files"]:
            check_shape(found, _OF_TEXT | {"files": {"references": str}}, name)
            if not found["files"].keys() & {"translations", "generated", "hypotheses"}:
                raise ValueError(f"{name}: files: lacks translations")
    except ValueError as error:
        raise ValueError(
            f"{error}: not what evaluate.py writes: score the run's translations again"
        ) from None
    return found


def read_results(path: Path, needed: Collection[str] = ()) -> dict[str, Any]:
    """A run's results.json, checked as far as it is read here.

    Args:
        path: of the file
        needed: keys that it must have

    Raises:
        ValueError: naming the file and the key that is missing, of another type than expected, or
            with a name that would lead out of a folder.
    """
    results = read_json(path)
    keys = results.keys() | set(needed)
    check_shape(results, {key: _RESULTS[key] for key in _RESULTS if key in keys}, str(path))
    if "corpus" in results:
        check_file_name(f"{path}: corpus", results["corpus"])
    for test_set in results.get("scores", {}):
        check_file_name(f"{path}: scores", test_set)
    return results


def read_scored(path: Path) -> Translation:
    """The translation that evaluate.py wrote the scores of to ``path``.

    Raises:
        ValueError: naming the file that is gone, or is not what was scored.
    """
    record = read_record(path)
    files = {name: path.parent / file for name, file in record["files"].items()}
    for file in files.values():
        if not file.exists():
            raise ValueError(
                f"{os.path.normpath(file)}: no such file; {path} was scored with it: to move a "
                "run, move the whole work folder"
            )
    return scored_translation(record, files)


def scored_translation(record: dict[str, Any], files: dict[str, Path]) -> Translation:
    """The translation that was scored, of evaluate.py's record and the files that it names.

    Raises:
        ValueError: naming the file that is gone, or is not what was scored.
    """
    plain = files.get("translations")
    tokens = None
    if plain is None:
        path = files.get("generated") or files["hypotheses"]
        tokens = read_generated(path) if "generated" in files else read_lines(path)
    text = read_lines(plain) if tokens is None else detokenize(tokens, record["target_lang"])
    check_words({plain or path: text if tokens is None else tokens})
    compared = {
        name: read_lines(files[name])
        for name in ("references", "tokenized_references")
        if name in files
    }
    # They may be others by now.
    check_lengths({plain or path: text} | {files[name]: compared[name] for name in compared})
    return Translation(
        text=text,
        references=compared["references"],
        tokens=tokens,
        tokenized_references=compared.get("tokenized_references"),
        lowercase=record["lowercase"],
        compound_split=record["compound_split"],
        language=record["target_lang"],
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
    """One way to score: its label, sacrebleu's metric, and the lines it compares.

    ``recorded`` is the score that was written down when a run was scored, where there is one.
    """

    label: str
    metric: Metric
    hypotheses: list[str]
    references: list[str]
    recorded: Score | None = None
    #: Digits behind the point that are worth showing; what differs where two cannot be compared.
    digits = 2
    compared = "references"

    def score(self) -> Score:
        """The score of all sentences together."""
        score = self.metric.corpus_score(self.hypotheses, [self.references]).score
        return Score(self.label, score, str(self.metric.get_signature()))

    @cached_property
    def statistics(self) -> numpy.ndarray:
        """What the metric sums over sentences before it scores: (sentences, quantities)."""
        found = self.metric._extract_corpus_statistics(self.hypotheses, [self.references])
        return numpy.array(found, dtype=float)

    @property
    def signature(self) -> str:
        """How the score is computed, in sacrebleu's words."""
        assert self.statistics is not None  # the signature takes the number of references from it
        return str(self.metric.get_signature())

    def score_of(self, total: list[float]) -> float:
        """The score that sums of ``statistics`` over sentences give."""
        return float(self.metric._compute_score_from_stats(total).score)

    def check_recorded(self, name: str) -> None:
        """Check that the files still hold what was scored.

        Args:
            name: of the test set and the run

        Raises:
            ValueError: they give another score than the one recorded, computed the same way.
        """
        if self.recorded is None or self.recorded.signature != self.signature:
            return
        found = self.score_of(self.statistics.sum(0).tolist())
        if abs(found - self.recorded.score) > 1e-6:
            raise ValueError(
                f"{name}: {self.label} was {self.recorded.score:.2f} when it was scored, and is "
                f"{found:.2f} by its files as they are now: give the run's command again, or score "
                "it again by evaluate.py"
            )


def measures(translation: Translation) -> list[Measure]:
    """Tokenized BLEU, compound-split BLEU if asked for, sacreBLEU, chrF and TER."""
    lowercase = translation.lowercase
    on_text = text_measures(
        translation.text, translation.references, lowercase, translation.language
    )
    tokens, references = translation.tokens, translation.tokenized_references
    if tokens is None or references is None:
        return on_text
    case = ", lower-cased" if lowercase else ""
    # force: the lines are tokens on purpose, no warning about that
    on_tokens = BLEU(lowercase=lowercase, tokenize="none", force=True)
    found = [Measure(f"tokenized BLEU{case}", on_tokens, tokens, references)]
    if translation.compound_split:
        split = split_compounds(tokens), split_compounds(references)
        found.append(Measure(f"compound-split BLEU{case}", on_tokens, *split))
    return found + on_text


#: Languages that put no spaces between words -> sacrebleu's tokenizer of them. Its own one of
#: Japanese takes packages that may not be there; characters are the same everywhere.
_WITHOUT_SPACES = {"zh": "zh"} | dict.fromkeys(("ja", "th", "km", "lo", "my"), "char")


def text_measures(
    text: list[str], references: list[str], lowercase: bool, language: str | None = None
) -> list[Measure]:
    """sacreBLEU, chrF and TER of detokenized text; sacrebleu's TER never minds the case.

    Args:
        text: a translation an item
        references: likewise
        lowercase: whether the case is ignored
        language: of the text, where known: the words of some are told by no space
    """
    case = ", lower-cased" if lowercase else ""
    code = plain_language(language or "")
    tokenizer = _WITHOUT_SPACES.get(code, "13a")
    asian = code in ("zh", "ja")  # whose characters sacrebleu's TER can tell
    bleu = BLEU(lowercase=lowercase, tokenize=tokenizer)
    return [
        Measure(f"sacreBLEU{case}", bleu, text, references),
        Measure(f"chrF{case}", CHRF(lowercase=lowercase), text, references),
        Measure("TER", TER(normalized=asian, asian_support=asian), text, references),
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
