"""AA-ResNets: their equations as loops, torchvision where nothing is added, Table 9's counts."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import masked_softmax
from references.evolving import evolve_map
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ea_fairseq.errors import UserError
from ea_fairseq.networks import resnets
from ea_fairseq.networks.resnets import (
    AugmentedConvolution,
    AugmentedResNet,
    RelativePositions,
    ResNetSettings,
    resnet,
    resnet_settings,
)

SMALL = ResNetSettings(
    block="basic",
    layers=(1, 1, 1, 1),
    classes=5,
    widths=(8, 8, 16, 16),
    strides=(1, 1, 2, 1),
    small=True,
    channels=1,
    size=8,
    attention=(None, (4, 4), (8, 4), (8, 4)),
    heads=2,
    variant="evolving",
    options={"alpha": 0.5, "beta": 0.6},
)

# Table 9 of arXiv 2212.08330: millions of parameters, then 10^9 FLOPs.
TABLE_9 = {
    (34, "plain"): (21.8, 7.4),
    (34, "aa"): (20.7, 7.1),
    (34, "ea-aa"): (20.7, 7.9),
    (50, "plain"): (25.6, 8.2),
    (50, "aa"): (25.8, 8.3),
    (50, "ea-aa"): (25.8, 8.7),
    (101, "plain"): (44.5, 15.6),
    (101, "aa"): (45.4, 16.1),
    (101, "ea-aa"): (45.4, 17.2),
    (152, "plain"): (60.2, 23.0),
    (152, "aa"): (61.6, 23.8),
    (152, "ea-aa"): (61.6, 25.7),
}


@pytest.mark.parametrize(
    ("depth", "kind"),
    [
        pytest.param(*model, marks=[pytest.mark.thorough] if model[0] > 50 else [])
        for model in TABLE_9
    ],
)
def test_counts_are_those_of_table_9(depth, kind):
    counter = FlopCounterMode(display=False)
    with FakeTensorMode(), torch.no_grad():
        network = resnet(depth, kind).eval()
        picture = torch.empty(1, 3, 224, 224)
        with counter:
            network(picture)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    found = parameters / 1e6, counter.get_total_flops() / 1e9
    assert found == pytest.approx(TABLE_9[depth, kind], rel=0.01)


@pytest.mark.parametrize(("depth", "builder"), [(34, "resnet34"), (50, "resnet50")])
def test_plain_networks_are_torchvision_s_whose_checkpoints_load(depth, builder):
    from torchvision import models

    theirs = getattr(models, builder)(num_classes=7).eval()
    ours = resnet(depth, "plain", classes=7).eval()
    ours.load_state_dict(theirs.state_dict())
    picture = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(picture), theirs(picture))


def looped_positions(queries, height, width):
    """q . h[r' - r] + q . w[c' - c] of queries (heads, pixels, depth) over a map."""
    rows, columns = (len(height) + 1) // 2, (len(width) + 1) // 2
    heads, pixels, _ = queries.shape
    logits = np.zeros((heads, pixels, pixels))
    for h, query, key in np.ndindex(heads, pixels, pixels):
        down = key // columns - query // columns
        right = key % columns - query % columns
        logits[h, query, key] = queries[h, query] @ (
            height[down + rows - 1] + width[right + columns - 1]
        )
    return logits


def as_numpy(module):
    return {name: value.detach().numpy() for name, value in module.named_parameters()}


def test_relative_positions_equal_loops():
    positions = RelativePositions(3, 4, 5).double()
    queries = torch.randn(2, 2, 12, 5, dtype=torch.float64)
    for one, found in zip(queries.numpy(), positions(queries), strict=True):
        expected = looped_positions(one, **as_numpy(positions))
        np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-12)


class Largest(TorchDispatchMode):
    """Notes the memory of the largest tensor that is made."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            if isinstance(one, torch.Tensor):
                self.numbers = max(self.numbers, one.untyped_storage().size() // 4)
        return made


def test_relative_positions_need_no_more_memory_than_the_logits():
    positions = RelativePositions(14, 14, 20)
    queries = torch.randn(2, 4, 196, 20)
    with Largest() as largest:
        logits = positions(queries)
    assert largest.numbers <= logits.numel()


def looped_attention(layer, x, carry, alpha, beta):
    """Attention over a picture (channels, height, width), by the equations: output and carry."""
    weights, (_, height, width) = as_numpy(layer), x.shape
    projected = weights["qkv.weight"][:, :, 0, 0] @ x.reshape(len(x), -1)
    parts = np.split(projected, np.cumsum(layer.widths)[:2])
    # (heads, pixels, depth) each
    queries, keys, values = (
        one.reshape(layer.heads, -1, height * width).swapaxes(1, 2) for one in parts
    )
    logits = queries @ keys.swapaxes(1, 2)
    logits += looped_positions(queries, weights["positions.height"], weights["positions.width"])
    logits /= math.sqrt(queries.shape[2])
    everything = np.ones(logits.shape[1:], dtype=bool)
    convolution = (weights[f"transform.convolution.{name}"] for name in ("weight", "bias"))
    evolved = evolve_map(logits, carry, everything, *convolution, "encoder", alpha, beta)
    attended = (
        (masked_softmax(evolved, everything) @ values).swapaxes(1, 2).reshape(-1, height * width)
    )
    mixed = weights["out.weight"][:, :, 0, 0] @ attended
    return mixed.reshape(-1, height, width), evolved


def looped_pooling(x):
    """Means of 3 x 3 at every other place, of what is inside the picture."""
    channels, height, width = x.shape
    made = np.zeros((channels, (height + 1) // 2, (width + 1) // 2))
    for c, i, j in np.ndindex(made.shape):
        rows, columns = (slice(max(2 * at - 1, 0), 2 * at + 2) for at in (i, j))
        made[c, i, j] = x[c, rows, columns].mean()
    return made


@pytest.mark.parametrize(
    ("stride", "pooled", "size", "carried"),
    [(1, False, (3, 3), True), (2, False, (3, 2), False), (2, True, (4, 4), True)],
)
def test_augmented_convolutions_equal_loops(stride, pooled, size, carried):
    alpha, beta = 0.3, 0.4
    layer = AugmentedConvolution(
        *(3, 6, 4, 2, 2, size, stride, pooled),
        **{"alpha": alpha, "beta": beta, "layer": int(carried), "num_layers": 2},
    ).double()
    x = torch.randn(2, 3, size[0] * stride, size[1] * stride, dtype=torch.float64)
    pixels = layer.map_size[0] * layer.map_size[1]
    carry = torch.randn(2, 2, pixels, pixels, dtype=torch.float64) if carried else None
    with torch.no_grad():
        found, found_carry, _ = layer(x, carry)
    assert found.shape == (2, 6, *size)
    convolved = torch.nn.functional.conv2d(x, layer.conv.weight, stride=stride, padding=1)
    torch.testing.assert_close(found[:, :4], convolved)
    for b in range(2):
        given = x[b].numpy()
        for _ in range((stride == 2) + pooled):
            given = looped_pooling(given)
        below = None if carry is None else carry[b].numpy()
        attended, evolved = map(
            torch.from_numpy, looped_attention(layer, given, below, alpha, beta)
        )
        torch.testing.assert_close(found_carry[b], evolved)
        if pooled:
            attended = torch.nn.functional.interpolate(
                attended[None], size, mode="bilinear", align_corners=False
            )[0]
        torch.testing.assert_close(found[b, 4:], attended)


def test_without_evolution_it_is_the_aa_resnet_whose_weights_load():
    plain = AugmentedResNet(replace(SMALL, variant="plain", options={})).eval()
    neutral = replace(SMALL, options={"alpha": 0.0, "beta": 0.0})
    evolving = AugmentedResNet(neutral).eval()
    missing = evolving.load_state_dict(plain.state_dict(), strict=False)
    assert not missing.unexpected_keys
    assert all(".transform." in name for name in missing.missing_keys)
    picture = torch.randn(3, 1, 8, 8)
    torch.testing.assert_close(evolving(picture), plain(picture))


def test_every_parameter_gets_a_gradient():
    torch.manual_seed(2)
    network = AugmentedResNet(SMALL)
    network(torch.randn(8, 1, 8, 8)).pow(2).sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 1e-7, name


def carries(network, picture):
    """For each attention in turn, whether it was given a carry."""
    given = []
    for module in network.modules():
        if isinstance(module, AugmentedConvolution):
            module.register_forward_pre_hook(lambda _, inputs: given.append(inputs[1] is not None))
    with torch.no_grad():
        network(picture)
    return given


def test_carries_go_between_maps_of_equal_size_and_begin_anew_elsewhere():
    # Two attentions over 8 x 8 pixels, four over 4 x 4.
    assert carries(AugmentedResNet(SMALL).eval(), torch.randn(1, 1, 8, 8)) == [
        *(False, True),
        *(False, True, True, True),
    ]
    # At 224 pixels, those of 28 x 28 are pooled to 14 x 14: one stack with the next stage's.
    network = resnet(34, size=224)
    sizes = [m.map_size for m in network.modules() if isinstance(m, AugmentedConvolution)]
    assert sizes == [(14, 14)] * 20 + [(7, 7)] * 6


def test_probabilities_sum_to_one():
    network = AugmentedResNet(SMALL).eval()
    logits, maps = network(torch.randn(2, 1, 8, 8), need_probs=True)
    assert logits.shape == (2, 5)
    assert [one.shape[-1] for one in maps] == [64, 64, 16, 16, 16, 16]
    for one in maps:
        torch.testing.assert_close(one.sum(-1), torch.ones(one.shape[:-1]))


@pytest.mark.thorough
def test_compiled_whole_it_gives_the_same():
    network = AugmentedResNet(SMALL).eval()
    picture = torch.randn(2, 1, 8, 8)
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(picture), network(picture))


def test_settings_come_back_from_json():
    settings = resnet_settings(101, classes=10, options={"kernel_size": 5})
    assert settings.options == {"alpha": 0.7, "beta": 1.0, "kernel_size": 5}
    assert resnets.from_json(resnets.as_json(settings)) == settings


def test_widths_by_parts_of_the_channels():
    """Bello et al.'s own numbers, which leave the parameters of Table 9 to the digit."""
    own = resnets.attention_widths((64, 128, 256, 512), 8, keys=0.2, values=0.1, least=20)
    assert own == (None, (160, 16), (160, 24), (160, 48))
    for depth, millions in ((50, 25.8), (101, 45.4)):
        with FakeTensorMode():
            network = resnet(depth, "aa", attention=own)
        parameters = sum(parameter.numel() for parameter in network.parameters())
        assert round(parameters / 1e6, 1) == millions


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: resnet(18), "depth must be one of 34, 50, 101, 152, not 18"),
        (lambda: resnet(34, "ea"), "kind must be plain, aa or ea-aa, not 'ea'"),
        (lambda: resnets.from_json({"wings": 2}), "settings of no ResNet: .*wings"),
        (
            lambda: AugmentedResNet(SMALL)(torch.randn(1, 1, 10, 10)),
            "maps are 10 x 10 pixels, and were built for 8 x 8",
        ),
        *(
            (lambda changes=changes: AugmentedResNet(replace(SMALL, **changes)), reason)
            for changes, reason in (
                ({"block": "round"}, "block must be one of basic, bottleneck, not 'round'"),
                ({"layers": (1, 2)}, "layers must have four entries"),
                ({"attention": (None, (4, 3), None, None)}, r"attention \(4, 3\): keys and values"),
                ({"attention": (None, (4, 8), None, None)}, "values fewer than the stage's 8 ch"),
                ({"options": {"alpha": 2.0}}, "alpha must be"),
            )
        ),
    ],
)
def test_what_cannot_be_built_is_named(made, reason):
    with pytest.raises(UserError, match=reason):
        made()
