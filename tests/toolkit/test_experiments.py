"""Runs of several seeds: intervals are Student's, what is done is kept, bad input is one line."""

import argparse
from pathlib import Path

import pytest
import torch
from scipy import stats

from ea_fairseq import experiments
from ea_fairseq.errors import UserError
from ea_fairseq.experiments import Results, difference, run_all, summarise

FIGURES = {"top1": "top-1, %"}


def test_intervals_are_those_of_scipy():
    first = {1: 0.91, 2: 0.93, 3: 0.90, 5: 0.95}
    second = {1: 0.92, 2: 0.97, 3: 0.93, 4: 0.5}
    values = list(first.values())
    found = summarise(values)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.interval == pytest.approx(tuple(expected))
    assert found.deviation == pytest.approx(stats.tstd(values))
    pairs = [[figures[seed] for seed in (1, 2, 3)] for figures in (second, first)]
    expected = stats.ttest_rel(*pairs).confidence_interval(0.95)
    apart = difference(first, second)
    assert apart.count == 3 and apart.interval == pytest.approx(tuple(expected))
    assert summarise([0.5]).interval is None
    assert difference({1: 0.5}, {2: 0.5}) is None
    with pytest.raises(ValueError, match="nan"):
        summarise([0.5, float("nan")])


def train_of(done, stop_at=None):
    def train(model, seed, display):
        if (model, seed) == stop_at:
            raise KeyboardInterrupt
        done.append((model, seed))
        display.status.what = f"{model} is done"
        return {"parameters": 7, "top1": seed / 10 + (model == "evolved") * 0.02}

    return train


def test_what_is_done_is_kept_and_not_done_again(tmp_path, capsys):
    models, settings = ["plain", "evolved"], {"epochs": 3, "sizes": (1, 2)}
    done = []
    with pytest.raises(KeyboardInterrupt):
        run_all(tmp_path, settings, models, [1, 2], train_of(done, stop_at=("plain", 2)))
    assert done == [("plain", 1), ("evolved", 1)]
    results = run_all(tmp_path, settings, models, [1, 2], train_of(done))
    assert done == [("plain", 1), ("evolved", 1), ("plain", 2), ("evolved", 2)]
    assert "plain is done" in capsys.readouterr().out
    table = experiments.comparison(results, models, [1, 2], FIGURES, scale=100)
    assert "15.00 ± 7.07" in table and "+2.00 ± 0.00 (+2.00 to +2.00)" in table
    with pytest.raises(UserError, match="its runs had epochs 3, not 4: .*--out"):
        run_all(tmp_path, {**settings, "epochs": 4}, models, [1], train_of(done))
    (tmp_path / "results.json").write_text('{"runs": []}')
    with pytest.raises(UserError, match="damaged"):
        Results(tmp_path, settings)


def test_weights_carry_their_settings(tmp_path):
    path = tmp_path / "model.safetensors"
    weights = {"a.weight": torch.randn(3, 4).t(), "b": torch.arange(3)}
    experiments.save_weights(path, weights, {"heads": 8, "name": "gat"})
    found, settings = experiments.load_weights(path)
    assert settings == {"heads": 8, "name": "gat"}
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(UserError, match="cannot be read"):
        experiments.load_weights(path)
    with pytest.raises(UserError, match="no such file"):
        experiments.load_weights(tmp_path / "none")


def test_a_training_s_state_comes_back(tmp_path):
    path = tmp_path / "state.safetensors"
    assert experiments.load_state(path) is None
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    shared = layer.weight.detach()
    state = {
        **{"epoch": 3, "loss": 0.1, "name": None, "rng": torch.get_rng_state(), "curve": [0.5, 1]},
        **{"model": layer.state_dict(), "best": {"weight": shared}},
        "optimizer": optimizer.state_dict(),
    }
    experiments.save_state(path, state)
    found = experiments.load_state(path)
    assert {found[name] for name in ("epoch", "loss", "name")} == {3, 0.1, None}
    assert torch.equal(found["rng"], state["rng"]) and found["curve"] == [0.5, 1]
    assert torch.equal(found["best"]["weight"], shared)
    again = torch.optim.Adam(layer.parameters())
    again.load_state_dict(found["optimizer"])
    for one, other in zip(optimizer.state.values(), again.state.values(), strict=True):
        assert one["step"] == other["step"] and torch.equal(one["exp_avg"], other["exp_avg"])
    path.write_bytes(b"nothing")
    with pytest.raises(UserError, match="delete it to begin anew"):
        experiments.load_state(path)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--device", "abacus"], "--device abacus: cannot be used"),
        (["--seeds", "1", "2", "1"], "--seeds 1 2 1: one is given twice"),
        (["--threads", "-1"], "--threads must not be negative, not -1"),
    ],
)
def test_bad_options_end_in_one_line(words, reason, capsys):
    parser = argparse.ArgumentParser()
    experiments.run_arguments(parser, 5, "work/graphs")
    assert parser.parse_args([]).out == Path("work/graphs")
    with pytest.raises(SystemExit) as end, experiments.errors_in_one_line("run.py"):
        experiments.chosen_device(parser.parse_args(words))
    printed = capsys.readouterr().err
    assert end.value.code == 1 and printed.startswith(f"run.py: error: {reason}")
    assert printed.count("\n") == 1


def test_the_interval_of_a_part_ends_at_the_whole():
    found = summarise([90.0, 100.0, 100.0])
    assert found.text(0) == "97 ± 6 (82 to 111)"
    assert found.text(0, limits=(0, 100)) == "97 ± 6 (82 to 100)"
