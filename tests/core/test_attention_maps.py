"""Attention maps of a pair of sentences: those that made the scores."""

import threading

import pytest
import torch
from small_folders import strong, write_folder
from small_models import EOS, dictionary

from ea_fairseq import Translator
from ea_fairseq.errors import UserError
from ea_fairseq.inference.attention_maps import attention_maps
from ea_fairseq.inference.build_model import build_model

SOURCE, TARGET = [5, 9, 7, 12, EOS], [8, 6, 11, EOS]


@pytest.fixture(scope="module")
def model():
    return strong("ea_transformer_lite", ea_alpha=0.3, ea_beta=0.4, ea_skip="encoder,decoder")


def test_shapes_and_hidden_entries(model):
    maps = attention_maps(model, SOURCE, TARGET)
    shapes = {"encoder": (5, 5), "decoder": (4, 4), "encoder-decoder": (4, 5)}
    for kind, layers in maps.items():
        assert len(layers) == 3
        for layer in layers:
            for found in (layer.fresh, layer.evolved, layer.added, layer.probs):
                assert found.shape == (4, *shapes[kind])
                if kind == "decoder":
                    assert not found.triu(1).any()
            assert torch.allclose(layer.probs.sum(-1), torch.ones(()))


def test_fresh_carried_and_added_make_the_evolved_map(model):
    """Equation (4), alpha 0.3, beta 0.4; no carry in the first layer, nor without a skip."""
    places = {"encoder": ("encoder", "self_attn"), "decoder": ("decoder", "self_attn")}
    places["encoder-decoder"] = ("decoder", "encoder_attn")
    for kind, layers in attention_maps(model, SOURCE, TARGET).items():
        below = None
        side, name = places[kind]
        for number, layer in enumerate(layers):
            mixed = layer.fresh
            if below is not None and kind != "encoder-decoder":
                assert torch.equal(layer.carry, below)
                mixed = 0.3 * layer.carry + 0.7 * layer.fresh
            else:
                assert layer.carry is None
            assert torch.allclose(layer.mixed, mixed, atol=1e-5)
            assert torch.allclose(mixed + layer.added, layer.evolved, atol=1e-5)
            convolution = getattr(getattr(model, side).layers[number], name).transform.convolution
            visible = layer.visible[None] if kind == "decoder" else None
            convolved = convolution(mixed[None], visible)[0]  # relu'd; loops in test_evolving.py
            assert torch.allclose(layer.added, 0.4 * convolved - 0.4 * mixed, atol=1e-5)
            assert kind == "decoder" or convolved.max() > 0.1
            below = layer.evolved


def test_the_probabilities_are_those_of_translating(tmp_path):
    translator = Translator(write_folder(tmp_path / "model"))
    translation = translator.translate("w3 w8 w1 w4", details=True)
    maps = translator.attention_maps(translation.parts[0])
    last = maps["encoder-decoder"][-1].probs.mean(dim=0)
    assert torch.allclose(last, translation.attention, atol=1e-5) and len(last) == len(
        translation.tokens
    )


def test_of_several_models_the_maps_are_those_of_the_one_asked_for(tmp_path):
    folders = [write_folder(tmp_path / name, seed=seed) for seed, name in ((1, "a"), (2, "b"))]
    together, alone = Translator(folders), [Translator(folder) for folder in folders]
    part = together.translate("w3 w8 w1 w4", details=True).parts[0]
    for model, translator in enumerate(alone):
        found, expected = together.attention_maps(part, model), translator.attention_maps(part)
        for kind, layers in expected.items():
            for layer, other in zip(layers, found[kind], strict=True):
                assert torch.equal(layer.probs, other.probs)
    maps = [translator.attention_maps(part)["encoder"][0].probs for translator in alone]
    assert not torch.allclose(*maps, atol=1e-2)


def test_a_plain_transformer_has_what_an_ea_model_without_evolution_has():
    plain = strong("transformer_lite")
    same = strong("ea_transformer_lite", ea_alpha=0.0, ea_beta=0.0)
    same.load_state_dict(plain.state_dict(), strict=False)
    ours, theirs = (attention_maps(m, SOURCE, TARGET) for m in (same, plain))
    for kind, layers in theirs.items():
        for layer, other in zip(layers, ours[kind], strict=True):
            assert layer.carry is None and layer.mixed is None and not layer.added.any()
            assert torch.allclose(layer.fresh, other.fresh, atol=1e-5)
            assert torch.allclose(layer.evolved, other.evolved, atol=1e-5)
            assert torch.allclose(layer.probs, other.probs, atol=1e-5)


def test_threads_do_not_see_each_others_maps(model):
    pairs = [([4 + i, 5 + i, EOS], [6 + i] * (1 + i % 3) + [EOS]) for i in range(12)]
    expected = [attention_maps(model, *pair) for pair in pairs]
    found = [None] * len(pairs)

    def work(numbers):
        for number in numbers:
            found[number] = attention_maps(model, *pairs[number])

    threads = [threading.Thread(target=work, args=(range(i, 12, 3),)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for maps, other in zip(found, expected, strict=True):
        for kind in maps:
            for layer, same in zip(maps[kind], other[kind], strict=True):
                assert torch.equal(layer.evolved, same.evolved)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_model_without_such_attention_is_refused():
    words = dictionary()
    sizes = {"encoder_embed_dim": 8, "decoder_embed_dim": 8, "decoder_out_embed_dim": 8}
    sizes |= {"max_source_positions": 9, "max_target_positions": 9}
    sizes |= {"encoder_layers": "[(8, 3)]", "decoder_layers": "[(8, 3)]"}
    with pytest.raises(UserError, match="FConvModel has no encoder attention"):
        attention_maps(build_model("fconv", sizes, (words, words)).eval(), SOURCE, TARGET)
