"""Curves come out of logs as fairseq's own progress bars wrote them in; pictures show them."""

import json
import logging
import sys

import pytest
from fairseq.logging import progress_bar as bars
from matplotlib import image, pyplot
from refusals import refusal

from ea_fairseq.commands import plot
from ea_fairseq.recipes.results.curve_pictures import draw_seeds
from ea_fairseq.recipes.results.curves import Curves, MeanCurve, read_curves

FORMATS = {
    "json": lambda: bars.JsonProgressBar([0] * 100, epoch=1, log_interval=10),
    "simple": lambda: bars.SimpleProgressBar([0] * 100, epoch=1, log_interval=10),
    "tqdm": lambda: bars.TqdmProgressBar([0] * 100, epoch=1),
}


def write_log(path, make_bar, epochs=range(1, 4), bleu=True, tensorboard=None):
    """A training of 100 updates an epoch, 60 seconds each, by fairseq's progress bars.

    The training loss at update u is 10 - u / 100, that of validation 5 - epoch, BLEU 10 * epoch.
    """
    handler = logging.FileHandler(path)
    handler.setFormatter(
        logging.Formatter("2026-01-01 12:00:00 | %(levelname)s | %(name)s | %(message)s")
    )
    bars.logger.addHandler(handler)
    bars.logger.setLevel(logging.INFO)
    try:
        for epoch in epochs:
            bar = make_bar()
            if tensorboard:
                bar = bars.TensorboardProgressBarWrapper(bar, str(tensorboard))
            first = (epoch - 1) * 100
            for i, _ in enumerate(bar, start=first + 1):
                stats = {"loss": 10 - i / 100, "num_updates": i, "wall": round(i * 0.6)}
                if i % 10 == 0:
                    bar.log(stats, tag="train_inner", step=i)
            score = {"bleu": 10.0 * epoch} if bleu else {}
            valid = {"loss": 5.0 - epoch, **score, "num_updates": epoch * 100}
            bar.print(valid, tag="valid", step=epoch * 100)
            # Another set of --valid-subset, by which no checkpoint is chosen.
            bar.print(valid | {"loss": 9.0, "bleu": 1.0}, tag="valid1", step=epoch * 100)
            bar.print(stats, tag="train", step=epoch * 100)
    finally:
        bars.logger.removeHandler(handler)
        handler.close()
        bars._close_writers()
        bars._tensorboard_writers.clear()


@pytest.mark.parametrize("name", FORMATS)
def test_curves_are_those_that_fairseq_logged(tmp_path, name):
    write_log(tmp_path / "log", FORMATS[name])
    curves = read_curves(tmp_path / "log")
    assert curves.curve("valid", "loss") == ([100, 200, 300], [4.0, 3.0, 2.0])
    assert curves.curve("valid", "bleu") == ([100, 200, 300], [10.0, 20.0, 30.0])
    assert curves.minutes([100, 200, 300]) == pytest.approx([1, 2, 3])
    assert curves.curve("train", "loss") == ([100, 200, 300], [9.0, 8.0, 7.0])
    updates, losses = curves.curve("train_inner", "loss")
    if name != "tqdm":  # which shows them in the bar only
        assert updates == list(range(10, 301, 10))
        assert losses == pytest.approx([10 - update / 100 for update in updates])


def test_tensorboard_gives_the_same_curves(tmp_path):
    write_log(tmp_path / "log", FORMATS["simple"], tensorboard=tmp_path / "board")
    log, board = read_curves(tmp_path / "log"), read_curves(tmp_path / "board")
    for kind, quantity in [("valid", "loss"), ("valid", "bleu"), ("train_inner", "loss")]:
        updates, values = log.curve(kind, quantity)
        assert len(updates) >= 3
        if kind == "train_inner":  # TensorBoard's log interval is not the log's
            assert set(board.curve(kind, quantity)[0]) >= set(updates)
        else:
            assert board.curve(kind, quantity) == (updates, pytest.approx(values))
    assert board.minutes([300]) == pytest.approx([3])


def test_a_resumed_training_is_one_curve(tmp_path):
    write_log(tmp_path / "log", FORMATS["json"], epochs=(1, 2))
    with open(tmp_path / "log", "a") as log:
        log.write('2026-01-01 12:00:00 | INFO | train_inner | {"epoch": 3, "loss": "7.1", "num_')
        log.write("\n$ python -m fairseq_cli.train\n")
    write_log(tmp_path / "log", FORMATS["json"], epochs=(2, 3))
    assert read_curves(tmp_path / "log").curve("valid", "loss")[0] == [100, 200, 300]


def colors(path):
    """The saturated colors of a picture, as the curves' default colors C0 and C1 are."""
    picture = image.imread(path)[..., :3]
    assert picture.shape[0] > 300 and picture.shape[1] > 300
    blue = (picture[..., 2] > 0.6) & (picture[..., 0] < 0.3)
    orange = (picture[..., 0] > 0.9) & (picture[..., 2] < 0.3)
    return int(blue.sum()), int(orange.sum())


def test_the_picture_shows_every_run_and_bleu_where_it_was_logged(tmp_path):
    for number, name in enumerate(("one", "two", "without")):
        epochs = range(1, 4 + number)
        write_log(tmp_path / name, FORMATS["json"], epochs=epochs, bleu=name != "without")

    def drawn(picture, *names):
        picture = tmp_path / picture
        runs = [str(tmp_path / name) for name in names]
        assert plot.main([*runs, "--output", str(picture)]) == 0
        return picture

    one = drawn("one.png", "one")
    blue, orange = colors(one)
    assert blue > 500 and orange == 0
    blue, orange = colors(drawn("both.png", "one", "two"))
    assert blue > 50 and orange > 500  # where both run, the second covers the first
    without = drawn("without.png", "without")
    assert image.imread(one).shape[0] == 2 * image.imread(without).shape[0]
    pdf = drawn("one.pdf", "without")
    assert pdf.read_bytes().startswith(b"%PDF") and pdf.stat().st_size > 5000
    assert len(list(tmp_path.iterdir())) == 3 + 4


def test_every_run_is_named_and_looks_like_no_other(tmp_path, monkeypatch):
    names = ["_old", "costs $1 and $2", *(f"run{number}" for number in range(10))]
    for name in names:
        write_log(tmp_path / name, FORMATS["json"], epochs=[1], bleu=False)
    figures = []
    with monkeypatch.context() as patched:
        patched.setattr(pyplot, "close", figures.append)
        runs = [str(tmp_path / name) for name in names]
        assert plot.main([*runs, "--output", str(tmp_path / "curves.png")]) == 0
    (figure,) = figures
    texts = figure.legends[0].get_texts()
    assert [text.get_text().strip() for text in texts] == names
    assert not any(text.get_parse_math() for text in texts)
    thick = [line for line in figure.axes[0].lines if line.get_marker() == "."]
    assert len({(line.get_color(), line.get_linestyle()) for line in thick}) == len(names)
    pyplot.close(figure)


def test_long_names_of_runs_lie_outside_the_curves(tmp_path, monkeypatch):
    names = ["a_model_with_a_rather_long_name." + "with_settings" * 4, "b" * 60]
    for name in names:
        write_log(tmp_path / name, FORMATS["json"], epochs=range(1, 4))
    figures = []
    runs = [str(tmp_path / name) for name in names]
    with monkeypatch.context() as patched:
        patched.setattr(pyplot, "close", figures.append)
        assert plot.main([*runs, "--output", str(tmp_path / "curves.png")]) == 0
    (figure,) = figures
    legends = [*figure.legends, *(axis.get_legend() for axis in figure.axes)]
    (box,) = [legend.get_window_extent() for legend in legends if legend]
    assert not any(box.overlaps(axis.get_tightbbox()) for axis in figure.axes)
    assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
    pyplot.close(figure)


def test_a_recipes_folder_stands_for_all_its_seeds(tmp_path, capsys):
    for seed in (1, 2):
        folder = tmp_path / "recipe" / f"seed{seed}" / "logs"
        folder.mkdir(parents=True)
        write_log(folder / "train.log", FORMATS["json"])
    found = plot.seeds_of(tmp_path / "recipe")
    assert [path.name for path in found] == ["seed1", "seed2"]
    assert read_curves(found[1]).curve("valid", "loss")[0] == [100, 200, 300]
    (second,) = plot.seeds_of(tmp_path / "recipe", [2])
    assert second == found[1]
    for seed in (1, 2):  # whose mean would be of nothing
        settings = {"train": {"dropout": seed / 10}}
        results = tmp_path / "recipe" / f"seed{seed}" / "results.json"
        results.write_text(json.dumps({"settings": settings}))
    words = [str(tmp_path / "recipe"), "--output", str(tmp_path / "curves.png")]
    line = refusal(capsys, plot.main, *words)
    assert f"{found[1]}: made with other settings than seed1 (train.dropout: 0.1" in line
    assert plot.main([*words, "--seeds", "2"]) == 0


def shifted(shift, validations):
    """Curves of a training: one validation every 100 + shift updates, a minute each."""
    curves = Curves()
    for number in range(1, validations + 1):
        updates = number * (100 + shift)
        curves.add("valid", "loss", updates, 9.0 - number + shift)
        curves.add("valid", "wall", updates, 60.0 * number * (1 + shift))
    return curves


def test_seeds_have_a_mean_and_a_deviation_as_far_as_all_have_come():
    seeds = [shifted(0, 3), shifted(1, 5), shifted(5, 4)]
    curve = MeanCurve.of(seeds, "valid", "loss")
    assert curve.updates == [102, 204, 306] and curve.cut
    assert curve.values == [10, 9, 8]  # 9 - number + mean of 0, 1, 5
    deviation = ((2**2 + 1**2 + 3**2) / 2) ** 0.5
    assert curve.deviations == pytest.approx([deviation] * 3)
    assert curve.minutes == pytest.approx([3, 6, 9])
    alone = MeanCurve.of(seeds[:1], "valid", "loss")
    assert (alone.updates, alone.values) == seeds[0].curve("valid", "loss")
    assert alone.deviations == [0, 0, 0] and not alone.cut


def test_epochs_stay_paired_where_one_seed_s_loss_is_no_number():
    """The epochs after it were paired with those before."""
    seeds = [Curves(), Curves()]
    for number, seed in enumerate(seeds):
        for epoch, loss in enumerate([8.0, 7.0, 6.0, 5.0], start=1):
            seed.add(
                "valid", "loss", 100 * epoch, float("nan") if (number, epoch) == (0, 2) else loss
            )
    curve = MeanCurve.of(seeds, "valid", "loss")
    assert (curve.updates, curve.values) == ([100, 300, 400], [8.0, 6.0, 5.0])
    assert curve.deviations == [0, 0, 0] and not curve.cut


def test_the_mean_lies_in_the_middle_of_its_band_over_updates_and_over_time():
    seeds = [shifted(0, 3), shifted(1, 5), shifted(5, 4)]
    deviation = ((2**2 + 1**2 + 3**2) / 2) ** 0.5
    figure, axes = pyplot.subplots(1, 2, squeeze=False)
    draw_seeds(axes, ["loss"], seeds, 2, {"color": "C0"}, label="seeds")
    for axis, places in zip(axes[0], ([102, 204, 306], [1.5, 3, 4.5]), strict=True):
        assert list(axis.lines[0].get_xdata()) == pytest.approx(places)  # two minutes a unit
        assert list(axis.lines[0].get_ydata()) == [10, 9, 8]
        (band,) = axis.collections
        corners = band.get_paths()[0].vertices
        for place, value in zip(places, (10, 9, 8), strict=True):
            heights = corners[abs(corners[:, 0] - place) < 1e-6, 1]
            assert min(heights) == pytest.approx(value - deviation)
            assert max(heights) == pytest.approx(value + deviation)
    assert "mean of 3 seeds" in axes[0][0].lines[0].get_label()
    pyplot.close(figure)
    figure, axes = pyplot.subplots(1, 2, squeeze=False)
    draw_seeds(axes, ["loss"], seeds[:1], 2, {"color": "C0"}, label="seed")
    assert axes[0][0].lines[0].get_label() == "seed" and not axes[0][0].collections
    pyplot.close(figure)


@pytest.mark.parametrize(
    ("name", "picture", "words"),
    [
        ("empty", "curves.png", "nothing to plot"),
        ("other", "curves.png", "nothing to plot"),
        ("folder", "curves.png", "nothing to plot"),
        ("nowhere", "curves.png", "/nowhere: no such file"),
        ("other", "curves.bmp", ".png or .pdf"),
    ],
)
def test_what_cannot_be_drawn_is_an_error_and_no_picture(tmp_path, capsys, name, picture, words):
    (tmp_path / "empty").touch()
    (tmp_path / "other").write_text("no losses here\n")
    (tmp_path / "folder").mkdir()
    line = refusal(capsys, plot.main, tmp_path / name, "--output", tmp_path / picture)
    assert words in line and not (tmp_path / picture).exists()


BEGINS = "fairseq_cli.train | max tokens per device = 100 and max sentences per device = None"


def line(time, text):
    return f"2026-10-25 {time} | INFO | {text}\n"


def record(time, tag, updates, **more):
    """What was logged after so many updates."""
    return line(time, f"{tag} | {json.dumps({'loss': '3.0', 'num_updates': str(updates), **more})}")


@pytest.mark.parametrize("package", ["matplotlib", "tensorboard"])
def test_a_package_that_is_missing_is_named(tmp_path, capsys, monkeypatch, package):
    write_log(tmp_path / "log", FORMATS["json"], tensorboard=tmp_path / "events")
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    line = refusal(capsys, plot.main, tmp_path / "events", "--output", tmp_path / "curves.png")
    assert f"{package} is not installed: pip install 'ea_fairseq[recipes]'" in line


def test_time_goes_on_over_resumed_processes_without_what_was_between(tmp_path):
    """The first process lost its last 20 updates; fairseq's "wall" begins anew in the second."""
    log = tmp_path / "train.log"
    log.write_text(
        line("11:58:00", "fairseq_cli.train | Namespace()")
        + line("12:00:00", BEGINS)
        + record("12:01:00", "train_inner", 100, wall="60")
        + record("12:02:00", "train_inner", 120, wall="120")
        + line("14:59:00", "fairseq_cli.train | Namespace()")
        + line("15:00:00", BEGINS)
        + record("15:00:30", "train_inner", 110, wall="30")
        + record("15:03:00", "train_inner", 200, wall="180")
    )
    assert read_curves(log).minutes([100, 110, 200]) == pytest.approx([1, 2.5, 5])


@pytest.mark.parametrize("hour", [11, 13])
def test_time_does_not_jump_where_the_clock_does(tmp_path, hour):
    """At the ends of summer time, by one hour; here before a validation, whose line has no wall."""
    log = tmp_path / "train.log"
    log.write_text(
        line("12:00:00", BEGINS)
        + record("12:10:00", "train_inner", 100, wall="600")
        + record("12:12:00", "valid", 110)
        + record("12:13:00", "train", 110, wall="780")
        + record("12:20:00", "train_inner", 200, wall="1200")
        + record(f"{hour}:22:00", "valid", 220)
        + record(f"{hour}:23:00", "train", 220, wall="1380")
        + record(f"{hour}:30:00", "train_inner", 300, wall="1800")
        + record(f"{hour}:32:00", "valid", 330)
    )
    curves = read_curves(log)
    assert curves.minutes([100, 200, 300, 330]) == pytest.approx([10, 20, 30, 32])
    # Of one validation it is known that it came between two lines.
    assert curves.minutes([110]) == pytest.approx([12])
    assert 20 <= curves.minutes([220])[0] <= 23


def test_lines_with_numbers_of_hundreds_of_digits_are_left_out(tmp_path):
    long = "9" * 5000
    lines = [
        '| INFO | train_inner | {"loss": "3.0", "num_updates": "10"}',
        f'| INFO | train_inner | {{"loss": {long}, "num_updates": 20}}',
        f'| INFO | train_inner | {{"loss": {long[:400]}, "num_updates": 30}}',
        f'| INFO | train_inner | {{"loss": "2.0", "num_updates": {long[:400]}}}',
        '| INFO | train_inner | {"loss": "2.0", "num_updates": 1e999}',
        f"| INFO | train_inner | loss=2.0, num_updates={long}",
        "2026-99-99 12:00:00 | INFO | fairseq_cli.train | max tokens per device = 1",
    ]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    curves = read_curves(tmp_path / "train.log")
    assert curves.curve("train_inner", "loss") == ([10], [3.0])
