"""Pictures show the maps of the model, by head or their mean, with the tokens on the axes."""

import dataclasses
import math
import sys
from itertools import combinations
from xml.etree import ElementTree

import plot_attention as command
import pytest
import torch
from matplotlib import image
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from small_folders import strong, write_folder
from small_models import EOS, settings_of

from ea_fairseq import Translator
from ea_fairseq.attention.variants import VARIANTS
from ea_fairseq.errors import UserError
from ea_fairseq.inference import plots
from ea_fairseq.inference.attention_maps import attention_maps
from ea_fairseq.inference.map_views import layer_views
from ea_fairseq.inference.translator import Part

SOURCE, TARGET = [5, 9, 7, 12, EOS], [8, 6, 11, EOS]
PART = Part(["w1", "w5", "$x$", "<b>&", "</s>"], ["w4", "w2", "w7", "</s>"], [0.0] * 4, 0.0, None)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return Translator(write_folder(tmp_path_factory.mktemp("models") / "ea"))


def drawn(monkeypatch, translator, tmp_path, **options):
    """The axes of a picture, by name."""
    figures = []

    def save(figure, path, *_):
        figures.append(figure)
        path.touch()

    monkeypatch.setattr(plots, "_save", save)
    plots.plot_attention(translator, PART, tmp_path / "x.png", **options)
    return {axis.get_label(): axis for axis in figures[0].axes}


def softmax(logits, attention):
    """Loops over rows and the keys they see."""
    result = torch.zeros_like(logits)
    for head, row in torch.cartesian_prod(*map(torch.arange, logits.shape[:2])).tolist():
        keys = range(row + 1 if attention == "decoder" else logits.size(2))
        powers = [math.exp(logits[head, row, key]) for key in keys]
        for key in keys:
            result[head, row, key] = powers[key] / sum(powers)
    return result


@pytest.mark.parametrize("attention", ["encoder", "decoder", "encoder-decoder"])
def test_views_are_what_the_layer_says_what_is_added_and_what_comes_out(attention):
    model = strong("ea_transformer_lite")
    for layer in attention_maps(model, SOURCE, TARGET)[attention]:
        fresh, added, evolved = layer_views(layer)
        assert [view.name for view in (fresh, added, evolved)] == ["fresh", "added", "evolved"]
        assert torch.allclose(fresh.values, softmax(layer.fresh, attention), atol=1e-5)
        assert torch.equal(added.values, layer.evolved - layer.mixed) and added.signed
        assert torch.allclose(evolved.values, softmax(layer.evolved, attention), atol=1e-5)
        assert [view.in_logits for view in (fresh, added, evolved)] == [False, True, False]


def test_without_a_convolution_what_the_layer_below_carried_is_what_is_added():
    model = strong("ea_transformer_lite", ea_variant="residual")
    for layers in attention_maps(model, SOURCE, TARGET).values():
        for layer in layers[1:]:
            fresh, added, evolved = layer_views(layer)
            assert (added.name, added.signed) == ("added", True)
            assert torch.allclose(added.values, layer.carry, atol=1e-5)


def test_a_plain_transformer_has_one_map():
    for attention, layers in attention_maps(strong("transformer_lite"), SOURCE, TARGET).items():
        for layer in layers:
            (view,) = layer_views(layer)
            assert view.name == "map"
            assert torch.allclose(view.values, softmax(layer.fresh, attention), atol=1e-5)


def test_the_fresh_map_sees_what_the_layer_sees():
    model = strong("ea_transformer_lite", ea_variant="diagonal_free")
    for layer in attention_maps(model, SOURCE, TARGET)["decoder"]:
        assert torch.equal(layer.visible, torch.tensor([[1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0],
                                                        [1, 1, 1, 0]]).bool())  # fmt: skip
        assert torch.allclose(layer_views(layer)[0].values, layer.probs, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_has_views(variant):
    name, options = next(iter(settings_of(variant)))
    changed = set()
    maps = attention_maps(strong("ea_transformer_lite", **options), SOURCE, TARGET)
    for layers in maps.values():
        for layer in layers:
            views = layer_views(layer)
            assert torch.equal(views[-1].values, layer.probs)
            for view in views:
                assert view.values.shape == layer.probs.shape and view.values.isfinite().all()
                assert view.signed or view.values.min() >= 0
            changed.add(len(views) > 1)
    # A mask changes what is seen, not the maps.
    assert (True in changed) == (variant not in ("plain", "diagonal_free"))


def shown(axis):
    return torch.from_numpy(axis.images[0].get_array().filled(0.0))


def labels(axis):
    sides = axis.get_yticklabels(), axis.get_xticklabels()
    return [[label.get_text() for label in side] for side in sides]


def test_the_picture_shows_the_mean_of_the_heads_with_the_tokens(monkeypatch, translator, tmp_path):
    axes = drawn(monkeypatch, translator, tmp_path)
    maps = translator.attention_maps(PART)
    assert len(axes) == 3 * 3 * 3
    for attention, layers in maps.items():
        for number, layer in enumerate(layers, start=1):
            for view in layer_views(layer):
                axis = axes[f"{attention} {number} {view.name}"]
                assert torch.allclose(shown(axis), view.values.mean(dim=0), atol=1e-6)
    source, target = PART.source_tokens, PART.tokens
    assert labels(axes["encoder 2 fresh"]) == [source, source]
    assert labels(axes["decoder 1 fresh"]) == [target, ["</s>", "w4", "w2", "w7"]]
    assert labels(axes["encoder-decoder 3 fresh"]) == [target, source]
    hidden = axes["decoder 1 evolved"].images[0].get_array().mask
    assert torch.equal(torch.from_numpy(hidden), torch.ones(4, 4).triu(1).bool())


def test_a_layer_with_one_map_has_the_tokens_beside_it(monkeypatch, tmp_path):
    translator = Translator(write_folder(tmp_path / "residual", "realformer_lite"))
    axes = drawn(monkeypatch, translator, tmp_path, attentions=["encoder"])
    tokens = PART.source_tokens
    assert labels(axes["encoder 1 map"]) == [tokens, tokens]
    assert labels(axes["encoder 2 fresh"]) == [tokens, tokens]
    assert labels(axes["encoder 2 evolved"]) == [[""] * len(tokens), tokens]
    left = [axes[f"encoder {name}"].get_position().x0 for name in ("1 map", "2 evolved")]
    assert left[0] == left[1]


def test_without_matplotlib_nothing_is_begun(monkeypatch, translator, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match="^matplotlib is not installed: pip install"):
        plots.check_picture(tmp_path / "x.png")


def test_one_head_some_layers_one_attention(monkeypatch, translator, tmp_path):
    axes = drawn(monkeypatch, translator, tmp_path, attentions=["encoder"], layers=[3, 1], head=2)
    assert {name.rsplit(" ", 1)[0] for name in axes} == {"encoder 1", "encoder 3"}
    layer = translator.attention_maps(PART)["encoder"][2]
    assert torch.allclose(shown(axes["encoder 3 evolved"]), layer.probs[1], atol=1e-6)
    largest = [axes[f"encoder {n} {name}"].images[0].norm.vmax
               for n in (1, 3) for name in ("fresh", "evolved")]  # fmt: skip
    assert len(set(largest)) == 1  # one scale


def test_the_command_draws_what_the_model_translates(tmp_path, capsys, translator):
    folder, output = str(translator.folders[0].path), tmp_path / "new" / "maps"
    output.parent.mkdir()
    for suffix, check in [
        (".png", lambda path: image.imread(path).std() > 0.05),
        (".pdf", lambda path: path.read_bytes().startswith(b"%PDF")),
        (".svg", lambda path: ElementTree.parse(path).getroot().tag.endswith("svg")),
    ]:
        picture = output.with_suffix(suffix)
        options = ["--output", str(picture), "--attention", "decoder", "--layer", "1"]
        assert command.main([folder, "w3 <b>$w8$ w1", *options]) == 0
        assert check(picture)
        assert capsys.readouterr().out == f"{picture}\n"
    assert len(list(output.parent.iterdir())) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output", "x.gif"], r"x.gif: choose a name in .png, .pdf, .svg"),
        (["--head", "5"], "head is 5: choose from 1 to 4"),
        (["--head", "0"], "head is 0: choose from 1 to 4"),
        (["--layer", "4"], "layer is 4: choose from 1 to 3"),
        (["--attention", "cross"], "attention is 'cross': choose from encoder, decoder"),
        (["--output", "/proc/x.png"], "/proc/x.png: cannot be written"),
        (["--output", "/dev/null/x.png"], "/dev/null/x.png: /dev/null is no folder"),
    ],
)
def test_mistakes_end_in_one_line(tmp_path, capsys, translator, options, message):
    folder = str(translator.folders[0].path)
    quick = ["--output", str(tmp_path / "x.png"), "--attention", "decoder", "--layer", "1"]
    assert command.main([folder, "w1", *quick, *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"plot_attention.py: error: {message}") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", " ", "w1\nw2", "w1 " * 2000])
def test_a_picture_is_of_one_piece_of_text(translator, text):
    with pytest.raises(UserError):
        plots.translated_part(translator, text)


def test_titles_leave_each_other_room(monkeypatch, translator, tmp_path):
    """With large numbers, and so little text that the maps are as small as they get."""
    monkeypatch.setattr(f"{__name__}.PART", Part(["w1", "</s>"], ["w2", "</s>"], [], 0.0, None))
    views = plots.layer_views

    def large(maps):
        return [dataclasses.replace(v, values=v.values * -12345) if v.in_logits else v
                for v in views(maps)]  # fmt: skip

    monkeypatch.setattr(plots, "layer_views", large)
    axes = drawn(monkeypatch, translator, tmp_path)
    renderer = FigureCanvasAgg(next(iter(axes.values())).figure).get_renderer()
    boxes = {}
    for name, axis in axes.items():
        title = axis.get_title(loc="left")
        assert "added" not in name or "darkest" in title
        (text,) = (found for found in axis.findobj(Text) if found.get_text() == title)
        boxes[name] = text.get_window_extent(renderer)
    together = [(a, b) for a, b in combinations(boxes, 2) if boxes[a].overlaps(boxes[b])]
    assert len(boxes) == 27 and together == []


def test_a_picture_of_metres_is_refused(translator, tmp_path):
    part = Part(["w1"] * 600 + ["</s>"], ["w1"] * 600 + ["</s>"], [], 0.0, None)
    with pytest.raises(UserError, match="metres long: choose fewer"):
        plots.plot_attention(translator, part, tmp_path / "x.png", layers=[1])
