"""Adaptive layers are written whole, whatever the memory held before."""

import pytest
import torch
from fairseq.modules import AdaptiveInput, AdaptiveSoftmax

import ea_fairseq.plugin  # noqa: F401  (replaces fairseq's)


@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, 3e38])
def test_memory_that_is_no_number_is_no_part_of_them(garbage, monkeypatch):
    monkeypatch.setattr(torch, "FloatTensor", lambda size: torch.full((size,), garbage))
    read = AdaptiveInput(20, 1, 8, 2.0, 8, [6, 12])
    written = AdaptiveSoftmax(20, 8, [6, 12], 0.0, adaptive_inputs=read, tie_proj=True)
    for layer in (read, written):
        found = [v for name, v in layer.state_dict().items() if name.endswith("_float_tensor")]
        assert [value.tolist() for value in found] == [[0.0]]
