"""Inputs of one evolving attention, and all that it computes from them."""

import torch

from ea_fairseq.attention.cached_heads import CachedHeads, append
from ea_fairseq.attention.contract import AttentionArgs
from ea_fairseq.attention.variants.evolving import EvolvingLogits


def attention_inputs(attention, num_heads, lengths, kernel_size, dtype, hide, **options):
    """A transform and its inputs, all of which take gradients, and what is visible."""
    torch.manual_seed(sum(lengths) + num_heads)
    bsz, tgt_len, src_len = lengths
    src_len = tgt_len if attention != "encoder-decoder" else src_len
    settings = {"alpha": 0.3, "beta": 0.5, "convolution": True, "skip": True, **options}
    transform = EvolvingLogits(attention, num_heads, kernel_size=kernel_size, **settings).to(dtype)
    visible = None
    if attention == "decoder":
        visible = torch.ones(tgt_len, tgt_len, dtype=torch.bool).tril()[None, None]
    if hide:
        queries, keys = torch.rand(bsz, tgt_len) < 0.7, torch.rand(bsz, src_len) < 0.7
        pairs = queries[:, None, :, None] & keys[:, None, None, :]
        visible = pairs if visible is None else pairs & visible
    shapes = [(bsz, num_heads, length, 6) for length in (tgt_len, src_len, src_len)]
    shapes.append((bsz, num_heads, tgt_len, src_len))
    tensors = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]
    return transform, tensors, visible


def results(transform, tensors, visible, dropout=0.0, causal=False):
    """Output, carry, probabilities, and the gradients of all inputs and parameters."""
    torch.manual_seed(5)
    queries, keys, values, carry = tensors
    outputs = transform.attend(
        queries,
        keys,
        values,
        AttentionArgs(0.7, visible, carry, dropout, need_probs=True, causal=causal),
    )
    outputs = [output for output in outputs if output is not None]
    torch.manual_seed(6)  # whatever dropout drew
    weights = [torch.randn_like(output) for output in outputs]
    loss = sum((output * weight).sum() for output, weight in zip(outputs, weights, strict=True))
    inputs = [*tensors, *transform.parameters()]
    return outputs + list(torch.autograd.grad(loss, inputs, materialize_grads=True))


def gradients_of_each(transform, tensors, visible):
    """The gradients of inputs where output, carry or probabilities alone are used."""
    args = AttentionArgs(0.7, visible, tensors[3], need_probs=True)
    found = []
    for index in range(3):
        used = transform.attend(*tensors[:3], args)[index].square().sum()
        found += torch.autograd.grad(used, tensors, materialize_grads=True)
    return found


def largest_kept(transform, tensors, visible):
    """Numbers of the largest tensor that is kept for the gradient."""
    kept = []

    def keep(tensor):
        kept.append(tensor.untyped_storage().nbytes() // tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        transform.attend(*tensors[:3], AttentionArgs(0.7, visible))
    return max(kept)


def steps_in_turn(
    attention, num_heads, kernel_size, dtype, hide, steps=10, device="cpu", head_dim=5
):
    """What steps of six hypotheses that change places give, with hidden keys, hidden rows and a
    carry."""
    transform = attention_inputs(attention, num_heads, (1, 2, 2), kernel_size, dtype, 0)[0]
    transform = transform.to(device)
    torch.manual_seed(2)
    bsz, src_len, dim = 6, 17, head_dim * num_heads

    def random(*shape):
        return torch.randn(*shape, dtype=dtype).to(device)

    source = random(2, src_len, 2, dim)  # keys and values of two sentences
    cache, state, found = {}, {}, []
    for step in range(steps):
        if attention == "decoder":
            cache = append(cache, *random(2, 1, bsz, dim))
            cached = CachedHeads(cache["prev_key"], cache["prev_value"], num_heads, cache["rows"])
            keys = step + 1
        else:
            cached = CachedHeads(*source, num_heads, hypotheses=3)
            keys = src_len
        visible = None
        if hide:
            visible = (torch.rand(bsz, 1, 1, keys) < 0.7).to(device)
            visible[step % bsz] = False
        queries, carry = random(bsz, num_heads, 1, head_dim), random(bsz, num_heads, 1, keys)
        *outputs, state = transform.attend_step(
            queries, cached, AttentionArgs(0.7, visible, carry, need_probs=True), state
        )
        found += outputs
        order = torch.randint(3, (bsz,)) + torch.arange(bsz) // 3 * 3
        order = order.to(device)
        state = {name: kept.index_select(0, order) for name, kept in state.items()}
        if attention == "decoder":
            cache["rows"] = cache["rows"].index_select(0, order)
    return found
