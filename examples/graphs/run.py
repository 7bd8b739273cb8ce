#!/usr/bin/env python3
"""Trains graph attention networks, plain and evolved, to classify the nodes of a graph.

    python examples/graphs/run.py karate
    python examples/graphs/run.py sbm --choose
    python examples/graphs/run.py cora --data FOLDER

karate is Zachary's karate club, sbm a stochastic block model that each seed makes anew; cora,
citeseer and pubmed are read from a folder with their files (ind.cora.x and so on). Accuracy on the
test nodes, where accuracy on the validation nodes was best; choices look at validation nodes alone.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from ea_fairseq import experiments
from ea_fairseq.errors import UserError
from ea_fairseq.recipes.runs.progress import Display

#: Models -> what they have beyond the shared options; A and B stand for --alpha and --beta.
MODELS: dict[str, dict[str, Any]] = {
    "gat": {"variant": "plain"},
    "ea-gat": {"variant": "evolving", "alpha": "A", "beta": "B"},
    "without-convolution": {"variant": "evolving", "alpha": "A", "convolution": "none"},
    "without-skip": {"variant": "evolving", "skip": "none", "beta": "B"},
    "realformer": {"variant": "residual"},
}
DEFAULT = "gat", "ea-gat"
PLANETOID = "cora", "citeseer", "pubmed"
_DEFAULTS = {
    "karate": {"dropout": 0.0, "epochs": 100},
    "sbm": {"layers": 4, "dropout": 0.2, "lr": 0.01, "patience": 50},
}
_PARTS = "x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"

# The block model: sizes, and how likely an edge is inside a block and between two.
BLOCKS, BLOCK_SIZE, INSIDE, BETWEEN, FEATURES, DISTANCE = 5, 80, 0.06, 0.012, 16, 0.35
LABELLED = 10  # training and validation nodes of each block, twice as many for the latter


def main(argv: list[str] | None = None) -> int:
    """Trains what is missing and prints the table."""
    args = make_parser().parse_args(argv)
    with experiments.errors_in_one_line("run.py"):
        models = experiments.chosen_models(args.models, MODELS, {"all": [*MODELS]})
        device = experiments.chosen_device(args)
        settings = _settings(args)
        graph = _Graphs(args.graph, args.data)
        folder = args.out / args.graph
        if args.choose:
            settings |= _choose(folder, graph, settings, device)

        def train(model: str, seed: int, display: Display) -> dict[str, Any]:
            figures, weights, built = train_one(graph, model, seed, settings, device, display)
            experiments.save_weights(folder / model / f"seed{seed}.safetensors", weights, built)
            return figures

        results = experiments.run_all(folder, settings, models, args.seeds, train)
        figures = {"test": "test accuracy, %", "validation": "validation accuracy, %"}
        if not graph.has_validation:
            del figures["validation"]
        print(experiments.comparison(results, models, args.seeds, figures, scale=100))
        print(f"{folder}: results.json, and each run's weights")
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graph", choices=("karate", "sbm", *PLANETOID))
    parser.add_argument("--data", type=Path, help="folder with the files of cora, citeseer, pubmed")
    parser.add_argument(
        "--models",
        nargs="+",
        default=list(DEFAULT),
        metavar="MODEL",
        help=f"of {', '.join(MODELS)}; or all (default: {' '.join(DEFAULT)})",
    )
    parser.add_argument("--alpha", type=float, default=0.1, help="(default: %(default)s)")
    parser.add_argument("--beta", type=float, default=0.1, help="(default: %(default)s)")
    parser.add_argument(
        "--choose",
        action="store_true",
        help="choose alpha and beta of 0.1, 0.3, 0.5 by validation nodes, with seeds 101 to 103",
    )
    parser.add_argument(
        "--layers", type=int, help="(default: 2; sbm: 4, for information from further away)"
    )
    parser.add_argument("--hidden", type=int, default=64, help="(default: %(default)s)")
    parser.add_argument("--heads", type=int, default=8, help="(default: %(default)s)")
    parser.add_argument(
        "--dropout", type=float, help="(default: 0.6; sbm: 0.2, karate: 0)", metavar="P"
    )
    parser.add_argument("--lr", type=float, help="of Adam (default: 0.005; sbm: 0.01)")
    parser.add_argument("--weight-decay", type=float, default=5e-4, help="(default: %(default)s)")
    parser.add_argument("--epochs", type=int, help="at most (default: 1000; karate: 100)")
    parser.add_argument(
        "--patience",
        type=int,
        help="epochs without a better validation before the end (default: 100; sbm: 50)",
    )
    experiments.run_arguments(parser, 5, "work/graphs")
    return parser


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """What all runs of a folder share."""
    # Of Cora, Citeseer and Pubmed: those of Velickovic et al. (2018), section 3.3.
    defaults: dict[str, Any] = {
        **{"layers": 2, "dropout": 0.6, "lr": 0.005, "epochs": 1000, "patience": 100},
        **_DEFAULTS.get(args.graph, {}),
    }
    given = {name: value for name, value in vars(args).items() if value is not None}
    names = ("graph", "hidden", "heads", "weight_decay", "alpha", "beta")
    settings = {name: given[name] for name in names}
    settings |= {name: given.get(name, default) for name, default in defaults.items()}
    for name, least in (("epochs", 1), ("patience", 1), ("layers", 1), ("lr", 0.0)):
        if settings[name] < least:
            raise UserError(f"--{name} must be at least {least}, not {settings[name]}")
    if not 0 <= settings["dropout"] < 1:
        raise UserError(f"--dropout must be in [0, 1), not {settings['dropout']}")
    return settings


class _Graphs:
    """The graph of a seed: features, edges, labels and three masks."""

    def __init__(self, name: str, folder: Path | None):
        if (folder is not None) != (name in PLANETOID):
            raise UserError(
                f"{name} needs --data FOLDER, with its files"
                if folder is None
                else f"--data {folder}: {name} is made here; leave it out"
            )
        self.name, self.has_validation = name, name != "karate"
        self.fixed = None
        if name == "karate":
            from torch_geometric.datasets import KarateClub

            self.fixed = KarateClub()[0]
            self.fixed.val_mask = torch.zeros_like(self.fixed.train_mask)
            self.fixed.test_mask = ~self.fixed.train_mask
        elif folder is not None:
            self.fixed = read_planetoid(folder, name)

    def of(self, seed: int) -> Any:
        """Those of the block model differ by seed; of the others there is one."""
        return block_model(seed) if self.fixed is None else self.fixed


def block_model(seed: int) -> Any:
    """A stochastic block model with faint features, made by its seed alone."""
    from torch_geometric.data import Data
    from torch_geometric.utils import stochastic_blockmodel_graph

    # torch_geometric draws from the generator that all share; it is left as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        likely = torch.full((BLOCKS, BLOCKS), BETWEEN).fill_diagonal_(INSIDE)
        edges = stochastic_blockmodel_graph([BLOCK_SIZE] * BLOCKS, likely)
        labels = torch.arange(BLOCKS).repeat_interleave(BLOCK_SIZE)
        centres = DISTANCE * torch.randn(BLOCKS, FEATURES)
        features = centres[labels] + torch.randn(len(labels), FEATURES)
        masks = torch.zeros(3, len(labels), dtype=torch.bool)
        for block in range(BLOCKS):
            nodes = block * BLOCK_SIZE + torch.randperm(BLOCK_SIZE)
            parts = nodes.split([LABELLED, 2 * LABELLED, BLOCK_SIZE - 3 * LABELLED])
            for mask, part in zip(masks, parts, strict=True):
                mask[part] = True
    names = dict(zip(("train_mask", "val_mask", "test_mask"), masks, strict=True))
    return Data(x=features, edge_index=edges, y=labels, **names)


def read_planetoid(folder: Path, name: str) -> Any:
    """Cora, Citeseer or Pubmed with the usual split; features sum to 1 in each node.

    The files are pickles, which may run code of their own: take them from where you trust.

    Raises:
        UserError: a file is missing or cannot be read
    """
    from torch_geometric.io import read_planetoid_data
    from torch_geometric.transforms import NormalizeFeatures

    files = [f"ind.{name}.{part}" for part in _PARTS]
    places = [folder, folder / "raw", folder / name / "raw", folder / name.capitalize() / "raw"]
    found = next((place for place in places if (place / files[0]).is_file()), None)
    if found is None:
        raise UserError(f"--data {folder}: has no {files[0]}; it wants {', '.join(files)}")
    for file in files:
        if not (found / file).is_file():
            raise UserError(f"{found / file}: no such file")
    try:
        return NormalizeFeatures()(read_planetoid_data(str(found), name))
    except Exception as error:  # of pickles, whatever it may be
        raise UserError(f"{found}: {name} cannot be read: {error}") from error


def build(graph: Any, model: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What ``EAGAT`` is built with."""
    own = {
        name: settings[{"A": "alpha", "B": "beta"}[value]] if value in ("A", "B") else value
        for name, value in MODELS[model].items()
    }
    return {
        "in_channels": graph.num_node_features,
        "hidden_channels": settings["hidden"],
        "num_layers": settings["layers"],
        "out_channels": int(graph.y.max()) + 1,
        "heads": settings["heads"],
        "dropout": settings["dropout"],
        **own,
    }


def train_one(
    graphs: _Graphs,
    model: str,
    seed: int,
    settings: dict[str, Any],
    device: torch.device,
    display: Display,
) -> tuple[dict[str, Any], dict[str, torch.Tensor], dict[str, Any]]:
    """One run: figures, the best weights, and what builds their network."""
    from ea_fairseq.networks.graphs import EAGAT

    graph = graphs.of(seed)
    torch.manual_seed(seed)
    built = build(graph, model, settings)
    network = EAGAT(**built).to(device)
    graph = graph.clone().to(device)
    optimizer = torch.optim.Adam(
        network.parameters(), lr=settings["lr"], weight_decay=settings["weight_decay"]
    )
    best, best_loss, since, weights, found = -1.0, float("inf"), 0, None, {}
    for epoch in range(1, settings["epochs"] + 1):
        network.train()
        optimizer.zero_grad()
        logits = network(graph.x, graph.edge_index)
        loss = F.cross_entropy(logits[graph.train_mask], graph.y[graph.train_mask])
        if not loss.isfinite():
            raise UserError(
                f"epoch {epoch}: the loss is {loss.item()}: choose --lr below {settings['lr']}"
            )
        loss.backward()
        optimizer.step()
        accuracies, validation_loss = evaluate(network, graph)
        if not graphs.has_validation:
            weights, found = network.state_dict(), {**accuracies, "epoch": epoch}
            continue
        # As Velickovic et al.: the end comes once neither accuracy nor loss has been better for
        # so many epochs; kept is what is best by accuracy, then by loss.
        validation = accuracies["validation"]
        since += 1
        if validation > best or (validation == best and validation_loss < best_loss):
            weights = copy.deepcopy(network.state_dict())
            found = {**accuracies, "epoch": epoch}
        if validation > best or validation_loss < best_loss:
            since = 0
        best, best_loss = max(best, validation), min(best_loss, validation_loss)
        display.show(f"epoch {epoch}, validation {100 * validation:.1f} %, best {100 * best:.1f} %")
        if since >= settings["patience"]:
            break
    display.status.what = f"test {100 * found['test']:.1f} %, epoch {found['epoch']}"
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return {"parameters": parameters, **found}, weights, built


@torch.no_grad()
def evaluate(network: torch.nn.Module, graph: Any) -> tuple[dict[str, float], float]:
    """Accuracies on test and validation nodes, and the loss on the latter."""
    network.eval()
    logits = network(graph.x, graph.edge_index)
    right = logits.argmax(-1) == graph.y
    accuracies = {"test": right[graph.test_mask].double().mean().item()}
    if not graph.val_mask.any():
        return accuracies, 0.0
    accuracies["validation"] = right[graph.val_mask].double().mean().item()
    loss = F.cross_entropy(logits[graph.val_mask], graph.y[graph.val_mask])
    return accuracies, loss.item()


def _choose(
    folder: Path, graphs: _Graphs, settings: dict[str, Any], device: torch.device
) -> dict[str, float]:
    """Alpha and beta by the mean accuracy on validation nodes, with seeds that are not reported."""
    if not graphs.has_validation:
        raise UserError(f"--choose: {graphs.name} has no validation nodes")
    pairs = {f"{a} {b}": (a, b) for a, b in itertools.product((0.1, 0.3, 0.5), repeat=2)}
    shared = {name: value for name, value in settings.items() if name not in ("alpha", "beta")}

    def train(pair: str, seed: int, display: Display) -> dict[str, Any]:
        alpha, beta = pairs[pair]
        tried = {**settings, "alpha": alpha, "beta": beta}
        return train_one(graphs, "ea-gat", seed, tried, device, display)[0]

    seeds = [101, 102, 103]
    results = experiments.run_all(folder / "choice", shared, list(pairs), seeds, train)
    means = {
        pair: experiments.summarise(results.of(pair, "validation", seeds).values()).mean
        for pair in pairs
    }
    alpha, beta = pairs[max(means, key=means.get)]
    print(f"alpha {alpha}, beta {beta}: validation accuracy {json.dumps(means)}")
    return {"alpha": alpha, "beta": beta}


if __name__ == "__main__":
    raise SystemExit(main())
