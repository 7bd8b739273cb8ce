"""scripts/average_checkpoints.py: fairseq's functions and command line, and errors in one line."""

import os
import subprocess
import sys
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ea_fairseq.checkpoints.average import (
    average_checkpoints,
    best_n_checkpoints,
    last_n_checkpoints,
)
from ea_fairseq.errors import UserError
from scripts.average_checkpoints import main

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "average_checkpoints.py"


class Tied(nn.Module):
    """Two names for one weight, as with --share-all-embeddings, next to an unshared one."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.second.bias = self.first.bias


def save(path, model, **more):
    torch.save({"model": OrderedDict(model), **more}, path)
    return str(path)


def save_all(folder, models):
    return [save(folder / f"{i}.pt", model) for i, model in enumerate(models)]


def test_real_numbers_are_averaged_and_integers_rounded_down(tmp_path):
    generator = np.random.default_rng(0)
    arrays = [
        {
            "double": generator.normal(size=3),
            "single": generator.normal(size=(2, 3)).astype(np.float32),
            "whole": generator.integers(-9, 9, size=5, dtype=np.int32),
            "count": generator.integers(0, 9, size=1, dtype=np.int64),
        }
        for _ in range(3)
    ]
    paths = save_all(tmp_path, [{k: torch.tensor(v) for k, v in a.items()} for a in arrays])
    output = average_checkpoints(paths)["model"]
    assert list(output) == list(arrays[0])
    for name in arrays[0]:
        values = [a[name].reshape(-1).tolist() for a in arrays]
        if name in ("whole", "count"):
            expected = [sum(column) // 3 for column in zip(*values, strict=True)]
        else:
            expected = [sum(column) / 3 for column in zip(*values, strict=True)]
        assert output[name].dtype == torch.tensor(arrays[0][name]).dtype
        np.testing.assert_allclose(output[name].reshape(-1).tolist(), expected, rtol=1e-6)


def test_shared_parameters_are_counted_once_and_stay_shared(tmp_path):
    models = [Tied() for _ in range(3)]
    paths = save_all(tmp_path, [model.state_dict() for model in models])
    output = average_checkpoints(paths)["model"]
    for name in ("embedding.weight", "first.weight", "second.weight", "second.bias"):
        a, b, c = (model.state_dict()[name] for model in models)
        assert torch.equal(output[name], (a + b + c) / 3.0)
    assert output["first.weight"].data_ptr() == output["second.weight"].data_ptr()
    assert output["first.weight"].data_ptr() != output["embedding.weight"].data_ptr()


def test_parameters_shared_in_one_file_only_are_averaged_apart(tmp_path):
    one = torch.ones(4)
    paths = save_all(tmp_path, [{"a": one, "b": one}, {"a": one * 3, "b": one * 5}])
    output = average_checkpoints(paths)["model"]
    assert output["a"].tolist() == [2.0] * 4 and output["b"].tolist() == [3.0] * 4


@pytest.mark.parametrize(
    "dtype, kept, values, expected",
    [
        # 40000 * 2 overflows float16, and 257 needs one bit more than bfloat16 has.
        (torch.float16, torch.float32, [[40000.0, 256.0], [40000.0, 258.0]], [40000.0, 257.0]),
        (torch.bfloat16, torch.float32, [[39936.0, 256.0], [39936.0, 258.0]], [39936.0, 257.0]),
        (torch.int32, torch.int32, [[2_000_000_000]] * 3, [2_000_000_000]),
    ],
)
def test_sums_do_not_overflow(tmp_path, dtype, kept, values, expected):
    paths = save_all(tmp_path, [{"a": torch.tensor(v, dtype=dtype)} for v in values])
    output = average_checkpoints(paths)["model"]["a"]
    assert output.dtype == kept and output.tolist() == expected


def test_everything_but_the_weights_comes_from_the_first(tmp_path):
    a = save(tmp_path / "a.pt", {"w": torch.ones(1)}, cfg={"x": 1}, extra_state={"best": 3})
    b = save(tmp_path / "b.pt", {"w": torch.ones(1)}, cfg={"x": 2}, extra_state={"best": 4})
    output = average_checkpoints([a, b])
    assert output["cfg"] == {"x": 1} and output["extra_state"] == {"best": 3}


def touch(folder, *names):
    for name in names:
        (folder / name).touch()


def names(paths):
    return [Path(path).name for path in paths]


def test_last_checkpoints_are_by_number_not_by_spelling(tmp_path):
    touch(tmp_path, *(f"checkpoint{i}.pt" for i in (1, 2, 9, 10, 12, 100)))
    touch(tmp_path, "checkpoint_last.pt", "checkpoint_best.pt", "checkpoint_3_700.pt", "crash.pt")
    touch(tmp_path, "checkpoint101.pt.tmp", "checkpoint.best_loss_3.2.pt", "checkpoint102.pt.bak")
    last = last_n_checkpoints([str(tmp_path)], 3, update_based=False)
    assert last == [str(tmp_path / f"checkpoint{i}.pt") for i in (100, 12, 10)]
    last = last_n_checkpoints([str(tmp_path)], 3, update_based=False, upper_bound=11)
    assert names(last) == ["checkpoint10.pt", "checkpoint9.pt", "checkpoint2.pt"]


def test_last_updates_are_by_update_number(tmp_path):
    touch(tmp_path, *(f"checkpoint_{e}_{u}.pt" for e, u in ((1, 90), (2, 100), (3, 1000))))
    touch(tmp_path, "checkpoint9.pt", "checkpoint_last.pt")
    last = last_n_checkpoints([str(tmp_path)], 2, update_based=True)
    assert names(last) == ["checkpoint_3_1000.pt", "checkpoint_2_100.pt"]
    last = last_n_checkpoints([str(tmp_path)], 2, update_based=True, upper_bound=999)
    assert names(last) == ["checkpoint_2_100.pt", "checkpoint_1_90.pt"]


def test_best_checkpoints_are_the_lowest_unless_told_otherwise(tmp_path):
    values = ("10.1230", "9.9991", "9.9980", "30.0000")
    touch(tmp_path, *(f"checkpoint.best_loss_{value}.pt" for value in values))
    touch(tmp_path, "checkpoint_best.pt", "checkpoint1.pt")
    folder = str(tmp_path)
    low = ["checkpoint.best_loss_9.9980.pt", "checkpoint.best_loss_9.9991.pt"]
    high = ["checkpoint.best_loss_30.0000.pt", "checkpoint.best_loss_10.1230.pt"]
    assert names(best_n_checkpoints([folder], 2)) == low
    assert names(best_n_checkpoints([folder], 2, maximize=True)) == high
    files = [str(path) for path in tmp_path.glob("checkpoint.best*")]
    assert names(best_n_checkpoints(files, 2)) == low
    touch(tmp_path, "checkpoint.best_bleu_20.0000.pt")
    with pytest.raises(UserError, match="by bleu, loss"):
        best_n_checkpoints([folder], 2)


def weights(value):
    return {"w": torch.full((2, 2), value)}


def run(arguments, folder, capsys):
    """The exit code and error line of the command, which must write nothing when it fails."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    status = main([str(argument) for argument in arguments])
    error = capsys.readouterr().err
    if status != 0:
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
        assert error.startswith("average_checkpoints.py: error: ") and error.count("\n") == 1
    return status, error


def test_command_averages_the_last_epochs(tmp_path, capsys):
    for epoch in range(1, 5):
        save(tmp_path / f"checkpoint{epoch}.pt", weights(float(epoch)))
    output = tmp_path / "average.pt"
    arguments = ["--inputs", tmp_path, "--num-epoch-checkpoints", 2, "--output", output]
    assert run(arguments, tmp_path, capsys)[0] == 0
    assert torch.load(output, weights_only=True)["model"]["w"].tolist() == [[3.5, 3.5], [3.5, 3.5]]
    bound = ["--checkpoint-upper-bound", 3]
    assert run([*arguments, *bound], tmp_path, capsys)[0] == 0
    assert torch.load(output, weights_only=True)["model"]["w"][0, 0] == 2.5


@pytest.mark.parametrize("maximized", [True, False])
def test_the_worst_by_a_metric_that_was_maximized_are_averaged_with_a_warning(
    tmp_path, capsys, maximized
):
    cfg = {"checkpoint": {"maximize_best_checkpoint_metric": maximized}}
    for value in (30.1, 31.2, 32.3):
        save(tmp_path / f"checkpoint.best_bleu_{value}00.pt", weights(value), cfg=cfg)
    arguments = ["--inputs", tmp_path, "--output", tmp_path / "out.pt", "--num-best-checkpoints"]
    for number, option, is_told in (
        (2, None, maximized),
        (2, "--maximize-best-checkpoint-metric", False),
        (3, None, False),  # all of them
    ):
        given = [*arguments, number, *([option] if option else [])]
        status, warned = run(given, tmp_path, capsys)
        assert status == 0 and ("these are the worst of its checkpoints" in warned) == is_told


@pytest.mark.parametrize(
    "other, words",
    [
        ({"w": torch.ones(2, 3)}, ["w has shape (2, 2) in", "(2, 3) in"]),
        ({"w": torch.ones(2, 2), "v": torch.ones(1)}, ["b.pt has the parameter v", "a.pt has not"]),
        ({"v": torch.ones(2, 2)}, ["a.pt has the parameter w", "b.pt has not"]),
        ({"w": torch.ones(2, 2, dtype=torch.int64)}, ["w holds integers", "a.pt", "b.pt"]),
    ],
)
def test_differing_parameters_are_named_with_their_files(tmp_path, capsys, other, words):
    a, b = save(tmp_path / "a.pt", weights(1.0)), save(tmp_path / "b.pt", other)
    status, error = run(["--inputs", a, b, "--output", tmp_path / "out.pt"], tmp_path, capsys)
    assert status == 1
    assert all(word in error for word in words), error


@pytest.mark.parametrize(
    ("place", "settings"),
    [
        (
            "cfg",
            lambda folder, seed, alpha: {
                "common": {"seed": seed},
                "checkpoint": {"save_dir": folder},
                "model": Namespace(ea_alpha=alpha, dropout=alpha),
            },
        ),
        (
            "args",
            lambda folder, seed, alpha: Namespace(seed=seed, save_dir=folder, ea_alpha=alpha),
        ),
    ],
)
def test_weights_of_two_trainings_are_averaged_with_a_warning(tmp_path, capsys, place, settings):
    output = tmp_path / "out.pt"
    other = [
        ("a", 1, 0.1, None),
        ("b", 1, 0.1, "--save-dir a and b"),
        ("a", 2, 0.1, "--seed 1 and 2"),
        ("a", 1, 0.5, "--ea-alpha 0.1 and 0.5"),
    ]
    for *of_last, words in other:
        paths = [
            save(tmp_path / f"{number}.pt", weights(1.0), **{place: settings(*of)})
            for number, of in enumerate([("a", 1, 0.1), ("a", 1, 0.1), of_last])
        ]
        status, warned = run(["--inputs", *paths, "--output", output], tmp_path, capsys)
        assert status == 0 and output.exists()
        if words is None:
            assert warned == ""
        else:
            assert warned.startswith(f"warning: {paths[0]} and {paths[2]} are of two trainings")
            assert words in warned and warned.count("\n") == 1


REFUSED = [
    (
        "--inputs few --num-epoch-checkpoints 3",
        "3 checkpoints",
        "checkpoint3.pt, checkpoint1.pt",
        "--allow-fewer",
    ),
    *((f"--inputs a.pt {bad}", bad) for bad in ("cut.pt", "text.pt", "missing.pt", "few")),
    ("--inputs a.pt b.pt --output ./b.pt", "b.pt is one of the checkpoints"),
    ("--inputs a.pt b.pt --output pipe", "--output pipe: is a device or a pipe; name a file"),
    ("--inputs a.pt b.pt --output few", "--output few: is a folder; name a file"),
    ("--inputs a.pt --checkpoint-upper-bound 3", "--checkpoint-upper-bound"),
    ("--inputs a.pt --maximize-best-checkpoint-metric", "--maximize-best-checkpoint-metric"),
    ("--inputs a.pt --allow-fewer", "--allow-fewer needs one of"),
    ("--inputs a.pt b.pt link.pt", "link.pt: is given twice, and would count twice"),
    ("--inputs a.pt b.pt copy.pt", "copy.pt: is a copy of", "b.pt, and would count twice"),
    ("--inputs a.pt b.pt --output few/checkpoint_last.pt", "is a checkpoint of a training"),
    ("--inputs few", "is a folder: say which of its checkpoints, by --num-epoch-checkpoints"),
]


@pytest.mark.parametrize("arguments, words", [(row[0], row[1:]) for row in REFUSED])
def test_what_cannot_be_averaged_is_named(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        save(tmp_path / f"{name}.pt", weights(1.0))
    (tmp_path / "cut.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:-100])
    (tmp_path / "text.pt").write_text("no checkpoint\n")
    (tmp_path / "link.pt").symlink_to("b.pt")
    (tmp_path / "copy.pt").write_bytes((tmp_path / "b.pt").read_bytes())
    (tmp_path / "few").mkdir()
    touch(tmp_path / "few", "checkpoint1.pt", "checkpoint3.pt", "checkpoint_last.pt")
    os.mkfifo("pipe")
    status, error = run(["--output", "out.pt", *arguments.split()], tmp_path, capsys)
    assert status == 1 and all(word in error for word in words), error
    assert Path("pipe").is_fifo()


def test_of_a_link_the_file_it_leads_to_is_written(tmp_path, capsys):
    a, b = (save(tmp_path / f"{value}.pt", weights(value)) for value in (0.0, 1.0))
    elsewhere, link = tmp_path / "elsewhere.pt", tmp_path / "link.pt"
    link.symlink_to(elsewhere)  # which is not there yet
    for _ in range(2):
        assert run(["--inputs", a, b, "--output", link], tmp_path, capsys)[0] == 0
        assert link.readlink() == elsewhere
        assert torch.load(elsewhere, weights_only=True)["model"]["w"][0, 0] == 0.5
        elsewhere.write_bytes(b"older")


def test_a_number_of_checkpoints_is_from_one_up(capsys):
    with pytest.raises(SystemExit):
        main(["--inputs", "a", "--output", "b", "--num-epoch-checkpoints", "0"])
    assert "'0' is not a number from 1 up" in capsys.readouterr().err


def test_runs_from_any_directory(tmp_path):
    save(tmp_path / "a.pt", weights(1.0))
    save(tmp_path / "b.pt", weights(2.0))
    command = [sys.executable, SCRIPT, "--output", "out.pt", "--inputs", "a.pt"]
    done = subprocess.run([*command, "b.pt"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert torch.load(tmp_path / "out.pt", weights_only=True)["model"]["w"][0, 0] == 1.5


def short(folder, epochs, last):
    """Checkpoints of epochs of ten updates each, and of the last update; weights are updates."""
    for name, updates in [(f"checkpoint{e}.pt", 10 * e) for e in epochs] + [
        ("checkpoint_last.pt", last)
    ]:
        weight = {"w": torch.tensor([float(updates)])}
        save(folder / name, weight, optimizer_history=[{"num_updates": updates}])
    return ["--inputs", str(folder), "--output", str(folder / "average.pt")]


@pytest.mark.parametrize(
    "epochs, last, asked, expected",
    [
        ((1, 2), 20, 10, (10 + 20) / 2),  # stopped at the end of an epoch
        ((1, 2), 25, 10, (10 + 20 + 25) / 3),  # stopped inside of one
        ((1, 2, 3), 37, 2, (30 + 37) / 2),  # enough, and the last update takes part
        ((), 4, 10, 4),  # no epoch was ended at all
    ],
)
def test_what_a_short_training_leaves_is_averaged_on_demand(
    tmp_path, capsys, epochs, last, asked, expected
):
    options = [*short(tmp_path, epochs, last), "--num-epoch-checkpoints", str(asked)]
    assert main([*options, "--allow-fewer"]) == 0
    assert torch.load(tmp_path / "average.pt")["model"]["w"].tolist() == [pytest.approx(expected)]
    warned = capsys.readouterr().err
    there = len(epochs) + (last > 10 * max(epochs, default=0))
    if there < asked:
        assert warned == (
            f"warning: {asked} checkpoints asked for, {there} there: the average is of {there}\n"
        )
        assert main(options) == 1  # nothing of that sort without the option
    else:
        assert warned == ""
