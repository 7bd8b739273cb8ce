"""Keys and values kept while decoding: never moved, never another hypothesis's."""

import pytest
import torch

from ea_fairseq.attention import cached_heads
from ea_fairseq.attention.cached_heads import CachedHeads, append, share

HEADS, DIM = 2, 6


def decode(steps, bsz=4, seed=0, cache=None, expected=None):
    """Steps of random keys and random reorders; returns the cache and what plain lists keep."""
    generator = torch.Generator().manual_seed(seed)
    cache = {} if cache is None else cache
    expected = [[] for _ in range(bsz)] if expected is None else expected
    for _ in range(steps):
        keys = torch.randn(1, len(expected), DIM, generator=generator)
        cache = append(cache, keys, -keys)
        expected = [kept + [key] for kept, key in zip(expected, keys[0], strict=True)]
        order = torch.randint(len(expected), (max(1, len(expected) - 1),), generator=generator)
        if len(expected[0]) % 3 == 0:
            cache = {**cache, "rows": cache["rows"].index_select(0, order)}
            expected = [expected[old] for old in order]
    return cache, expected


def assert_keeps(cache, expected):
    cached = CachedHeads(cache["prev_key"], cache["prev_value"], HEADS, cache["rows"])
    keys, values = cached.heads()
    lists = torch.stack([torch.stack(kept) for kept in expected])  # (batch, src_len, embed_dim)
    theirs = lists.unflatten(2, (HEADS, DIM // HEADS)).transpose(1, 2)
    assert torch.equal(keys, theirs) and torch.equal(values, -theirs)


@pytest.mark.parametrize("steps", [1, 7, 16, 17, 40])
def test_each_hypothesis_keeps_the_keys_of_its_ancestors(steps):
    assert_keeps(*decode(steps, bsz=20))


def test_two_decodings_from_one_step_do_not_overwrite_each_other():
    start, lists = decode(5)
    one, one_lists = decode(3, seed=1, cache=start, expected=lists)
    other, other_lists = decode(3, seed=2, cache=start, expected=lists)
    assert_keeps(one, one_lists)
    assert_keeps(other, other_lists)
    assert_keeps(*decode(2, seed=3, cache=one, expected=one_lists))


def test_a_batch_may_grow():
    cache, lists = decode(2)
    order = torch.arange(len(lists)).repeat_interleave(3)
    cache = {**cache, "rows": cache["rows"].index_select(0, order)}
    assert_keeps(*decode(2, seed=1, cache=cache, expected=[lists[old] for old in order]))


def test_nothing_is_copied_from_step_to_step():
    cache, _ = decode(1)
    later = append(cache, *torch.zeros(2, 1, 4, DIM))
    assert later["prev_key"].data_ptr() == cache["prev_key"].data_ptr()


@pytest.mark.parametrize(
    "order, sentences, hypotheses, expected",
    [
        ([0, 0, 0, 1, 1, 1], 2, 1, (None, 3)),  # beam search begins
        ([1, 0, 2, 5, 5, 3], 2, 3, (None, 3)),  # within sentences
        ([5, 5, 3], 2, 3, ([1], 3)),  # the first sentence has finished
        ([3, 4, 5, 0, 0, 2], 2, 3, ([1, 0], 3)),
        ([0, 3, 1, 4, 2, 5], 2, 3, ([0, 1, 0, 1, 0, 1], 1)),  # mixed: nothing is shared any more
        ([0, 1, 3, 4], 2, 3, ([0, 0, 1, 1], 1)),
        ([0, 1], 2, 1, (None, 1)),
        ([1], 2, 1, ([1], 1)),
        ([0, 0, 1], 2, 1, ([0, 0, 1], 1)),
        ([0, 0], 1, 1, (None, 2)),
    ],
)
def test_share_finds_what_hypotheses_have_in_common(order, sentences, hypotheses, expected):
    source, together = share(torch.tensor(order), sentences, hypotheses)
    if source is not None:
        source = source.tolist()
    assert (source, together) == expected
    # What it says is what a plain reorder of repeated sentences gives.
    repeated = torch.arange(sentences).repeat_interleave(hypotheses)[torch.tensor(order)]
    chosen = torch.arange(sentences) if source is None else torch.tensor(source)
    assert torch.equal(chosen.repeat_interleave(together), repeated)


def test_a_reorder_is_worked_out_once_and_anew_where_anything_changed(monkeypatch):
    asked, work = [], cached_heads._share
    monkeypatch.setattr(cached_heads, "_share", lambda *asks: asked.append(asks) or work(*asks))
    order = torch.tensor([0, 1, 3, 2])
    for _ in range(2):
        assert share(order, 2, 2) == (None, 2)
    for _ in range(2):
        assert share(order, 4, 1)[0].tolist() == [0, 1, 3, 2]
    assert len(asked) == 2
    order[0] = 1  # the same tensor with other numbers, asked the same as last
    assert share(order, 4, 1)[0].tolist() == [1, 1, 3, 2]
    first, second = torch.tensor([0, 1, 3, 2]), torch.tensor([3, 1, 0, 2])  # as often changed
    assert share(first, 4, 1)[0].tolist() == [0, 1, 3, 2]
    assert share(second, 4, 1)[0].tolist() == [3, 1, 0, 2]
    assert len(asked) == 5
    with torch.inference_mode():  # where torch counts no changes
        other = torch.tensor([0, 1, 3, 2])
        share(other, 4, 1)
        other[0] = 1
        assert share(other, 4, 1)[0].tolist() == [1, 1, 3, 2]
