#!/usr/bin/env python3
"""How faithful explanations of a classifier are: attention, gradients and LIME (ERASER).

    python examples/language_understanding/rationales.py MODEL --data glue/SST-2
    python examples/language_understanding/rationales.py MODEL --data movies \
        --output movies.json --picture 0 --beside EVOLVED_MODEL

MODEL is a classifier that was fine-tuned, plain or evolved. --data is a folder of ERASER
(docs/, annotations in test.jsonl or val.jsonl) or of a GLUE task (dev.tsv). Comprehensiveness and
sufficiency are means over rationales of the top 1, 5, 10, 20 and 50 % of words (DeYoung et al.,
arXiv 1911.03429, section 4); AUPRC needs annotations, which GLUE's sets have not, and is left out
there. --picture writes an HTML page of one document with its words coloured, beside another model.
"""

from __future__ import annotations

import argparse
import html
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ea_fairseq.errors import UserError
from ea_fairseq.files import read_json, write_json
from ea_fairseq.hf import load

# isort: split
import numpy as np
import torch
from sklearn.metrics import auc, precision_recall_curve
from tasks import read_examples, task_of
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BatchEncoding

#: Parts of a document's words that make a rationale.
BINS = (0.01, 0.05, 0.1, 0.2, 0.5)

#: Probabilities of classes, (documents, classes), of documents as lists of words.
Classifier = Callable[[Sequence[Sequence[str]]], np.ndarray]


@dataclass(frozen=True)
class Document:
    """Words, the query that goes with them (or ""), and which words are evidence, if anybody said
    so."""

    words: tuple[str, ...]
    query: str = ""
    evidence: tuple[bool, ...] | None = None


def top_words(scores: Sequence[float], part: float) -> list[int]:
    """The places of the best words: that part of all, rounded up, at least one; ties by place."""
    count = max(1, math.ceil(part * len(scores)))
    return sorted(sorted(range(len(scores)), key=lambda place: -scores[place])[:count])


def comprehensiveness(words: Sequence[str], scores: Sequence[float], classify: Classifier) -> float:
    """ERASER's equation 1, mean over :data:`BINS`: p(label | all) - p(label | all but these)."""
    return _aopc(words, scores, classify, keep=False)


def sufficiency(words: Sequence[str], scores: Sequence[float], classify: Classifier) -> float:
    """ERASER's equation 2, mean over :data:`BINS`: p(label | all) - p(label | these alone)."""
    return _aopc(words, scores, classify, keep=True)


def _aopc(words: Sequence[str], scores: Sequence[float], classify: Classifier, keep: bool) -> float:
    chosen = [set(top_words(scores, part)) for part in BINS]
    changed = [
        [word for place, word in enumerate(words) if (place in rationale) == keep]
        for rationale in chosen
    ]
    probabilities = classify([list(words), *changed])
    label = int(probabilities[0].argmax())
    return float(np.mean(probabilities[0, label] - probabilities[1:, label]))


def auprc(scores: Sequence[float], evidence: Sequence[bool]) -> float:
    """Area under the precision-recall curve of words' scores against annotated evidence."""
    precision, recall, _ = precision_recall_curve(np.asarray(evidence, dtype=int), scores)
    return float(auc(recall, precision))


class Explained:
    """A classifier and the scores of words that explain it.

    Args:
        folder: of a fine-tuned model and its tokenizer
        seed: of LIME's samples
    """

    def __init__(self, folder: Path, seed: int = 1):
        path = folder / "config.json"
        if not path.is_file():
            raise UserError(f"{folder}: no config.json: not a folder of a model")
        evolved = "ea_fairseq" in read_json(path)
        kind = AutoModelForSequenceClassification
        model = load(kind, folder) if evolved else kind.from_pretrained(folder)
        if not evolved:
            model.set_attn_implementation("eager")
        self.model, self.seed = model.eval(), seed
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        positions = getattr(model.config, "max_position_embeddings", None) or 512
        self.longest = min(positions, self.tokenizer.model_max_length)

    def classifier(self, query: str) -> Classifier:
        """Probabilities of documents that share a query."""

        @torch.no_grad()
        def classify(documents: Sequence[Sequence[str]]) -> np.ndarray:
            found = []
            for start in range(0, len(documents), 32):
                batch = self._encode([list(one) for one in documents[start : start + 32]], query)
                found.append(self.model(**batch).logits.softmax(-1).double().numpy())
            return np.concatenate(found)

        return classify

    def attention(self, document: Document) -> np.ndarray:
        """Last layer, the class token's row, mean over heads; a word has the sum of its pieces."""
        batch = self._encode([list(document.words)], document.query)
        with torch.no_grad():
            maps = self.model(**batch, output_attentions=True).attentions[-1]
        return _by_word(batch, maps[0, :, 0].mean(0), len(document.words))

    def gradients(self, document: Document) -> np.ndarray:
        """Length of input times gradient of the predicted class's logit, of each piece."""
        batch = self._encode([list(document.words)], document.query)
        embedded = self.model.get_input_embeddings()(batch["input_ids"]).detach()
        embedded.requires_grad_()
        given = {name: value for name, value in batch.items() if name != "input_ids"}
        logits = self.model(**given, inputs_embeds=embedded).logits[0]
        (gradient,) = torch.autograd.grad(logits[logits.argmax()], embedded)
        lengths = (embedded * gradient)[0].norm(dim=-1).detach()
        return _by_word(batch, lengths, len(document.words))

    def lime(self, document: Document, samples: int = 500) -> np.ndarray:
        """Weights of words in a linear model of the classifier near the document."""
        return lime(document.words, self.classifier(document.query), samples, self.seed)

    def _encode(self, documents: list[list[str]], query: str) -> BatchEncoding:
        pair = ([query.split()] * len(documents),) if query else ()
        return self.tokenizer(
            documents,
            *pair,
            is_split_into_words=True,
            truncation="only_first",
            max_length=self.longest,
            padding=True,
            return_tensors="pt",
        )


def _by_word(batch: BatchEncoding, pieces: torch.Tensor, words: int) -> np.ndarray:
    """Sums of the scores of each word's pieces; of the document, not of the query."""
    scores = np.zeros(words)
    places = zip(batch.word_ids(0), batch.sequence_ids(0), strict=True)
    for place, (word, sequence) in enumerate(places):
        if word is not None and sequence == 0:
            scores[word] += float(pieces[place])
    return scores


def lime(words: Sequence[str], classify: Classifier, samples: int, seed: int) -> np.ndarray:
    """Weights of words for the predicted class, in LIME's linear model near a document.

    Args:
        words: of the document
        classify: the classifier
        samples: documents with some of the words, which LIME draws
        seed: of these
    """
    from lime.lime_text import LimeTextExplainer

    label = int(classify([words])[0].argmax())
    # Words are places: the same word twice is two, and none is split.
    names = [f"w{place}" for place in range(len(words))]

    def of_texts(texts: list[str]) -> np.ndarray:
        return classify([[words[int(name[1:])] for name in text.split()] for text in texts])

    explainer = LimeTextExplainer(split_expression=r"\s+", mask_string="", random_state=seed)
    explained = explainer.explain_instance(
        " ".join(names), of_texts, labels=(label,), num_features=len(words), num_samples=samples
    )
    scores = np.zeros(len(words))
    for place, weight in explained.as_map()[label]:
        # LIME counts distinct words in the order in which it met them: ours are places.
        name = explained.domain_mapper.indexed_string.word(place)
        scores[int(name[1:])] = weight
    return scores


METHODS = ("attention", "gradients", "lime")


def evaluate(model: Explained, documents: list[Document]) -> dict[str, dict[str, float]]:
    """Each method's means over documents; auprc where all documents have evidence."""
    annotated = all(document.evidence is not None for document in documents)
    found: dict[str, dict[str, float]] = {}
    for method in METHODS:
        rows = []
        for document in documents:
            scores = getattr(model, method)(document)
            classify = model.classifier(document.query)
            row = [
                comprehensiveness(document.words, scores, classify),
                sufficiency(document.words, scores, classify),
            ]
            rows.append([*row, auprc(scores, document.evidence)] if annotated else row)
        names = ("comprehensiveness", "sufficiency", "auprc")
        found[method] = dict(zip(names, np.mean(rows, axis=0).tolist(), strict=False))
    return found


def read_documents(folder: Path) -> list[Document]:
    """Documents of an ERASER folder, or sentences of a GLUE task's development set.

    Raises:
        UserError: naming what is missing, or the line that is not as ERASER has it
    """
    if (folder / "docs").is_dir():
        return _read_eraser(folder)
    examples = read_examples(folder, task_of(folder.name), "dev")
    return [
        Document(tuple(text.split()), " ".join(rest))
        for text, *rest in (example.text for example in examples)
    ]


def _read_eraser(folder: Path) -> list[Document]:
    path = next((p for name in ("test", "val") if (p := folder / f"{name}.jsonl").is_file()), None)
    if path is None:
        raise UserError(f"{folder}: no test.jsonl or val.jsonl beside docs")
    documents = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            one = json.loads(line)
            spans = [part for group in one["evidences"] for part in group]
            name = spans[0]["docid"] if spans else one["annotation_id"]
            text = (folder / "docs" / str(name)).read_text(encoding="utf-8")
            words = tuple(text.split())
            evidence = [False] * len(words)
            for span in spans:
                if span["docid"] == name:
                    for place in range(span["start_token"], span["end_token"]):
                        evidence[place] = True
            documents.append(Document(words, one.get("query") or "", tuple(evidence)))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise UserError(
                f"{path}, line {number}: not an annotation of ERASER ({what})"
            ) from None
    return documents


def picture(document: Document, columns: dict[str, np.ndarray]) -> str:
    """A page with the document's words, coloured by each of some scores, side by side.

    Args:
        document: whose words are shown
        columns: scores of the words, by the heading of their column
    """
    cells = []
    for heading, scores in columns.items():
        top = max(float(np.max(scores)), 1e-12)
        words = " ".join(
            f'<span style="background: rgba(220, 60, 20, {max(0.0, float(score)) / top:.2f})">'
            f"{html.escape(word)}</span>"
            for word, score in zip(document.words, scores, strict=True)
        )
        cells.append(f"<td><h2>{html.escape(heading)}</h2><p>{words}</p></td>")
    style = "td { vertical-align: top; width: 30em; padding: 1em; font-family: sans-serif }"
    return (
        f"<!DOCTYPE html><meta charset='utf-8'><title>Rationales</title><style>{style}</style>"
        f"<table><tr>{''.join(cells)}</tr></table>\n"
    )


def main(argv: list[str] | None = None) -> int:
    """Prints a table; 0, or 1 and one line where the input is bad."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--most", type=int, default=200, help="documents, from the first")
    parser.add_argument("--output", type=Path, help="results as JSON")
    parser.add_argument("--picture", type=int, metavar="N", help="draw document N, from 0")
    parser.add_argument("--beside", type=Path, help="another model for the picture")
    args = parser.parse_args(argv)
    try:
        run(args)
    except (UserError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def run(args: argparse.Namespace) -> None:
    """The command after its options are read."""
    documents = read_documents(args.data)[: args.most]
    model = Explained(args.model)
    if args.picture is not None:
        if not 0 <= args.picture < len(documents):
            raise UserError(f"--picture {args.picture}: there are {len(documents)} documents")
        models = {str(args.model): model}
        if args.beside:
            models[str(args.beside)] = Explained(args.beside)
        document = documents[args.picture]
        page = picture(document, {name: one.attention(document) for name, one in models.items()})
        path = (args.output or Path("rationales")).with_suffix(".html")
        path.write_text(page, encoding="utf-8")
        print(path)
    results = evaluate(model, documents)
    print(f"{len(documents)} documents")
    for method, found in results.items():
        print(f"{method}: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()))
    if not all("auprc" in found for found in results.values()):
        print("no annotated rationales: AUPRC is left out")
    if args.output:
        write_json(args.output.with_suffix(".json"), results)


if __name__ == "__main__":
    sys.exit(main())
