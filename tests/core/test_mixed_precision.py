"""The numbers of a training: --amp, averaged weights, buffers that fairseq leaves as found."""

import functools
from types import SimpleNamespace

import pytest
import torch
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema import build_ema
from fairseq.modules import AdaptiveInput, AdaptiveSoftmax
from fairseq.optim import AMPOptimizer
from small_models import EOS, build, padded, sentences

import ea_fairseq.plugin  # noqa: F401  (makes the changes)


def optimizer_of(weight, monkeypatch, **options):
    """AMPOptimizer with SGD at a rate of 1, and a scaler that works on the CPU."""
    monkeypatch.setattr(
        torch.cuda.amp, "GradScaler", functools.partial(torch.amp.GradScaler, "cpu")
    )
    given = {"fp16_init_scale": 4, "amp_init_scale": 128, "amp_scale_window": None, **options}
    common = SimpleNamespace(min_loss_scale=1e-4, **given)
    wrapper = SimpleNamespace(
        optimizer=torch.optim.SGD([weight], lr=1.0), clip_grad_norm=lambda *_: weight.grad.norm()
    )
    wrapper.step, wrapper.param_groups = wrapper.optimizer.step, wrapper.optimizer.param_groups
    return AMPOptimizer(SimpleNamespace(common=common, optimizer=None), [weight], wrapper)


@pytest.mark.parametrize("clipped", [True, False])
def test_a_step_is_of_the_gradient(monkeypatch, clipped):
    weight = torch.nn.Parameter(torch.tensor([3.0]))
    optimizer = optimizer_of(weight, monkeypatch)
    optimizer.backward((2 * weight).sum())
    assert weight.grad.item() == 2 * 128
    if clipped:
        assert optimizer.clip_grad_norm(0).item() == 2
    optimizer.step()
    assert weight.item() == 1.0


def test_an_overflow_makes_no_step_and_halves_the_scale(monkeypatch):
    weight = torch.nn.Parameter(torch.tensor([3.0]))
    optimizer = optimizer_of(weight, monkeypatch)
    optimizer.backward((2 * weight).sum())
    weight.grad.fill_(torch.inf)
    optimizer.clip_grad_norm(0)
    optimizer.step()
    assert weight.item() == 3.0 and optimizer.scaler.get_scale() == 64


def test_the_scales_options_are_those_of_amp(monkeypatch):
    weight = torch.nn.Parameter(torch.tensor([3.0]))
    scaler = optimizer_of(weight, monkeypatch, amp_init_scale=16, amp_scale_window=7).scaler
    assert (scaler.get_scale(), scaler.get_growth_interval()) == (16, 7)
    assert optimizer_of(weight, monkeypatch).scaler.get_growth_interval() == 2000


@pytest.mark.parametrize("arch", ["ea_transformer_lite", "transformer_lite"])
def test_layers_are_computed_again_in_the_types_of_the_first_time(arch):
    """Outside of autocast, which fairseq leaves before it goes backward."""
    model = build(arch, dropout=0.0, checkpoint_activations=True).train()
    types = []
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.fc2.register_forward_hook(lambda *found: types.append(found[2].dtype))
    with torch.autocast("cpu", torch.bfloat16):
        source, target = sentences([5, 3], 1, last=EOS), sentences([4, 6], 2)
        scores, _ = model(padded(source, left=True), None, padded(target))
        loss = scores.float().log_softmax(-1)[..., EOS].sum()
    assert types == [torch.bfloat16] * 6
    loss.backward()
    assert types == [torch.bfloat16] * 12


def test_the_average_of_a_training_keeps_the_last_layer_norms():
    pre_norm = {"encoder_normalize_before": True, "decoder_normalize_before": True}
    model = build("transformer_lite", **pre_norm)
    ema = build_ema(model, EMAConfig(store_ema=True, ema_decay=0.75), torch.device("cpu"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    ema.step(model, updates=1)
    found = ema.get_model().state_dict()
    assert found.keys() == before.keys()
    for name, value in model.named_parameters():
        assert torch.allclose(found[name], 0.75 * before[name] + 0.25 * value), name


@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, 3e38])
def test_memory_that_is_no_number_is_no_part_of_them(garbage, monkeypatch):
    monkeypatch.setattr(torch, "FloatTensor", lambda size: torch.full((size,), garbage))
    read = AdaptiveInput(20, 1, 8, 2.0, 8, [6, 12])
    written = AdaptiveSoftmax(20, 8, [6, 12], 0.0, adaptive_inputs=read, tie_proj=True)
    for layer in (read, written):
        found = [v for name, v in layer.state_dict().items() if name.endswith("_float_tensor")]
        assert [value.tolist() for value in found] == [[0.0]]
