#!/usr/bin/env python
"""Trains and compares models of time series: the DC-Transformers and their baselines.

    python examples/time_series/run.py JapaneseVowels --models all --seeds 5

writes results.json, table.md, pictures and each run's model into work/time_series/JapaneseVowels. A
run that is there is not done again.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import torch

from ea_fairseq.errors import UserError
from ea_fairseq.experiments import (
    Results,
    chosen_device,
    chosen_models,
    difference,
    errors_in_one_line,
    run_all,
    summarise,
)
from ea_fairseq.files import write_lines
from ea_fairseq.networks.series import Schedule, SeriesConfig, SeriesModel, fit, outputs_of
from ea_fairseq.networks.series.archives import Dataset, Part, load_dataset
from ea_fairseq.recipes.results.tables import table
from ea_fairseq.recipes.runs.progress import Display

ROOT = Path(__file__).resolve().parents[2]

#: Name -> what the tables call it. In the order of Tables 1 and 2 of arXiv 2212.08330.
MODELS = {
    "lstm": "LSTM",
    "gru": "GRU",
    "resnet": "ResNet",
    "dilated": "Dilated convolution",
    "transformer": "Transformer",
    "dc": "DC-Transformer",
    "ea_dc": "EA-DC-Transformer",
}
#: The rows of Tables 3 and 4, and what they change in the variant's options; None takes one away.
ABLATIONS = {
    "without_convolution": ("- without convolution", {"convolution": "none", "beta": None}),
    "without_skip": ("- without skip connection", {"skip": "none", "alpha": None}),
    "kernel_1": ("- with 1x1 convolution", {"kernel_size": 1}),
    "kernel_5": ("- with 5x5 convolution", {"kernel_size": 5}),
}
#: EA-DC-Transformers with another part of the width for attention (section 5.6).
PARTS = {f"p_{p:g}": p for p in (0.125, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)}
NAMES = (
    MODELS
    | {name: title for name, (title, _) in ABLATIONS.items()}
    | {name: f"- with p = {p:g}" for name, p in PARTS.items()}
)
GROUPS = {
    "all": list(MODELS),
    "ablations": ["ea_dc", *ABLATIONS],
    "p": ["dilated", "ea_dc", *PARTS],
}

#: Published accuracy (Table 2) and RMSE (Table 1), in the order of MODELS.
PUBLISHED = {
    "EthanolConcentration": (0.224, 0.251, 0.27, 0.272, 0.272, 0.293, 0.307),
    "FaceDetection": (0.644, 0.661, 0.667, 0.669, 0.664, 0.672, 0.685),
    "Handwriting": (0.156, 0.159, 0.25, 0.251, 0.282, 0.319, 0.329),
    "Heartbeat": (0.686, 0.675, 0.704, 0.698, 0.699, 0.715, 0.724),
    "JapaneseVowels": (0.827, 0.871, 0.954, 0.955, 0.979, 0.982, 0.985),
    "PEMS-SF": (0.742, 0.798, 0.811, 0.803, 0.724, 0.825, 0.829),
    "SelfRegulationSCP1": (0.836, 0.877, 0.887, 0.882, 0.885, 0.893, 0.896),
    "SelfRegulationSCP2": (0.459, 0.511, 0.481, 0.454, 0.491, 0.493, 0.526),
    "SpokenArabicDigits": (0.98, 0.985, 0.979, 0.984, 0.984, 0.987, 0.991),
    "UWaveGestureLibrary": (0.435, 0.774, 0.843, 0.846, 0.852, 0.861, 0.873),
    "InsectWingbeat": (0.575, 0.574, 0.610, 0.619, 0.639, 0.630, 0.622),
    "AppliancesEnergy": (3.844, 4.151, 3.369, 3.711, 3.663, 3.035, 2.957),
    "BenzeneConcentration": (7.936, 6.919, 2.889, 2.758, 1.576, 1.127, 0.758),
    "BeijingPM10Quality": (101.863, 101.452, 95.22, 96.927, 98.035, 91.993, 91.774),
    "BeijingPM25Quality": (64.715, 65.667, 64.54, 64.813, 64.874, 59.425, 59.118),
    "LiveFuelMoistureContent": (43.316, 44.19, 44.723, 43.457, 44.874, 43.326, 43.261),
    "IEEEPPG": (34.814, 26.961, 46.593, 39.633, 33.848, 30.075, 23.14),
}


#: Arguments that every run of a folder shares.
SHARED = (
    *("embed_dim", "blocks", "heads", "p", "alpha", "beta", "dropout", "pretrain_epochs"),
    *("epochs", "batch_size", "learning_rate"),
)


def main(argv: list[str] | None = None) -> None:
    """Runs and prints; ends with status 1 and one line where the user can mend what is wrong."""
    with errors_in_one_line("run.py"):
        run(make_parser().parse_args(argv))


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("data", help="a data set inside of aeon, or a folder with NAME_TRAIN.ts and NAME_TEST.ts")
    add(
        "--models",
        nargs="+",
        default=["all"],
        metavar="NAME",
        help=f"of {', '.join([*GROUPS, *NAMES])}",
    )
    add("--seeds", type=int, default=5, help="runs of each model, with seeds from 1 on")
    add("--embed-dim", type=int, default=64, help="d; the papers choose of 64 and 128")
    add("--blocks", type=int, default=2, help="n; the papers choose of 2 to 5")
    add("--heads", type=int, default=8)
    add("--p", type=float, default=0.25, help="part of the width that attention makes")
    add("--alpha", type=float, default=0.5, help="weight of the carry")
    add("--beta", type=float, default=0.1, help="weight of the map's convolution")
    add("--dropout", type=float, default=0.1)
    add("--pretrain-epochs", type=int, default=10)
    add("--epochs", type=int, default=20)
    add("--batch-size", type=int, default=32)
    add("--learning-rate", type=float, default=1e-3)
    add("--device", default="cpu", help="such as cuda")
    add("--threads", type=int, default=0, help="of torch; 0: its own choice")
    add("--compile", action="store_true", help="train through torch.compile")
    add("--out", type=Path, help="folder; work/time_series/NAME by default")
    add(
        "--validation",
        action="store_true",
        help="hold out a fifth of the training set (of each class) and score that: for choices, "
        "which the test set must not make",
    )
    return parser


def run(args: argparse.Namespace) -> None:
    """All runs, then table, results.json and pictures.

    Raises:
        UserError: naming the option or file, its value and the remedy
    """
    models = models_named(args.models)
    if args.seeds < 1:
        raise UserError(f"--seeds must be at least 1, not {args.seeds}")
    args.seeds = list(range(1, args.seeds + 1))
    device = chosen_device(args)
    schedule = Schedule(
        **{
            name: getattr(args, name)
            for name in ("pretrain_epochs", "epochs", "batch_size", "learning_rate")
        },
        compiled=args.compile,
    )
    dataset = load_dataset(args.data)
    if args.validation:
        dataset = held_out(dataset)
    folder = args.out or ROOT / "work" / "time_series" / dataset.name
    configs = {name: config_of(name, dataset, args) for name in models}
    for config in configs.values():  # what is wrong with a setting is said before any training
        SeriesModel(config)

    def train(name: str, seed: int, display: Display) -> dict[str, Any]:
        return train_one(dataset, configs[name], schedule, seed, device, folder / name, display)

    settings = {"data": dataset.name} | {name: getattr(args, name) for name in SHARED}
    results = run_all(folder, settings, models, args.seeds, train)
    report(dataset, results, models, args.seeds, folder)


def models_named(names: list[str]) -> list[str]:
    """Models by their names and groups', in the order of the tables."""
    chosen = chosen_models(names, NAMES, GROUPS)
    return [name for name in NAMES if name in chosen]


def config_of(name: str, dataset: Dataset, args: argparse.Namespace) -> SeriesConfig:
    """The settings of a model for a data set."""
    config = SeriesConfig(
        channels=dataset.train.series[0].shape[0],
        max_len=dataset.longest,
        outputs=1 if dataset.classes is None else len(dataset.classes),
        embed_dim=args.embed_dim,
        num_blocks=args.blocks,
        dropout=args.dropout,
        classes=None if dataset.classes is None else tuple(dataset.classes),
    )
    if name in ("lstm", "gru", "resnet"):
        # Wang et al. have three blocks; two layers are what recurrent networks are given.
        return replace(config, encoder=name, num_blocks=3 if name == "resnet" else args.blocks)
    plain = {"dilated": 0.0, "transformer": 1.0, "dc": args.p}
    if name in plain:
        attention = {"num_heads": args.heads, "p": plain[name], "variant": "plain"}
        return replace(config, attention=attention)
    options = {"variant": "evolving", "alpha": args.alpha, "beta": args.beta}
    changes = ABLATIONS[name][1] if name in ABLATIONS else {}
    options = {key: value for key, value in (options | changes).items() if value is not None}
    return replace(
        config, attention={"num_heads": args.heads, "p": PARTS.get(name, args.p), **options}
    )


def held_out(dataset: Dataset) -> Dataset:
    """A fifth of the training set, of each class, in the place of the test set."""
    from sklearn.model_selection import train_test_split

    series, targets = dataset.train.series, dataset.train.targets
    numbers = numpy.arange(len(series))
    try:
        kept, out = train_test_split(
            numbers,
            test_size=0.2,
            random_state=0,
            stratify=None if dataset.classes is None else targets,
        )
    except ValueError as error:
        raise UserError(f"--validation: {dataset.name} cannot be split: {error}") from error
    parts = [Part([series[i] for i in part], targets[part]) for part in (kept, out)]
    return replace(dataset, name=f"{dataset.name}.validation", train=parts[0], test=parts[1])


def train_one(
    dataset: Dataset,
    config: SeriesConfig,
    schedule: Schedule,
    seed: int,
    device: torch.device,
    folder: Path,
    display: Display,
) -> dict[str, Any]:
    """Trains one model, keeps it in folder/seed_N, and scores it on the test set."""

    def tell(phase: str, epoch: int, loss: float) -> None:
        epochs = schedule.epochs if phase == "training" else schedule.pretrain_epochs
        display.show(f"{phase}, epoch {epoch} of {epochs}, loss {loss:.4f}")

    torch.manual_seed(seed)
    model = SeriesModel(config).to(device)
    began = time.perf_counter()
    targets = targets_of(dataset, dataset.train)
    fit(model, dataset.train.series, targets, schedule, seed, tell)
    figures = {"parameters": parameters_in_use(model), "seconds": time.perf_counter() - began}
    figures |= scores(model, dataset)
    model.cpu().save(folder / f"seed_{seed}")
    score = score_of(dataset)
    display.status.what = f"{score} {figures[score]:.4f}"
    return figures


def score_of(dataset: Dataset) -> str:
    """The figure that a data set is compared by."""
    return "rmse" if dataset.classes is None else "accuracy"


def parameters_in_use(model: SeriesModel) -> int:
    """Parameters without those of pre-training's head, which is left behind."""
    whole = sum(parameter.numel() for parameter in model.parameters())
    return whole - sum(parameter.numel() for parameter in model.reconstruction.parameters())


def targets_of(dataset: Dataset, part: Part) -> torch.Tensor:
    """Targets as a loss wants them: long (series,), or float of a regression."""
    if dataset.classes is None:
        return torch.from_numpy(part.targets)
    return torch.from_numpy(numpy.searchsorted(dataset.classes, part.targets)).long()


def scores(model: SeriesModel, dataset: Dataset) -> dict[str, float]:
    """Accuracy and cross-entropy, or the RMSE, on the test set."""
    outputs = outputs_of(model, dataset.test.series)
    targets = targets_of(dataset, dataset.test)
    if dataset.classes is None:
        predicted = (outputs[:, 0] * model.target_deviation.cpu()) + model.target_mean.cpu()
        return {"rmse": float((predicted - targets).square().mean().sqrt())}
    loss = torch.nn.functional.cross_entropy(outputs, targets)
    accuracy = (outputs.argmax(1) == targets).double().mean()
    return {"accuracy": float(accuracy), "cross_entropy": float(loss)}


def without_model(dataset: Dataset) -> str:
    """What one answer to all test series scores: a model that is no better has learned nothing."""
    train, test = dataset.train.targets, dataset.test.targets
    if dataset.classes is None:
        rmse = float(numpy.sqrt(numpy.square(test - train.mean()).mean()))
        return f"Always the mean of the training set would have {rmse:.4f}."
    values, counts = numpy.unique(train, return_counts=True)
    accuracy = float((test == values[counts.argmax()]).mean())
    return f"Always the most frequent class of the training set would have {accuracy:.4f}."


def report(
    dataset: Dataset, results: Results, models: list[str], seeds: list[int], folder: Path
) -> None:
    """Prints the table; writes table.md and the pictures."""
    score = score_of(dataset)
    label = "RMSE" if score == "rmse" else "accuracy"
    published = dict(zip(MODELS, PUBLISHED.get(dataset.name, ()), strict=False))
    header = ["", "parameters", "seeds", label, "EA-DC-Transformer minus it", "published"]
    header += ["seconds a run"] + ([] if score == "rmse" else ["cross-entropy"])
    rows, drawn = [], {}
    for name in models:
        values = results.of(name, score, seeds)
        summary = summarise(list(values.values()))
        better = difference(values, results.of("ea_dc", score, seeds)) if name != "ea_dc" else None
        mean = {
            figure: summarise(list(results.of(name, figure, seeds).values())).mean
            for figure in ("seconds", *(() if score == "rmse" else ("cross_entropy",)))
        }
        row = [NAMES[name], f"{results.get(name, seeds[0])['parameters']:,}", str(summary.count)]
        limits = None if score == "rmse" else (0.0, 1.0)
        row += [summary.text(4, limits=limits), better.text(4, sign=True) if better else ""]
        row += [f"{published[name]:.3f}" if name in published else "", f"{mean['seconds']:.0f}"]
        rows.append(row + ([] if score == "rmse" else [f"{mean['cross_entropy']:.4f}"]))
        drawn[name] = {
            "title": NAMES[name],
            "values": list(values.values()),
            "mean": summary.mean,
            "interval": summary.interval,
            "published": published.get(name),
        }
    parts = [
        f"{dataset.name}, {len(dataset.test.series)} test series: mean over seeds ± deviation "
        "(95 % interval of the mean)",
        "",
        *table(header, rows).split("\n"),
        "",
        without_model(dataset),
    ]
    print("\n".join(["", *parts, ""]))
    write_lines(folder / "table.md", parts)
    import pictures

    paths = pictures.draw_all(dataset, drawn, folder)
    print(f"{folder}: results.json, table.md, {', '.join(path.name for path in paths)}")


if __name__ == "__main__":
    main()
