"""Attention beside a convolution: what holds beside the properties of test_ea_transformer.py."""

from types import SimpleNamespace

import pytest
import torch
from small_models import build

from ea_fairseq.checkpoints.model_identity import refuse_another_variant
from ea_fairseq.errors import UserError
from ea_fairseq.inference.attention_maps import attention_maps
from ea_fairseq.models.recorded_maps import recorded_self_attention

ARCHITECTURES = {
    "conv_transformer_lite": ["plain"] * 3,
    "pa_conv_transformer_lite": ["predictive", "plain", "plain"],
    "ea_conv_transformer_lite": ["evolving"] * 3,
}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_architectures_are_the_papers(arch):
    """Appendix B.1: half of the width and 4 heads; kernels of Lite Transformer."""
    model = build(arch, sizes={})
    for side in (model.encoder, model.decoder):
        branches = [layer.self_attn for layer in side.layers]
        assert [b.attention.embed_dim for b in branches] == [80] * 6
        assert [b.attention.num_heads for b in branches] == [4] * 6
        kernels = [b.convolution.convolution for b in branches]
        assert [k.kernel_size for k in kernels] == [3, 7, 15, 31, 31, 31]
        ahead = [k.kernel_size - 1 - k.padding_l for k in kernels]
        assert ahead == ([0] * 6 if side is model.decoder else [1, 3, 7, 15, 15, 15])
    served = (
        model.encoder.layers[0].self_attn.attention,
        model.decoder.layers[0].self_attn.attention,
        model.decoder.layers[0].encoder_attn,
    )
    names = {"plain": "PlainLogits", "predictive": "PredictiveLogits", "evolving": "EvolvingLogits"}
    expected = [names[variant] for variant in ARCHITECTURES[arch]]
    assert [type(attention.transform).__name__ for attention in served] == expected


def test_parameters_equal_a_count_by_hand():
    model = build("conv_transformer_lite", sizes={})
    attention, whole = 4 * (80 * 80 + 80), 4 * (160 * 160 + 160)
    convolutions = 6 * (80 * 160 + 160 + 80 * 80 + 80) + 4 * (3 + 7 + 15 + 3 * 31)
    for side in (model.encoder, model.decoder):
        count = sum(p.numel() for layer in side.layers for p in layer.self_attn.parameters())
        assert count == 6 * attention + convolutions
    crosses = (p for layer in model.decoder.layers for p in layer.encoder_attn.parameters())
    assert sum(p.numel() for p in crosses) == 6 * whole


def test_product_quantization_reaches_its_linear_layers(monkeypatch):
    """Their weights stayed whole in training while all others had blocks left out."""
    model = build("conv_transformer_lite", quant_noise_pq=0.5, quant_noise_pq_block_size=4)
    for side in (model.encoder, model.decoder):
        branch = side.layers[0].self_attn.convolution
        for linear in (branch.gated, branch.out_proj):
            before = linear.weight.detach().clone()
            linear.train()(torch.ones(1, linear.in_features))
            blocks = linear.weight.view(linear.out_features, -1, 4).eq(0).all(dim=-1)
            assert 0.2 < blocks.float().mean() < 0.8 and not before.eq(0).any()


def test_attention_maps_are_those_of_the_attention_branch():
    model = build("ea_conv_transformer_lite").eval()
    maps = attention_maps(model, [5, 6, 2], [7, 2])
    assert [tuple(layer.probs.shape) for layer in maps["encoder"]] == [(4, 3, 3)] * 3
    assert [tuple(layer.probs.shape) for layer in maps["decoder"]] == [(4, 2, 2)] * 3
    with recorded_self_attention(model.decoder) as recorded:
        model(torch.tensor([[5, 6, 2]]), None, torch.tensor([[2, 7]]))
    for probs, layer in zip(recorded, maps["decoder"], strict=True):
        torch.testing.assert_close(probs[:, 0], layer.probs)


def test_a_checkpoint_without_the_branch_is_refused():
    with_it = SimpleNamespace(ea_variant="plain", ea_branch="convolution")
    without = SimpleNamespace(ea_variant="plain")
    with pytest.raises(UserError, match="is of --ea-branch none, and convolution was asked for"):
        refuse_another_variant(without, with_it, "a.pt")
    with pytest.raises(UserError, match="is of --ea-branch convolution, and none was asked for"):
        refuse_another_variant(with_it, without, "a.pt")
