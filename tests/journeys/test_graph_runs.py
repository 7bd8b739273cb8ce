"""examples/graphs/run.py: trains, is resumed, reads Planetoid's files, refuses bad input."""

import pickle
from types import SimpleNamespace

import numpy
import pytest
import torch
from example_programs import EXAMPLES, assert_commands_are_taken, assert_ends_in_one_line, programs
from pages import DOCS
from scipy.sparse import csr_matrix

from ea_fairseq.experiments import load_weights
from ea_fairseq.files import read_json
from ea_fairseq.networks.graphs import EAGAT
from ea_fairseq.recipes.runs.progress import Display, Status


@pytest.fixture(scope="module")
def run():
    with programs("graphs", "run") as found:
        yield found.run


def planetoid(folder, nodes=530, features=6, classes=3):
    """Files as Planetoid has them: 10 labelled nodes, 500 for validation, 10 for the test."""
    draw = numpy.random.default_rng(0)
    labels = numpy.eye(classes)[draw.integers(classes, size=nodes)]
    data = csr_matrix(labels @ draw.random((classes, features)))
    parts = {
        **{"x": data[:10], "allx": data[:520], "tx": data[520:]},
        **{"y": labels[:10], "ally": labels[:520], "ty": labels[520:]},
        "graph": {node: [(node + 1) % nodes, (node + 7) % nodes] for node in range(nodes)},
    }
    folder.mkdir(parents=True)
    for name, part in parts.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(part))
    (folder / "ind.cora.test.index").write_text("".join(f"{i}\n" for i in range(520, 530)))


def test_the_club_is_learned_and_a_second_start_does_nothing_anew(run, tmp_path, capsys):
    words = ["karate", "--epochs", "40", "--seeds", "1", "2", "--out", str(tmp_path)]
    assert run.main(words) == 0
    printed = capsys.readouterr().out
    assert "ea-gat 2" in printed and "against gat" in printed
    path = tmp_path / "karate" / "results.json"
    before = path.read_text()
    runs = read_json(path)["runs"]
    assert all(one["test"] > 0.5 for model in runs.values() for one in model.values())
    assert run.main(words) == 0
    assert path.read_text() == before and "ea-gat 2" not in capsys.readouterr().out

    weights, settings = load_weights(tmp_path / "karate" / "ea-gat" / "seed1.safetensors")
    network = EAGAT(**settings).eval()
    network.load_state_dict(weights)
    club = run._Graphs("karate", None).of(1)
    right = network(club.x, club.edge_index).argmax(-1) == club.y
    assert right[club.test_mask].double().mean().item() == runs["ea-gat"]["1"]["test"]


def test_the_pages_commands_are_ones_that_the_program_takes(run):
    pages = DOCS / "graphs.md", EXAMPLES / "graphs" / "RESULTS.md"
    assert_commands_are_taken(SimpleNamespace(run=run), 3, *pages)


def test_block_models_follow_from_their_seed_alone(run):
    one, again, other = run.block_model(1), run.block_model(1), run.block_model(2)
    assert torch.equal(one.edge_index, again.edge_index) and torch.equal(one.x, again.x)
    assert one.edge_index.shape != other.edge_index.shape or not torch.equal(one.x, other.x)
    masks = torch.stack([one.train_mask, one.val_mask, one.test_mask])
    assert (masks.sum(0) == 1).all()
    inside = (one.y[one.edge_index[0]] == one.y[one.edge_index[1]]).double().mean()
    expected = run.INSIDE / (run.INSIDE + (run.BLOCKS - 1) * run.BETWEEN)
    assert abs(inside - expected) < 0.05


def test_kept_weights_are_those_of_the_best_validation(run):
    settings = {
        **{"layers": 2, "hidden": 8, "heads": 2, "dropout": 0.2, "lr": 0.02, "weight_decay": 0.0},
        **{"epochs": 15, "patience": 5, "alpha": 0.1, "beta": 0.1},
    }
    graphs, device = run._Graphs("sbm", None), torch.device("cpu")
    display = Display("test", Status())
    figures, weights, built = run.train_one(graphs, "ea-gat", 1, settings, device, display)
    network = EAGAT(**built)
    network.load_state_dict(weights)
    accuracies, _ = run.evaluate(network, graphs.of(1))
    assert accuracies == {name: figures[name] for name in ("test", "validation")}


def test_planetoid_s_files_are_read_from_a_folder(run, tmp_path, capsys):
    planetoid(tmp_path / "data" / "cora" / "raw")
    graph = run.read_planetoid(tmp_path / "data", "cora")
    assert graph.num_nodes == 530 and graph.train_mask.sum() == 10 and graph.test_mask.sum() == 10
    torch.testing.assert_close(graph.x.sum(1), torch.ones(530))
    (tmp_path / "data" / "cora" / "raw" / "ind.cora.ty").unlink()
    words = ["cora", "--data", tmp_path / "data", "--out", tmp_path]
    assert_ends_in_one_line(run.main, words, "ind.cora.ty: no such file", capsys)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["karate", "--models", "gcn"], "--models gcn: choose among all, gat, ea-gat"),
        (["cora"], "cora needs --data FOLDER"),
        (["karate", "--data", "there"], "--data there: karate is made here"),
        (["cora", "--data", "there"], "--data there: has no ind.cora.x"),
        (["karate", "--choose"], "--choose: karate has no validation nodes"),
        (["karate", "--epochs", "0"], "--epochs must be at least 1, not 0"),
        (["karate", "--lr", "1e30"], r"the loss is nan: choose --lr below 1e\+30"),
        (["karate", "--dropout", "1"], r"--dropout must be in \[0, 1\), not 1"),
        (["karate", "--alpha", "1.5"], "alpha must be"),
        (["karate", "--heads", "3"], "hidden_channels 64 must be divisible by heads 3"),
    ],
)
def test_bad_input_ends_in_one_line(run, words, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert_ends_in_one_line(run.main, words, reason, capsys)
