"""examples/time_series: runs, resuming, tables, pictures, and what is refused in one line."""

import json
import math

import numpy as np
import pytest
from example_programs import assert_ends_in_one_line, programs

pytest.importorskip("aeon", reason="aeon reads the data sets: pip install 'ea_fairseq[series]'")

from ea_fairseq.errors import UserError
from ea_fairseq.networks.series import SeriesModel, archives, outputs_of

SMALL = "--embed-dim 8 --heads 2 --blocks 1 --pretrain-epochs 1 --epochs 2".split()


@pytest.fixture(scope="module")
def program():
    with programs("time_series", "run", "pictures") as found:
        yield found.run


def write_part(file, series, labels, header="@classLabel true a b"):
    lines = ["@problemName waves", "@timeStamps false", "@missing false", "@univariate false"]
    lines += ["@equalLength false", header, "@data"]
    for one, label in zip(series, labels, strict=True):
        channels = [",".join("?" if np.isnan(x) else f"{x:.4f}" for x in row) for row in one]
        lines.append(":".join([*channels, label]))
    file.write_text("\n".join(lines) + "\n")


def write_set(folder, series=None, labels="abababab", test_labels=None, header=None):
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    series = series or [generator.normal(size=(2, 5 + number)) for number in range(8)]
    header = {"header": header} if header else {}
    write_part(folder / f"{folder.name}_TRAIN.ts", series, labels, **header)
    write_part(folder / f"{folder.name}_TEST.ts", series, test_labels or labels, **header)
    return folder


def test_runs_are_resumed_and_reported(program, tmp_path, capsys):
    data, output = write_set(tmp_path / "waves"), tmp_path / "out"
    command = [str(data), "--models", "all", "--seeds", "2", "--out", str(output), *SMALL]
    program.main(command)
    first = capsys.readouterr().out
    assert first.count("accuracy 0.") + first.count("accuracy 1.") == 14
    dataset = archives.load_dataset(str(data))
    runs = json.loads((output / "results.json").read_text())["runs"]
    assert list(runs) == list(program.MODELS)
    for name, seeds in runs.items():
        model = SeriesModel.load(output / name / "seed_2")
        told = [model.config.classes[i] for i in outputs_of(model, dataset.test.series).argmax(1)]
        assert np.mean(np.array(told) == dataset.test.targets) == seeds["2"]["accuracy"]
        (row,) = [line for line in first.splitlines() if f"| {program.NAMES[name]} " in line]
        mean = np.mean([seeds[seed]["accuracy"] for seed in "12"])
        assert f"| {mean:.4f} ± " in row.replace("|  ", "| ").replace("  ", " ")
    for picture in ("scores.png", "attention.png", "tsne.png"):
        assert (output / picture).stat().st_size > 1000
    assert (output / "table.md").read_text().strip() in first
    assert "the most frequent class of the training set would have 0.5000." in first

    content = json.loads((output / "results.json").read_text())
    del content["runs"]["gru"]["2"]
    (output / "results.json").write_text(json.dumps(content))
    program.main(command)
    again = capsys.readouterr().out
    assert again.count("accuracy 0.") + again.count("accuracy 1.") == 1 and "gru 2" in again
    other = [*command, "--dropout", "0.2"]
    assert_ends_in_one_line(program.main, other, "its runs had dropout 0.1, not 0.2", capsys)


def test_a_regression_has_an_rmse_in_its_own_units(program, tmp_path):
    folder = write_set(
        tmp_path / "numbers",
        labels=[str(100.0 + n) for n in range(8)],
        header="@targetLabel true",
    )
    output = tmp_path / "out"
    program.main([str(folder), "--models", "ea_dc", "--seeds", "1", "--out", str(output), *SMALL])
    runs = json.loads((output / "results.json").read_text())["runs"]
    # The targets' deviation is 2.3; in standardised units it would be near 0.
    assert 1.0 < runs["ea_dc"]["1"]["rmse"] < 10.0
    assert "the mean of the training set would have 2.2913." in (output / "table.md").read_text()


def test_validation_holds_out_a_fifth_of_the_training_set(program, tmp_path):
    dataset = archives.load_dataset("JapaneseVowels")
    assert (len(dataset.train.series), len(dataset.test.series), dataset.longest) == (270, 370, 29)
    held = program.held_out(dataset)
    assert len(held.test.series) == 54 and len(held.train.series) == 216
    assert sorted(held.test.targets) == sorted([*map(str, range(1, 10))] * 6)
    known = {one.tobytes() for one in dataset.train.series}
    parts = [{one.tobytes() for one in part.series} for part in (held.train, held.test)]
    assert not parts[0] & parts[1] and parts[0] | parts[1] == known


def test_ablations_change_what_they_say(program):
    dataset = archives.load_dataset("CardanoSentiment")
    args = program.make_parser().parse_args(["CardanoSentiment"])
    models = program.models_named(["all", "ablations", "p"])
    built = {name: SeriesModel(program.config_of(name, dataset, args)) for name in models}
    transforms = {
        name: built[name].encoder.layers[1].attention.transform
        for name in ("ea_dc", *program.ABLATIONS)
    }
    found = {
        name: (one.uses_carry, one.convolution and one.convolution.kernel_size[0])
        for name, one in transforms.items()
    }
    assert found == {
        "ea_dc": (True, 3),
        "without_convolution": (True, None),
        "without_skip": (False, 3),
        "kernel_1": (True, 1),
        "kernel_5": (True, 5),
    }
    for name, p in {"p_0.5": 0.5, "transformer": 1.0, "dc": 0.25}.items():
        assert built[name].encoder.layers[0].attention.out_proj.out_features == 64 * p
    assert built["dilated"].encoder.layers[0].attention is None


def test_within_class_distance_equals_loops(program):
    import pictures

    points, labels = np.random.default_rng(0).normal(size=(6, 3)), np.array(list("aabbbb"))
    centres = {label: sum(points[labels == label]) / sum(labels == label) for label in "ab"}
    pairs = zip(points, labels, strict=True)
    total = sum(math.dist(point, centres[label]) for point, label in pairs)
    spread = sum(math.dist(point, points.mean(0)) for point in points)
    found = pictures.within_class_distance(points, labels)
    assert found == pytest.approx(total / spread)


@pytest.mark.parametrize(
    "words, message",
    [
        (["JapaneseVowel"], "JapaneseVowel: no folder.*perhaps you meant JapaneseVowels"),
        (["GunPoint", "--models", "eadc"], "--models eadc: choose among .*ea_dc"),
        (["GunPoint", "--seeds", "0"], "--seeds must be at least 1, not 0"),
        (["GunPoint", "--p", "0.3"], "p must be in .* not 0.3"),
        (["GunPoint", "--device", "abacus"], "--device abacus: "),
        (["GunPoint", "--epochs", "0"], "epochs must be at least 1, not 0"),
    ],
)
def test_bad_options_are_told_in_one_line(program, tmp_path, capsys, words, message):
    out = tmp_path / "out"
    assert_ends_in_one_line(program.main, [*words, "--out", out], message, capsys)
    assert not out.exists()


def test_bad_data_sets_are_told_of(tmp_path):
    whole = [np.zeros((2, 5)) for _ in range(8)]
    gap = [one.copy() for one in whole]
    gap[3][1, 2] = np.nan
    cases = {
        "gaps": ({"series": gap}, "series 3 of .*gaps_TRAIN.ts has nan .* channel 1 at step 2"),
        "classes": ({"test_labels": "abababac"}, "series 7 has class 'c', which no training"),
        "one": ({"labels": "aaaaaaaa"}, "all training series are of class 'a'"),
        "channels": ({"series": [*whole[:7], np.zeros((3, 5))]}, "channels_TRAIN.ts: "),
    }
    for name, (settings, message) in cases.items():
        header = {"header": "@classLabel true a b c"}
        folder = write_set(tmp_path / name, **settings, **header)
        with pytest.raises(UserError, match=message):
            archives.load_dataset(str(folder))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty_TRAIN.ts: no such file"):
        archives.load_dataset(str(tmp_path / "empty"))
