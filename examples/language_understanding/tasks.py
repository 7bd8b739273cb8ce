"""GLUE's tasks: their files as published, what is predicted and how it is measured."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

from ea_fairseq.errors import UserError


@dataclass(frozen=True)
class Task:
    """One task of GLUE.

    Attributes:
        folder: its name in GLUE's own layout
        text: columns of one sentence or of a pair, names in the header or numbers without one
        label: column of what is predicted
        labels: names of the classes; empty: a number is predicted
        metrics: as the papers name them, the first for averages
        dev: its files for development, by the name of the set
        dev_text: columns there, where they are called otherwise
        columns: so many columns has a line; None: as many as its header
    """

    folder: str
    text: tuple[str | int, ...]
    label: str | int
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    dev: tuple[tuple[str, str], ...] = (("dev", "dev"),)
    dev_text: tuple[str | int, ...] = ()

    @property
    def header(self) -> bool:
        """Whether the files' first line names their columns."""
        return isinstance(self.label, str)


_NLI = ("entailment", "not_entailment")

TASKS = {
    task.folder: task
    for task in (
        Task("CoLA", (3,), 1, ("0", "1"), ("matthews",)),
        Task("SST-2", ("sentence",), "label", ("0", "1"), ("accuracy",), dev_text=("content",)),
        Task("MRPC", ("#1 String", "#2 String"), "Quality", ("0", "1"), ("f1", "accuracy")),
        Task("STS-B", ("sentence1", "sentence2"), "score", (), ("pearson", "spearman")),
        Task("QQP", ("question1", "question2"), "is_duplicate", ("0", "1"), ("f1", "accuracy")),
        Task(
            "MNLI",
            ("sentence1", "sentence2"),
            "gold_label",
            ("entailment", "neutral", "contradiction"),
            ("accuracy",),
            (("m", "dev_matched"), ("mm", "dev_mismatched")),
        ),
        Task("QNLI", ("question", "sentence"), "label", _NLI, ("accuracy",)),
        Task("RTE", ("sentence1", "sentence2"), "label", _NLI, ("accuracy",)),
    )
}


@dataclass(frozen=True)
class Example:
    """A sentence or a pair, and its label: the index of a class, or a number."""

    text: tuple[str, ...]
    label: float


def task_of(name: str) -> Task:
    """A task by its folder's name, in any case.

    Raises:
        UserError: with the tasks there are
    """
    for known, task in TASKS.items():
        if name.lower() == known.lower():
            return task
    raise UserError(f"task {name}: choose one of {', '.join(TASKS)}")


def read_examples(folder: Path, task: Task, name: str) -> list[Example]:
    """One set of a task from its folder.

    Args:
        folder: has NAME.tsv or NAME.tsv.gz
        task: whose layout the file has
        name: "train", or that of a development set

    Raises:
        UserError: naming file, line and what is wrong there
    """
    path = _file(folder, name)
    columns = task.text if name == "train" else (*(task.dev_text or task.text),)
    lines = [line.rstrip("\r") for line in read_lines(path)]
    places: list[int]
    if task.header:
        names = lines[0].lstrip("\ufeff").split("\t") if lines else []
        given = columns if set(columns) <= set(names) else task.text
        for column in (*given, task.label):
            if column not in names:
                raise UserError(f"{path}: no column {column}; it has {', '.join(names) or 'none'}")
        places = [names.index(column) for column in (*given, task.label)]
        lines, first = lines[1:], 2
    else:
        places, first = [*columns, task.label], 1
    examples = []
    for number, line in enumerate(lines, first):
        fields = line.split("\t")
        if len(fields) <= max(places):
            raise UserError(f"{path}, line {number}: {len(fields)} columns, {task.folder} has more")
        *text, label = (fields[place].strip() for place in places)
        if task.label == "gold_label" and label == "-":
            continue  # annotators did not agree: left out, as everybody does
        examples.append(Example(tuple(text), _label(task, label, path, number)))
    if not examples:
        raise UserError(f"{path}: no examples")
    return examples


def _label(task: Task, label: str, path: Path, number: int) -> float:
    if task.labels:
        if label not in task.labels:
            known = ", ".join(task.labels)
            raise UserError(f"{path}, line {number}: label {label!r}, {task.folder} has {known}")
        return task.labels.index(label)
    try:
        return float(label)
    except ValueError:
        raise UserError(f"{path}, line {number}: {label!r} is no number") from None


def read_lines(path: Path) -> list[str]:
    """The lines of a file, which may be compressed, without their ends."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]


def read_sentences(folder: Path, name: str) -> list[tuple[str, ...]]:
    """Sentences or pairs of a task's folder, which bears the task's name."""
    return [example.text for example in read_examples(folder, task_of(folder.name), name)]


def _file(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.tsv", folder / f"{name}.tsv.gz"):
        if path.is_file():
            return path
    raise UserError(f"{folder}: no {name}.tsv or {name}.tsv.gz in it")
