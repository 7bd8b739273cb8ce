"""The attention class: fairseq's with no transform, row by row, reordered, at extremes."""

import pytest
import torch
from fairseq.modules import MultiheadAttention

from ea_fairseq.attention.variants import VARIANTS, LogitTransform, Place
from ea_fairseq.models.multihead_attention import TransformedAttention

DIM, HEADS = 16, 4


def attention(transform=None, seed=0, **kwargs):
    torch.manual_seed(seed)
    kwargs = kwargs or {"self_attention": True}
    module = TransformedAttention(DIM, HEADS, transform or LogitTransform(), **kwargs)
    return module.double().eval()


def evolving(kind, kernel_size=3):
    torch.manual_seed(3)
    variant = VARIANTS["evolving"]
    options = variant.options(alpha=0.3, beta=0.6, kernel_size=kernel_size, skip=kind)
    transform = variant.build(options, Place(kind, HEADS, DIM // HEADS, 0, 1))
    with torch.no_grad():
        for parameter in transform.parameters():
            parameter.normal_()
    return transform


def test_without_a_transform_it_is_fairseqs():
    ours = attention()
    theirs = MultiheadAttention(DIM, HEADS, self_attention=True).double().eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(5, 3, DIM, dtype=torch.float64)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, :2] = padding[2, 3:] = True
    expected, expected_probs = theirs(
        x, x, x, key_padding_mask=padding, need_head_weights=True, static_kv=True
    )
    visible = ~padding[:, None, None, :]
    output, probs, carry = ours(x, x, visible, need_weights=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(probs.float(), expected_probs)  # (heads, batch, tgt_len, src_len)
    assert carry is None


@pytest.mark.parametrize("shared_keys", [False, True])
@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_decoding_equals_full_pass_while_hypotheses_move(kernel_size, shared_keys):
    """Each hypothesis changes place at random and sentences leave, as in beam search."""
    module = attention(evolving("encoder-decoder", kernel_size), encoder_decoder_attention=True)
    beam, sentences, steps = 3, 4, 7
    if shared_keys:
        module.set_beam_size(beam)
    source = torch.randn(6, sentences, DIM, dtype=torch.float64)
    padding = torch.zeros(sentences, 6, dtype=torch.bool)
    padding[1, :2] = True
    queries = torch.randn(steps, sentences * beam, DIM, dtype=torch.float64)
    state, generator = {}, torch.Generator().manual_seed(5)
    source = source.repeat_interleave(beam, dim=1)
    padding = padding.repeat_interleave(beam, dim=0)
    for t in range(steps):
        if t:
            remaining = queries.size(1) // beam
            kept = list(range(remaining))
            if t in (2, 4):
                kept.pop(1)  # a finished sentence leaves
            order = torch.cat(
                [
                    sentence * beam + torch.randint(beam, (beam,), generator=generator)
                    for sentence in kept
                ]
            )
            module.reorder_incremental_state(state, order)
            queries, source, padding = queries[:, order], source[:, order], padding[order]
        visible = ~padding[:, None, None, :]
        result, _, row = module(queries[t : t + 1], source, visible, incremental_state=state)
        full, _, carry = module(queries[: t + 1], source, visible.expand(-1, -1, t + 1, -1))
        torch.testing.assert_close(result[0], full[t])
        torch.testing.assert_close(row[:, :, 0], carry[:, :, t])


def test_a_query_that_sees_nothing_gives_zeros_and_finite_gradients():
    module = attention(evolving("encoder"))
    x = torch.randn(4, 2, DIM, dtype=torch.float64, requires_grad=True)
    padding = torch.zeros(2, 4, dtype=torch.bool)
    padding[0] = True  # nothing but padding
    visible = ~(padding[:, None, :, None] | padding[:, None, None, :])
    output, probs, _ = module(x, x, visible, need_weights=True)
    assert (probs[:, 0] == 0).all()
    torch.testing.assert_close(output[:, 0], module.out_proj.bias.expand(4, -1))
    output.sum().backward()
    assert x.grad.isfinite().all() and x.grad.ne(0).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_logits_do_not_overflow_in_half_precision(dtype):
    module = attention(evolving("encoder")).to(dtype)
    with torch.no_grad():
        module.q_proj.weight.copy_(torch.eye(DIM) * 50)
        module.k_proj.weight.copy_(torch.eye(DIM) * 50)
    x = torch.randn(5, 2, DIM, generator=torch.Generator().manual_seed(0)).to(dtype)
    x.requires_grad_()
    output, probs, carry = module(x, x, None, need_weights=True)
    assert carry.abs().max() > 1e4 and carry.dtype == torch.float32
    assert output.dtype == dtype and output.isfinite().all()
    torch.testing.assert_close(probs.sum(-1), torch.ones(HEADS, 2, 5))
    output.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in [x, *module.parameters()])
