#!/usr/bin/env python3
"""Fine-tunes a model on a task of GLUE, plain or evolved, over several seeds.

    python examples/language_understanding/glue.py CoLA small_bert --data glue \
        --variant evolving --option alpha=0.1 --option beta=0.1 --seeds 1 2 3 4 5
    python examples/language_understanding/glue.py CoLA small_bert --data glue

MODEL is a folder as the hub gives it, plain (then --variant evolves it; without, it stays plain)
or saved from an evolved model. --data is a folder with GLUE's own layout (CoLA/train.tsv, perhaps
.gz); without it the package `datasets` fetches the task. Each seed has a folder under --output with
results.json: settings, metrics, predictions; what is there is not trained again, and an interrupted
training goes on. --grid first chooses learning rate, batch, epochs, alpha and beta among the
papers' (arXiv 2102.12895) on a part of the training set that is held out. compare_systems.py tells
whether two such folders differ.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ea_fairseq.errors import UserError
from ea_fairseq.files import read_json, write_json
from ea_fairseq.hf import evolve, load

# isort: split
import numpy as np
import torch
import transformers
from measures import interval_of_mean, score
from tasks import TASKS, Example, Task, read_examples, task_of
from torch.utils.data import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

#: The settings that the papers on evolving attention choose among for GLUE.
GRID = {
    "learning_rate": (1e-4, 1e-5, 2e-5),
    "batch": (8, 16),
    "epochs": (2.0, 3.0, 5.0),
    "alpha": (0.1, 0.2, 0.4),
    "beta": (0.1, 0.2, 0.4),
}
#: Of the training set, at most this many examples and this part choose among settings.
HELD_OUT, HELD_OUT_PART = 2000, 0.1


def main(argv: list[str] | None = None) -> int:
    """Trains and evaluates; 0, or 1 and one line where the input is bad."""
    args = make_parser().parse_args(argv)
    try:
        run(args)
    except (UserError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """The page as it is written, and defaults."""


def make_parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Help)
    parser.add_argument("task", help=f"one of {', '.join(TASKS)}")
    parser.add_argument("model", type=Path, help="folder of a model and its tokenizer")
    parser.add_argument("--data", type=Path, help="folder with the task's folder")
    parser.add_argument("--output", type=Path, default=Path("work/glue"), help="for results")
    parser.add_argument("--name", help="folder of the system in the output (default: the variant)")
    parser.add_argument("--variant", help="evolve the model with this variant (or chain)")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of the variant"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--max-length", type=int, default=128, help="longer inputs are cut")
    parser.add_argument(
        "--save", action="store_true", help="keep the models too, for rationales.py"
    )
    parser.add_argument("--grid", action="store_true", help="choose among the papers' settings")
    return parser


def run(args: argparse.Namespace) -> None:
    """All seeds of one system on one task."""
    task = task_of(args.task)
    options = dict(_option(text) for text in args.option)
    if options and not args.variant:
        raise UserError("--option is of a variant: name one with --variant")
    check_folder(args.model)
    train, devs = read_task(task, args.data)
    name = args.name or "-".join(
        [args.variant or "plain", *(f"{key}={value}" for key, value in options.items())]
    )
    folder = args.output / task.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    setting = {
        "learning_rate": args.learning_rate,
        "batch": args.batch,
        "epochs": args.epochs,
        "options": options,
    }
    if args.grid:
        setting = choose(task, train, args, setting, folder)
    found = []
    for seed in args.seeds:
        path = folder / f"seed{seed}" / "results.json"
        about = {
            "task": task.folder,
            "model": str(args.model),
            "variant": args.variant,
            "max_length": args.max_length,
            "seed": seed,
            **setting,
        }
        if path.exists():
            results = read_json(path)
            other = [key for key in about if results.get(key) != about[key]]
            if other:
                raise UserError(
                    f"{path}: of another setting ({other[0]} {results.get(other[0])}, not "
                    f"{about[other[0]]}); give --name or another --output"
                )
        else:
            results = {**about, **fine_tune(task, train, devs, args, setting, seed, path.parent)}
            write_json(path, results)
        found.append(results["metrics"])
        print(f"seed {seed}: {_shown(results['metrics'])}", flush=True)
    for dev, metrics in found[0].items():
        for metric in metrics:
            scores = [one[dev][metric] for one in found]
            low, high = interval_of_mean(scores)
            print(
                f"{task.folder} {dev} {metric}: {np.mean(scores):.2f} "
                f"(95 % over {len(scores)} seeds: {low:.2f} to {high:.2f})"
            )


def choose(
    task: Task,
    train: list[Example],
    args: argparse.Namespace,
    setting: dict[str, Any],
    folder: Path,
) -> dict[str, Any]:
    """The best of the papers' settings on a held-out part of the training set."""
    path = folder / "grid.json"
    tried = read_json(path, list) if path.exists() else []
    shuffled = random.Random(0).sample(train, len(train))
    held = shuffled[: max(1, min(HELD_OUT, int(len(train) * HELD_OUT_PART)))]
    rest = shuffled[len(held) :]
    for candidate in candidates(args.variant, setting):
        if any(one["setting"] == candidate for one in tried):
            continue
        metrics = fine_tune(*(task, rest, {"held out": held}, args, candidate, 0, folder / "grid"))[
            "metrics"
        ]
        tried.append({"setting": candidate, "score": metrics["held out"][task.metrics[0]]})
        write_json(path, tried)
        print(f"grid: {candidate}: {tried[-1]['score']:.2f}", flush=True)
    return max(tried, key=lambda one: one["score"])["setting"]


def candidates(variant: str | None, setting: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The grid; alpha and beta only of evolving attention."""
    weights = ("alpha", "beta")
    names = [name for name in GRID if variant == "evolving" or name not in weights]
    for values in itertools.product(*(GRID[name] for name in names)):
        chosen = dict(zip(names, values, strict=True))
        options = {
            **setting["options"],
            **{name: chosen.pop(name) for name in weights if name in chosen},
        }
        yield {**setting, **chosen, "options": options}


def fine_tune(
    task: Task,
    train: list[Example],
    devs: dict[str, list[Example]],
    args: argparse.Namespace,
    setting: dict[str, Any],
    seed: int,
    folder: Path,
) -> dict[str, Any]:
    """One training and its evaluation.

    Returns:
        metrics, predictions and labels by development set, parameters, seconds, versions
    """
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = make_model(task, args, setting["options"], seed)
    check_fit(model, tokenizer, args)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(folder),
            num_train_epochs=setting["epochs"],
            per_device_train_batch_size=setting["batch"],
            per_device_eval_batch_size=64,
            learning_rate=setting["learning_rate"],
            lr_scheduler_type="linear",
            warmup_steps=0.1,
            adam_epsilon=1e-8,
            weight_decay=0.01,
            seed=seed,
            save_strategy="epoch",
            save_total_limit=1,
            logging_steps=100,
            report_to=[],
            use_cpu=not torch.cuda.is_available(),
        ),
        train_dataset=Encoded(train, tokenizer, args.max_length, bool(task.labels)),
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
    )
    begun = time.monotonic()
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)))
    seconds = time.monotonic() - begun
    metrics, predictions, labels = {}, {}, {}
    for name, examples in devs.items():
        dataset = Encoded(examples, tokenizer, args.max_length, bool(task.labels))
        found = trainer.predict(dataset).predictions
        predicted = found.argmax(-1) if task.labels else found[:, 0]
        labels[name] = [example.label for example in examples]
        predictions[name] = predicted.tolist()
        metrics[name] = {
            metric: score(metric, labels[name], predictions[name]) for metric in task.metrics
        }
    if args.save:
        model.save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    return {
        "metrics": metrics,
        "predictions": predictions,
        "labels": labels,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "seconds": round(seconds, 1),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }


class Encoded(Dataset):
    """Examples as the model takes them."""

    def __init__(self, examples: list[Example], tokenizer: Any, longest: int, classes: bool):
        columns = [list(column) for column in zip(*(one.text for one in examples), strict=True)]
        encoded = tokenizer(*columns, truncation=True, max_length=longest)
        labels = [int(one.label) if classes else float(one.label) for one in examples]
        self.rows = [
            {**{name: encoded[name][index] for name in encoded}, "labels": label}
            for index, label in enumerate(labels)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


def make_model(task: Task, args: argparse.Namespace, options: dict[str, Any], seed: int) -> Any:
    """The folder's model with a new head, evolved where a variant is named."""
    torch.manual_seed(seed)
    kind = {"num_labels": len(task.labels) or 1}
    if "ea_fairseq" in read_json(args.model / "config.json"):
        if args.variant:
            raise UserError(f"{args.model} is evolved already: leave --variant out")
        return load(AutoModelForSequenceClassification, args.model, **kind)
    model = AutoModelForSequenceClassification.from_pretrained(args.model, **kind)
    return evolve(model, args.variant, **options) if args.variant else model


def check_folder(folder: Path) -> None:
    """Refuses a folder without a model in it.

    Raises:
        UserError: naming what is missing
    """
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: no config.json: not a folder of a model")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("pytorch_model*.bin")):
        raise UserError(f"{folder}: no weights (model.safetensors)")


def check_fit(model: Any, tokenizer: Any, args: argparse.Namespace) -> None:
    """Refuses a tokenizer of another model, and inputs longer than the model's positions."""
    words = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > words:
        raise UserError(
            f"{args.model}: its tokenizer has {len(tokenizer)} words, the model {words}: "
            "a tokenizer of another model"
        )
    positions = getattr(model.config, "max_position_embeddings", None) or args.max_length
    if args.max_length > positions:
        raise UserError(f"--max-length {args.max_length}: the model has {positions} positions")


def read_task(task: Task, data: Path | None) -> tuple[list[Example], dict[str, list[Example]]]:
    """Training set and development sets, from a folder or through ``datasets``."""
    if data is not None:
        folder = data / task.folder
        if not folder.is_dir():
            raise UserError(f"--data {data}: no folder {task.folder} in it")
        devs = {name: read_examples(folder, task, file) for name, file in task.dev}
        return read_examples(folder, task, "train"), devs
    try:
        from datasets import load_dataset
    except ImportError:
        raise UserError("give --data, or install the package datasets to fetch GLUE") from None
    name = {"SST-2": "sst2", "STS-B": "stsb"}.get(task.folder, task.folder.lower())
    fetched = load_dataset("nyu-mll/glue", name)
    suffixes = {"m": "_matched", "mm": "_mismatched"}
    sets = {dev: fetched[f"validation{suffixes.get(dev, '')}"] for dev, _ in task.dev}
    return _converted(fetched["train"]), {dev: _converted(rows) for dev, rows in sets.items()}


def _converted(rows: Any) -> list[Example]:
    columns = [name for name in rows.column_names if name not in ("label", "idx")]
    return [Example(tuple(row[name] for name in columns), float(row["label"])) for row in rows]


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--option {text}: NAME=VALUE is wanted")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _shown(metrics: dict[str, dict[str, float]]) -> str:
    return "; ".join(
        f"{dev} " + ", ".join(f"{name} {value:.2f}" for name, value in found.items())
        for dev, found in metrics.items()
    )


if __name__ == "__main__":
    sys.exit(main())
