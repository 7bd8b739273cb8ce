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
    assert output["a"].tolist() == [2.0] * 4
    assert output["b"].tolist() == [3.0] * 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(tmp_path, dtype):
    # 40000 * 2 overflows float16, and 257 needs one bit more than bfloat16 has.
    values = [[40000.0, 256.0], [40000.0, 258.0]]
    paths = save_all(tmp_path, [{"a": torch.tensor(v, dtype=dtype)} for v in values])
    output = average_checkpoints(paths)["model"]["a"]
    assert output.dtype == torch.float32
    assert output.tolist() == [torch.tensor(40000.0, dtype=dtype).item(), 257.0]


def test_many_integers_do_not_overflow(tmp_path):
    big = torch.tensor([2_000_000_000], dtype=torch.int32)
    output = average_checkpoints(save_all(tmp_path, [{"a": big}] * 3))["model"]["a"]
    assert output.dtype == torch.int32 and output.tolist() == [2_000_000_000]


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
        assert error.startswith("error: ") and error.count("\n") == 1
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


def test_too_few_checkpoints_are_named(tmp_path, capsys):
    touch(tmp_path, "checkpoint1.pt", "checkpoint3.pt", "checkpoint_last.pt")
    arguments = ["--inputs", tmp_path, "--num-epoch-checkpoints", 3]
    status, error = run([*arguments, "--output", tmp_path / "out.pt"], tmp_path, capsys)
    assert status == 1
    assert "3 checkpoints" in error and "checkpoint3.pt, checkpoint1.pt" in error


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
            lambda folder, seed: {"common": {"seed": seed}, "checkpoint": {"save_dir": folder}},
        ),
        ("args", lambda folder, seed: Namespace(seed=seed, save_dir=folder)),
    ],
)
def test_weights_of_two_trainings_are_averaged_with_a_warning(tmp_path, capsys, place, settings):
    output = tmp_path / "out.pt"
    other = {"folder": ("b", 1, "--save-dir a and b"), "seed": ("a", 2, "--seed 1 and 2")}
    for folder, seed, words in (("a", 1, None), *other.values()):
        paths = [
            save(tmp_path / f"{number}.pt", weights(1.0), **{place: settings(*of)})
            for number, of in enumerate([("a", 1), ("a", 1), (folder, seed)])
        ]
        status, warned = run(["--inputs", *paths, "--output", output], tmp_path, capsys)
        assert status == 0 and output.exists()
        if words is None:
            assert warned == ""
        else:
            assert warned.startswith(f"warning: {paths[0]} and {paths[2]} are of two trainings")
            assert words in warned and warned.count("\n") == 1


def test_cut_short_missing_and_foreign_files_are_named(tmp_path, capsys):
    good = save(tmp_path / "good.pt", weights(1.0))
    cut = tmp_path / "cut.pt"
    cut.write_bytes(Path(good).read_bytes()[:-100])
    text = tmp_path / "text.pt"
    text.write_text("no checkpoint\n")
    for bad in (cut, text, tmp_path / "missing.pt", tmp_path):
        arguments = ["--inputs", good, bad, "--output", tmp_path / "out.pt"]
        status, error = run(arguments, tmp_path, capsys)
        assert status == 1 and str(bad) in error


def test_output_must_not_be_an_input(tmp_path, capsys):
    a, b = (save(tmp_path / name, weights(1.0)) for name in ("a.pt", "b.pt"))
    status, error = run(["--inputs", a, b, "--output", tmp_path / "." / "b.pt"], tmp_path, capsys)
    assert status == 1 and "b.pt is one of the checkpoints" in error


def test_a_link_stays_and_what_no_file_may_replace_is_refused(tmp_path, capsys):
    a, b = (save(tmp_path / f"{value}.pt", weights(value)) for value in (0.0, 1.0))
    elsewhere, link, pipe = (tmp_path / name for name in ("elsewhere.pt", "link.pt", "pipe"))
    link.symlink_to(elsewhere)  # which is not there yet
    for _ in range(2):
        assert run(["--inputs", a, b, "--output", link], tmp_path, capsys)[0] == 0
        assert link.readlink() == elsewhere
        assert torch.load(elsewhere, weights_only=True)["model"]["w"][0, 0] == 0.5
        elsewhere.write_bytes(b"older")
    os.mkfifo(pipe)
    for output, what in ((pipe, "a device or a pipe"), (tmp_path, "a folder")):
        status, error = run(["--inputs", a, b, "--output", output], tmp_path, capsys)
        assert status == 1 and f"--output {output}: is {what}; name a file" in error
    assert pipe.is_fifo()


def test_options_that_need_others_are_refused(tmp_path, capsys):
    a = save(tmp_path / "a.pt", weights(1.0))
    base = ["--inputs", a, "--output", tmp_path / "out.pt"]
    for option in (["--checkpoint-upper-bound", 3], ["--maximize-best-checkpoint-metric"]):
        status, error = run([*base, *option], tmp_path, capsys)
        assert status == 1 and option[0] in error
    with pytest.raises(SystemExit):
        main([str(a) for a in [*base, "--num-epoch-checkpoints", 0]])
    assert "'0' is not a number from 1 up" in capsys.readouterr().err


def test_what_would_count_twice_and_a_folder_alone_are_refused(tmp_path, capsys):
    a, b = (save(tmp_path / f"{name}.pt", weights(1.0)) for name in "ab")
    (tmp_path / "link.pt").symlink_to(b)
    for inputs, words in {
        (a, b, tmp_path / "link.pt"): "link.pt: is given twice, and would count twice",
        (tmp_path,): "is a folder: say which of its checkpoints, by --num-epoch-checkpoints",
    }.items():
        status, error = run(
            ["--inputs", *inputs, "--output", tmp_path / "out.pt"], tmp_path, capsys
        )
        assert status == 1 and words in error and not (tmp_path / "out.pt").exists()


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


def test_fewer_are_allowed_where_a_number_is_asked_for(tmp_path, capsys):
    one = save(tmp_path / "a.pt", {"w": torch.ones(1)})
    assert main(["--inputs", one, "--output", str(tmp_path / "b.pt"), "--allow-fewer"]) == 1
    assert "--allow-fewer needs one of" in capsys.readouterr().err
