"""The attention class by itself: fairseq's with no transform, and a query that sees nothing."""

import torch
from fairseq.modules import MultiheadAttention

from ea_fairseq.attention.variants import VARIANTS, LogitTransform, Place
from ea_fairseq.models.multihead_attention import TransformedAttention

DIM, HEADS = 16, 4


def attention(transform):
    return TransformedAttention(DIM, HEADS, transform, self_attention=True).double().eval()


def test_without_a_transform_it_is_fairseqs():
    ours = attention(LogitTransform())
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


def test_a_query_that_sees_nothing_gives_zeros_and_finite_gradients():
    variant = VARIANTS["evolving"]
    options = variant.options(alpha=0.3, beta=0.6, skip="encoder")
    module = attention(variant.build(options, Place("encoder", HEADS, DIM // HEADS, 0, 1)))
    x = torch.randn(4, 2, DIM, dtype=torch.float64, requires_grad=True)
    padding = torch.zeros(2, 4, dtype=torch.bool)
    padding[0] = True  # nothing but padding
    visible = ~(padding[:, None, :, None] | padding[:, None, None, :])
    output, probs, _ = module(x, x, visible, need_weights=True)
    assert (probs[:, 0] == 0).all()
    torch.testing.assert_close(output[:, 0], module.out_proj.bias.expand(4, -1))
    output.sum().backward()
    assert x.grad.isfinite().all() and x.grad.ne(0).any()
