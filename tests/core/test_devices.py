"""Every tensor that a model makes lies where its numbers are, or on the CPU because it says so.

Here the device for tensors without one has no numbers at all: whatever meets them from there fails,
as what is left on the CPU fails on a GPU.
"""

import contextlib

import pytest
import torch
from small_models import EOS, TINY, build_strong, padded, sentences, settings_of

from ea_fairseq.attention.variants import VARIANTS
from ea_fairseq.kernels.cpp.library import torch_alone

SIZES = {**TINY, "encoder_layers": 2, "decoder_layers": 2}


@pytest.mark.parametrize("alone", [True, False], ids=["torch alone", "compiled"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_training_and_decoding_make_nothing_elsewhere(variant, alone):
    (_, options), *_ = settings_of(variant)
    model = build_strong(sizes=SIZES, **options).float()
    sources, targets = padded(sentences([3, 5], 1, last=EOS), True), padded(sentences([4, 2], 2))
    hypotheses = padded(sentences([3] * 4, 3))
    model.decoder.set_beam_size(2)
    orders = torch.tensor([0, 0, 1, 1]), torch.tensor([1, 0, 3, 3]), torch.tensor([2, 3])
    with torch_alone() if alone else contextlib.nullcontext(), torch.device("meta"):
        model.train()(sources, None, targets)[0].sum().backward()
        model.eval()
        state = {}
        with torch.no_grad():
            encoded = model.encoder(sources)
            for step, order in enumerate(orders):
                encoded = model.encoder.reorder_encoder_out(encoded, order)
                if step:
                    model.decoder.reorder_incremental_state_scripting(state, order)
                prefix = hypotheses[: len(order), : step + 1]
                scores, _ = model.decoder(prefix, encoder_out=encoded, incremental_state=state)
    assert scores.device.type == "cpu" and scores.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
