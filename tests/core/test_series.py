"""Networks for time series: equations as loops, padding, gradients, files, compilation."""

import json
import math
import re

import numpy as np
import pytest
import reference
import score_references
import torch
from safetensors.torch import load_file, save_file

from ea_fairseq.attention import VARIANTS
from ea_fairseq.attention.variants import Place
from ea_fairseq.errors import UserError
from ea_fairseq.networks.series import (
    Schedule,
    SeriesConfig,
    SeriesModel,
    fit,
    outputs_of,
)
from ea_fairseq.networks.series.data import as_series, padded
from ea_fairseq.networks.series.layers import StepBatchNorm

CHANNELS, LONGEST, CLASSES, HEADS = 3, 11, 4, 4
LENGTHS = (7, 11, 1, 4)
ENCODERS = {
    "ea_dc": {"attention": {"p": 0.25, "alpha": 0.3, "beta": 0.4}},
    "dc": {"attention": {"p": 0.25, "variant": "plain"}},
    "transformer": {"attention": {"p": 1.0, "variant": "plain"}},
    "dilated": {"attention": {"p": 0.0, "variant": "plain"}},
    "lstm": {"encoder": "lstm"},
    "gru": {"encoder": "gru"},
    "resnet": {"encoder": "resnet"},
}


def with_effect(variant, case):
    """A variant's case, which is for a translation model, without what changes nothing here."""
    idle = variant.options(**case).without_effect(["encoder"])
    return {name: value for name, value in case.items() if name not in idle}


OF_VARIANTS = [
    pytest.param(name, with_effect(variant, case), id=f"{name}-{number}")
    for name, variant in VARIANTS.items()
    if "encoder" in variant.serves
    for number, case in enumerate(variant.cases)
]


def make_model(encoder="dc", attention=None, outputs=CLASSES, **settings):
    """In evaluation mode, float64; every parameter and buffer is a number of its own."""
    torch.manual_seed(0)
    if encoder == "dc":
        settings["attention"] = {"num_heads": HEADS} | (attention or {})
    config = SeriesConfig(CHANNELS, LONGEST, outputs, encoder, 8, **settings)
    model = SeriesModel(config).double().eval()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name.endswith(("norm1.bias", "norm2.bias", "running_mean", "mean")):
                value.normal_()
            elif name.endswith(("running_var", "norm1.weight", "norm2.weight", "deviation")):
                value.uniform_(0.5, 2.0)
    return model


def some_series(lengths=LENGTHS, seed=0):
    generator = np.random.default_rng(seed)
    drawn = [generator.normal(size=(CHANNELS, length)) for length in lengths]
    return [one.astype(np.float32) for one in drawn]


def batch(series):
    x, padding = padded(series)
    return x.double(), padding


class Loops:
    """The DC-Transformer and its heads on one series (time, channels), equation by equation."""

    def __init__(self, model, variant, options, p):
        self.params = {
            name: value.numpy().astype(np.float64) for name, value in model.state_dict().items()
        }
        self.variant, self.options, self.p = variant, options, p
        self.layers = len(model.encoder.layers)

    def linear(self, x, name):
        return x @ self.params[f"{name}.weight"].T + self.params[f"{name}.bias"]

    def batch_norm(self, x, name):
        mean, variance = (self.params[f"{name}.running_{what}"] for what in ("mean", "var"))
        normal = (x - mean) / np.sqrt(variance + 1e-5)
        return normal * self.params[f"{name}.weight"] + self.params[f"{name}.bias"]

    def dilated(self, x, name, dilation):
        weight, bias = self.params[f"{name}.weight"], self.params[f"{name}.bias"]
        result = np.tile(bias, (len(x), 1))
        for t in range(len(x)):
            for entry in range(3):
                step = t + (entry - 1) * dilation
                if 0 <= step < len(x):
                    result[t] += weight[:, :, entry] @ x[step]
        return result

    def attention(self, x, name, layer, carry):
        length, width = x.shape
        queries, keys, values = (
            self.linear(x, f"{name}.{which}_proj").reshape(length, HEADS, -1).transpose(1, 0, 2)
            if f"{name}.{which}_proj.weight" in self.params
            else None
            for which in "qkv"
        )
        logits = score_references.logits("product", queries, keys, {}, HEADS, length, length)
        start = f"{name}.transform."
        params = {key[len(start) :]: v for key, v in self.params.items() if key.startswith(start)}
        place = Place("encoder", HEADS, width // HEADS, layer, self.layers)
        seen = np.ones((length, length), dtype=bool)
        z, probs, output = reference.attention(
            *(self.variant, logits, carry, seen, params, place, self.options),
            (queries, keys, values),
        )
        joined = output.transpose(1, 0, 2).reshape(length, width)
        return self.linear(joined, f"{name}.out_proj"), z, probs

    def encode(self, x):
        x = self.linear(x, "encoder.projection")
        x = x * math.sqrt(x.shape[1]) + self.params["encoder.positions"][: len(x)]
        carry = None
        self.maps = []
        for layer in range(self.layers):
            name = f"encoder.layers.{layer}"
            parts = []
            if self.p > 0:
                attended, carry, probs = self.attention(x, f"{name}.attention", layer, carry)
                parts.append(attended)
                self.maps.append(probs)
            if self.p < 1:
                parts.append(self.dilated(x, f"{name}.convolution", 2**layer))
            x = self.batch_norm(x + np.concatenate(parts, axis=1), f"{name}.norm1")
            hidden = np.maximum(self.linear(x, f"{name}.linear1"), 0)
            x = self.batch_norm(x + self.linear(hidden, f"{name}.linear2"), f"{name}.norm2")
        return x

    def outputs(self, series):
        states = self.encode((series - self.params["mean"]) / self.params["deviation"])
        flat = np.zeros((LONGEST, states.shape[1]))
        for t, row in enumerate(states):
            for i, value in enumerate(row):
                flat[t, i] = value * 0.5 * (1 + math.erf(value / math.sqrt(2)))  # GELU
        return self.linear(flat.reshape(-1), "head")


def assert_equal_to_loops(model, variant, p, **options):
    """Outputs of a padded batch, and the attention maps, which pictures show."""
    loops = Loops(model, variant, VARIANTS[variant].options(**options), p)
    series = some_series()
    x, padding = batch(series)
    outputs = model(x, padding).detach().numpy()
    maps = model.encoder.attention_maps(model.standardised(x, padding), padding)
    for number, one in enumerate(series):
        np.testing.assert_allclose(outputs[number], loops.outputs(one.T), rtol=1e-9, atol=1e-9)
        steps = one.shape[1]
        for found, wanted in zip(maps, loops.maps, strict=True):
            found = found[number, :, :steps, :steps].numpy()
            np.testing.assert_allclose(found, wanted, atol=1e-9)


@pytest.mark.parametrize("variant, options", OF_VARIANTS)
def test_every_variant_equals_loops_and_is_read_as_it_was_saved(variant, options, tmp_path):
    model = make_model(attention={"p": 0.25, "variant": variant, **options})
    assert_equal_to_loops(model, variant, 0.25, **options)
    model.float().save(tmp_path / "model")
    loaded = SeriesModel.load(tmp_path / "model").state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_outputs_equal_loops_at_both_ends_of_p(p):
    model = make_model(attention={"p": p, "alpha": 0.3, "beta": 0.4}, num_blocks=3)
    assert_equal_to_loops(model, "evolving", p, alpha=0.3, beta=0.4)


def test_the_outputs_of_the_attention_and_of_the_convolution_are_p_d_and_the_rest():
    layer = make_model(attention={"p": 0.25}).encoder.layers[1]
    shapes = [one.weight.shape for one in (layer.attention.out_proj, layer.convolution)]
    assert shapes == [(2, 8), (6, 8, 3)] and layer.convolution.dilation == (2,)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_series_gives_the_same_alone_and_in_any_batch(name):
    model = make_model(**ENCODERS[name])
    series = some_series()
    together = model(*batch(series))
    # Whatever stands at padded steps.
    x, padding = batch(series)
    x[padding] = 1e3
    torch.testing.assert_close(model(x, padding), together, rtol=0, atol=1e-10)
    for number, one in enumerate(series):
        alone = model(*batch([one]))[0]
        torch.testing.assert_close(alone, together[number], rtol=0, atol=1e-10)
        others = model(*batch([series[1], one, series[2]]))[1]
        torch.testing.assert_close(others, together[number], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ENCODERS)
def test_training_reads_nothing_from_padding(name):
    """Batch statistics, loss and gradients are the same with more padding, whatever is in it."""
    series = some_series((7, 10, 2, 4))
    results = []
    for length, filling in ((10, 0.0), (11, 1e3)):
        model = make_model(**ENCODERS[name], dropout=0.0).train()
        x, padding = padded(series, length)
        x[padding] = filling
        masked = torch.zeros(4, 11, CHANNELS, dtype=torch.bool)
        masked[:, ::3, 1] = True
        x = x.double()
        loss = model(x, padding).square().sum()
        loss = loss + model.reconstruction_loss(x, padding, masked[:, :length])
        loss.backward()
        gradients = {key: value.grad for key, value in model.named_parameters()}
        results.append(({"loss": loss.detach()} | gradients, dict(model.named_buffers())))
    for one, other in zip(*results, strict=True):
        for key in one:
            torch.testing.assert_close(one[key], other[key], rtol=1e-8, atol=1e-9, msg=key)


@pytest.mark.parametrize("name", ENCODERS)
def test_every_parameter_gets_a_gradient(name):
    model = make_model(**ENCODERS[name], dropout=0.0).train()
    x, padding = batch(some_series((7, 11, 5, 4, 9, 6)))
    masked = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.3
    loss = model.reconstruction_loss(x, padding, masked) + model(x, padding).square().sum()
    loss.backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, key


def test_alpha_and_beta_zero_are_the_plain_network_whose_weights_load():
    plain = make_model(attention={"variant": "plain"})
    evolving = make_model(attention={"alpha": 0.0, "beta": 0.0})
    result = evolving.load_state_dict(plain.state_dict(), strict=False)
    assert not result.unexpected_keys
    assert all(".transform.convolution." in key for key in result.missing_keys)
    x, padding = batch(some_series())
    torch.testing.assert_close(evolving(x, padding), plain(x, padding), rtol=0, atol=1e-12)
    other = make_model(attention={"alpha": 0.5, "beta": 0.3})
    other.load_state_dict(plain.state_dict(), strict=False)
    assert (other(x, padding) - plain(x, padding)).abs().max() > 1e-3


def test_reconstruction_loss_is_over_masked_unpadded_values_alone():
    """Equations 7 and 8 as loops; masked values are 0 for the encoder."""
    model = make_model(attention={"p": 0.25, "alpha": 0.3, "beta": 0.4})
    loops = Loops(model, "evolving", VARIANTS["evolving"].options(alpha=0.3, beta=0.4), 0.25)
    series = some_series()
    x, padding = batch(series)
    masked = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.4
    total, count = 0.0, 0
    for number, one in enumerate(series):
        hidden = masked[number, : one.shape[1]].numpy()
        values = (one.T - loops.params["mean"]) / loops.params["deviation"]
        rebuilt = loops.linear(loops.encode(np.where(hidden, 0.0, values)), "reconstruction")
        for t, c in np.argwhere(hidden):
            total += (rebuilt[t, c] - values[t, c]) ** 2
            count += 1
    assert 0 < count < masked.sum()
    found = model.reconstruction_loss(x, padding, masked).item()
    assert found == pytest.approx(total / count, rel=1e-9)
    assert model.reconstruction_loss(x, padding, torch.zeros_like(masked)) == 0


def test_batch_norm_equals_torchs_over_the_unpadded_steps():
    torch.manual_seed(0)
    x = torch.randn(4, 9, 5, dtype=torch.float64)
    padding = torch.arange(9) >= torch.tensor([9, 3, 1, 6])[:, None]
    ours, theirs = StepBatchNorm(5).double(), torch.nn.BatchNorm1d(5).double()
    with torch.no_grad():
        ours.weight.normal_()
        ours.bias.normal_()
    theirs.load_state_dict(ours.state_dict())
    for _ in range(2):
        first, second = x.clone().requires_grad_(), x[~padding].clone().requires_grad_()
        found, wanted = ours(first, padding)[~padding], theirs(second)
        torch.testing.assert_close(found, wanted)
        weights = torch.randn_like(found)
        (found * weights).sum().backward()
        (wanted * weights).sum().backward()
        torch.testing.assert_close(first.grad[~padding], second.grad)
        assert not first.grad[padding].any()
    for (name, one), other in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(one, other, msg=name)
    everything = torch.zeros_like(padding)
    torch.testing.assert_close(ours(x, everything), ours(x))


def test_channels_are_standardised_by_unpadded_steps():
    series = some_series()
    series[0][1] = series[1][1] = series[2][1] = series[3][1] = 4.0  # nothing varies
    model = make_model(outputs=1)
    x, padding = batch(series)
    model.standardise_by(x, padding, torch.tensor([1.0, 3.0, 5.0, 7.0]))
    values = np.concatenate(series, axis=1)
    np.testing.assert_allclose(model.mean, values.mean(1), atol=1e-6)
    np.testing.assert_allclose(model.deviation[0], values[0].std(), atol=1e-6)
    assert model.deviation[1] == 1
    assert (model.target_mean, model.target_deviation) == (4.0, math.sqrt(5))


def fitted(outputs=2, classes=None, **schedule):
    torch.manual_seed(0)
    attention = {"num_heads": HEADS, "alpha": 0.3, "beta": 0.4}
    model = SeriesModel(SeriesConfig(CHANNELS, 14, outputs, embed_dim=8, attention=attention))
    series = some_series((7, 10, 2, 4, 9, 8, 3, 5))
    targets = torch.tensor([0, 1] * 4) if outputs > 1 else torch.arange(8.0)
    for number, one in enumerate(series):
        one[0] += 2.0 * (number % 2)
    fit(model, series, targets, Schedule(**{"batch_size": 4, **schedule}), seed=1)
    return model, series, targets


def test_fit_learns_both_tasks_and_repeats_itself():
    model, series, targets = fitted(pretrain_epochs=2, epochs=25)
    assert not model.training
    assert (outputs_of(model, series).argmax(1) == targets).all()
    again = fitted(pretrain_epochs=2, epochs=25)[0]
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    model, series, targets = fitted(outputs=1, pretrain_epochs=0, epochs=60, learning_rate=1e-2)
    found = outputs_of(model, series)[:, 0] * model.target_deviation + model.target_mean
    assert (found - targets).abs().mean() < 1.0  # their deviation is 2.3


def test_what_does_not_fit_a_model_is_refused():
    model = SeriesModel(SeriesConfig(CHANNELS, LONGEST, 2, embed_dim=8))
    series, targets = some_series((4, 5)), torch.tensor([0, 1])
    for given, reason in (
        (targets.float(), "are numbers (float), and the model has 2 outputs"),
        (torch.tensor([0, 1, 1]), "(3,) for 2 series"),
    ):
        with pytest.raises(UserError, match=re.escape(f"targets: {reason}")):
            fit(model, series, given, Schedule(epochs=1), seed=1)
    # One channel was taken for each of them.
    with pytest.raises(UserError, match=f"series of 1 channels; the model has {CHANNELS}"):
        outputs_of(model, [one[:1] for one in series])


def test_pretraining_lowers_the_reconstruction_loss_and_leaves_the_head():
    told = []
    torch.manual_seed(0)
    model = SeriesModel(SeriesConfig(CHANNELS, LONGEST, 2, embed_dim=8, dropout=0.0))
    head = model.head.weight.clone()
    series, targets = some_series(LENGTHS * 6), torch.tensor([0, 1] * 12)

    def tell(phase, epoch, loss):
        told.append((phase, epoch, loss))
        if phase == "pre-training":
            assert torch.equal(head, model.head.weight)

    fit(model, series, targets, Schedule(pretrain_epochs=40, epochs=1), 1, tell)
    assert [(phase, epoch) for phase, epoch, _ in told] == [
        *(("pre-training", epoch) for epoch in range(1, 41)),
        ("training", 1),
    ]
    losses = [loss for phase, _, loss in told if phase == "pre-training"]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


def test_steps_that_training_never_saw_add_nothing():
    """The model takes 14 steps, training has up to 10: the head reads nothing of the other four."""
    model, series, _ = fitted(pretrain_epochs=0, epochs=2)
    weights = model.head.weight.view(2, 14, 8)
    assert not weights[:, 10:].any() and weights[:, :10].all()
    assert torch.isfinite(outputs_of(model, some_series((14,)))).all()
    wanted = outputs_of(model, series, batch_size=1)
    torch.testing.assert_close(outputs_of(model, series, batch_size=5), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ENCODERS)
def test_saved_models_say_the_same(tmp_path, name):
    model = make_model(**ENCODERS[name]).float()
    model.save(tmp_path / "model")
    loaded = SeriesModel.load(tmp_path / "model")
    assert loaded.config == model.config
    series = some_series()
    assert torch.equal(outputs_of(loaded, series), outputs_of(model, series))


def test_files_that_are_no_model_are_refused_in_one_line(tmp_path):
    def refused(message):
        with pytest.raises(UserError, match=message):
            SeriesModel.load(tmp_path / "model")

    refused("no such file")
    make_model().float().save(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"cut")
    refused(r"model\.safetensors: cannot be read")
    config = tmp_path / "model" / "config.json"
    config.write_text('{"format": "another"}')
    refused(r"config\.json: is no model of series")
    config.unlink()
    config.mkdir()
    refused(r"config\.json: cannot be read")


@pytest.mark.parametrize(
    "config, others",
    [
        ('{"model_type": "bert"}', ["model.safetensors"]),
        ("no JSON", []),
        ("", ["thesis.tex"]),
        ("", ["checkpoints/1.pt"]),
        (None, ["thesis.tex"]),
    ],
)
def test_only_a_saved_model_alone_is_replaced(tmp_path, config, others):
    model, folder, link = make_model().float(), tmp_path / "model", tmp_path / "link"
    model.save(folder)
    model.save(folder)
    if config is None:
        (folder / "config.json").unlink()
    elif config:
        (folder / "config.json").write_text(config)
    for name in others:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")
    link.symlink_to(folder)
    before = {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    for place in (folder, link):
        with pytest.raises(UserError, match=f"^{place}: is there already and is no model"):
            model.save(place)
    assert {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()} == before


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"channels": -1}, "channels must be at least 1, not -1"),
        ({"channels": 2.0}, "channels must be a whole number, not 2.0"),
        ({"max_len": 10**18}, "max_len must be at most 1,000,000"),
        (
            {"max_len": 10**6},
            r"encoder.positions is \(11, 8\) in the checkpoint and \(1000000, 8\)",
        ),
        ({"embed_dim": 10**6}, "does not fit config.json: .* parameters differ"),
        ({"num_blocks": 40}, "num_blocks must be at most 15"),
        ({"encoder": "rnn"}, "encoder must be one of dc, lstm, gru, resnet, not 'rnn'"),
        ({"classes": ["a", "b"]}, "classes must be 4 labels"),
        ({"classes": ["a", "b", "c", "a"]}, "classes must be 4 labels"),
        ({"classes": "abcd"}, "classes must be a list of labels, not 'abcd'"),
        ({"classes": [["a"], "b", "c", "d"]}, "classes must be a list of labels"),
        ({"classes": [math.nan, 1, 2, 3]}, "classes must be a list of labels"),
        ({"attention": [1]}, "do not fit"),
        ({"attention": {"variant": ["plain"]}}, "variant must be a name"),
        ({"attention": {"layer": 1}}, "do not fit"),
    ],
)
def test_settings_of_a_file_that_do_not_fit_are_named(tmp_path, settings, message):
    make_model().float().save(tmp_path / "m")
    file = tmp_path / "m" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    with pytest.raises(UserError, match=message) as raised:
        SeriesModel.load(tmp_path / "m")
    assert str(tmp_path / "m") in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("head.weight", math.nan, "head.weight has values that are NaN or infinite"),
        ("mean", math.inf, "mean has values that are NaN or infinite"),
        ("deviation", 0.0, "deviation has values that are not above 0"),
        ("target_deviation", -1.0, "target_deviation has values that are not above 0"),
        ("deviation", None, "does not fit config.json: the checkpoint lacks deviation"),
    ],
)
def test_weights_of_a_file_that_cannot_be_used_are_named(tmp_path, name, value, message):
    make_model().float().save(tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    weights = load_file(file)
    if value is None:
        del weights[name]
    else:
        weights[name].flatten()[:1] = value
    save_file(weights, file)
    with pytest.raises(UserError, match=f"^{file}: {message}$"):
        SeriesModel.load(tmp_path / "m")


@pytest.mark.parametrize(
    "series, message",
    [
        ([np.zeros((3, 4)), np.zeros((2, 4))], "series 1 of X has 2 channels, series 0 has 3"),
        ([np.zeros((3, 4)), np.full((3, 4), np.nan)], "series 1 of X has nan .* fill gaps"),
        (np.full((2, 3, 4), 1e300), "series 0 of X has inf .* beyond float32"),
        (1e8 + np.arange(12.0).reshape(3, 1, 4), "X changes by 11 in channel 0 beside"),
        (np.ma.masked_greater(np.arange(12.0).reshape(1, 3, 4), 5), "series 0 of X has masked"),
        ([np.zeros((3, 0))], "series 0 of X has no values"),
        ([np.zeros(3)], r"series 0 of X must be numbers \(channels, time\)"),
        ([np.array([["a"]])], "series 0 of X must be numbers"),
        (np.zeros((2, 3, 4, 5)), "not an array of 4 dimensions"),
        ([], "X has no series"),
    ],
)
def test_series_that_cannot_be_used_are_named(series, message):
    with pytest.raises(UserError, match=message):
        as_series(series)


def test_diverging_losses_end_the_training_with_a_remedy():
    with pytest.raises(UserError, match="choose a learning_rate below 1e"):
        fitted(learning_rate=1e30, epochs=20, pretrain_epochs=0)


@pytest.mark.thorough
def test_torch_compile_gives_the_same():
    torch._dynamo.reset()
    model = make_model(attention={"alpha": 0.3, "beta": 0.4}).float()
    series = some_series((7, 9, 5))
    x, padding = padded(series)
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(x, padding), model(x, padding), rtol=0, atol=1e-5)
