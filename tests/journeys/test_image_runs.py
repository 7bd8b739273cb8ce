"""examples/images: digits are learned, a stopped run goes on to the bit, bad input is one line."""

import example_programs
import pytest
import torch
from example_programs import EXAMPLES, assert_commands_are_taken, assert_ends_in_one_line
from matplotlib import pyplot
from pages import DOCS
from PIL import Image

from ea_fairseq import experiments
from ea_fairseq.errors import UserError
from ea_fairseq.files import read_json


@pytest.fixture(scope="module")
def programs():
    with example_programs.programs("images", "run", "pictures", "attention_maps") as found:
        yield found


@pytest.fixture
def few(programs, monkeypatch):
    """Digits of which a run has 64 alone."""
    digits = programs.pictures._digits

    def some():
        size, channels, classes, *parts = digits()
        parts = [torch.utils.data.Subset(part, range(64)) for part in parts]
        return size, channels, classes, *parts

    monkeypatch.setattr(programs.pictures, "_digits", some)


WORDS = ["digits", "--seeds", "1", "--epochs", "2", "--batch", "16", "--lr", "0.05"]


def test_a_stopped_run_goes_on_to_the_bit_and_what_is_done_is_kept(
    programs, few, tmp_path, monkeypatch, capsys
):
    words = [*WORDS, "--models", "ea-aa-resnet"]
    assert programs.run.main([*words, "--out", str(tmp_path / "whole")]) == 0
    saved = experiments.save_state

    def stopping(path, state):
        saved(path, state)
        if state["epoch"] == 1:
            raise KeyboardInterrupt

    stopped = [*words, "--out", str(tmp_path / "stopped")]
    monkeypatch.setattr(experiments, "save_state", stopping)
    with pytest.raises(SystemExit) as end:
        programs.run.main(stopped)
    assert end.value.code == 130 and "the same command goes on" in capsys.readouterr().err
    monkeypatch.setattr(experiments, "save_state", saved)
    # It has seen the pictures that would be held out.
    reason = "is of a run with other settings"
    assert_ends_in_one_line(programs.run.main, [*stopped, "--validate"], reason, capsys)
    torch.manual_seed(99)
    assert programs.run.main(stopped) == 0
    runs = [tmp_path / name / "digits" for name in ("whole", "stopped")]
    places = [run / "ea-aa-resnet" / "seed1" for run in runs]
    weights = [experiments.load_weights(place / "model.safetensors")[0] for place in places]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert read_json(runs[0] / "results.json") == read_json(runs[1] / "results.json")
    assert not (places[1] / "state.safetensors").exists()

    maps = ["--layers", "2", "5", "--picture", "3"]
    with monkeypatch.context() as patched:
        figures = []
        patched.setattr(pyplot, "close", figures.append)
        assert_maps_are_drawn(programs, tmp_path, places[0], *maps)
    titles = [axis.get_title() for axis in figures[0].axes]
    assert [title.partition(":")[0] for title in titles[1:]] == ["2", "5"]
    words = [places[0], "--layers", "5", "99", "--output", tmp_path / "no.png"]
    assert_ends_in_one_line(programs.attention_maps.main, words, "--layers 99: ", capsys)


def assert_maps_are_drawn(programs, folder, run, *options):
    picture = folder / "maps.png"
    assert programs.attention_maps.main([str(run), *options, "--output", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_every_model_can_be_built_and_differs_as_table_11_has_it(programs):
    args = programs.run.make_parser().parse_args(["digits", "--alpha", "0.3"])
    pictures = programs.pictures.load("digits", None, False)
    found = {}
    for model in programs.run.RESNETS:
        about = programs.run.describe(model, pictures, args)["resnet"]
        programs.run.build({"resnet": about})
        found[model] = about["variant"], about["options"], about["attention"][1]
    assert found["resnet"] == ("plain", {}, None)
    assert found["aa-resnet"][:2] == ("plain", {})
    assert found["ea-aa-resnet"][:2] == ("evolving", {"alpha": 0.3, "beta": 1.0})
    assert found["without-convolution"][1] == {"alpha": 0.3, "convolution": "none"}
    assert found["without-skip"][1] == {"beta": 1.0, "skip": "none"}
    assert found["kernel-5"][1] == {"alpha": 0.3, "beta": 1.0, "kernel_size": 5}


def test_vision_transformers_are_trained_plain_and_evolved(programs, few, tmp_path):
    words = [*WORDS, "--models", "vit", "ea-vit", "--out", str(tmp_path)]
    assert programs.run.main(words) == 0
    runs = read_json(tmp_path / "digits" / "results.json")["runs"]
    # A convolution of 3 x 3 over the maps of 4 heads in each of 4 layers.
    added = runs["ea-vit"]["1"]["parameters"] - runs["vit"]["1"]["parameters"]
    assert added == 4 * (4 * 4 * 9 + 4)
    assert_maps_are_drawn(programs, tmp_path, tmp_path / "digits" / "ea-vit" / "seed1")


def test_the_pages_commands_are_ones_that_the_programs_take(programs):
    pages = DOCS / "images.md", EXAMPLES / "images" / "RESULTS.md"
    assert_commands_are_taken(programs, 4, *pages)


def test_the_schedule_is_the_papers(programs):
    schedule = programs.run.schedule
    of_100 = {0: 0, 2.5: 0.5, 5: 1, 29: 1, 30: 0.1, 59: 0.1, 60: 0.01, 80: 1e-3, 90: 1e-4, 99: 1e-4}
    for epoch, expected in of_100.items():
        assert schedule(epoch / 100) == pytest.approx(expected)
    assert schedule(0.5, is_vit=True) == pytest.approx(0.5)


def test_accuracies_count_the_first_and_the_first_five(programs):
    logits = torch.tensor([[9.0, 8, 7, 6, 5, 4, 3], [0, 1, 2, 3, 4, 5, 6]])

    class Fixed(torch.nn.Module):
        def forward(self, pictures):
            return logits[pictures.long()]

    pairs = [(torch.tensor(0), torch.tensor(c)) for c in (0, 4, 5)]  # first, fifth, sixth
    pairs += [(torch.tensor(1), torch.tensor(6))]
    found = programs.run.accuracies(Fixed(), pairs, 3, torch.device("cpu"))
    assert found == (2 / 4, 3 / 4)


def test_a_tenth_of_the_training_pictures_is_held_out_for_choices(programs):
    whole = programs.pictures.load("digits", None, False)
    part = programs.pictures.load("digits", None, True)
    assert (len(whole.train), len(whole.test)) == (1437, 360)
    assert (len(part.train), len(part.test)) == (1294, 143)
    assert not set(part.train.indices) & set(part.test.indices)


def folder_of_pictures(folder, **classes):
    for part, names in classes.items():
        for name in names:
            (folder / part / name).mkdir(parents=True)
            Image.new("RGB", (300, 280)).save(folder / part / name / "one.png")


def test_a_folder_of_pictures_is_read_as_imagenet_s(programs, tmp_path):
    folder_of_pictures(tmp_path, train=("cat", "dog"), val=("cat", "dog"))
    pictures = programs.pictures.load("imagenet", tmp_path, False)
    assert pictures.classes == 2
    for part in (pictures.train, pictures.test):
        picture, label = part[1]
        assert picture.shape == (3, 224, 224) and label == 1
    folder_of_pictures(tmp_path, val=("horse",))
    with pytest.raises(UserError, match="class horse is in val alone"):
        programs.pictures.load("imagenet", tmp_path, False)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["digits", "--models", "alexnet"], "--models alexnet: choose among all, resnet"),
        (["digits", "--data", "there"], "--data there: digits come with scikit-learn"),
        (["cifar10"], "cifar10 needs --data FOLDER"),
        (["cifar10", "--data", "there"], "--data there: has no whole cifar-10-batches-py"),
        (["imagenet", "--data", "there"], "--data there: wants folders train and val"),
        (["digits", "--batch", "1"], "--batch must be at least 2, not 1"),
        (["digits", "--alpha", "3"], "alpha must be"),
    ],
)
def test_bad_input_ends_in_one_line(programs, words, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert_ends_in_one_line(programs.run.main, words, reason, capsys)
    assert not list(tmp_path.iterdir())


def test_pictures_of_a_run_that_is_not_there_are_refused(programs, tmp_path, capsys):
    for output, reason in (
        (tmp_path / "maps.png", "model.safetensors: no such file"),
        ("maps.gif", "choose a name in .png or .pdf"),
    ):
        words = [tmp_path, "--output", output]
        assert_ends_in_one_line(programs.attention_maps.main, words, reason, capsys)
