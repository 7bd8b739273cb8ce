"""What attentions cost a GPU, by count: every launch and every tensor, once."""

import contextlib
import dataclasses
import itertools
import weakref

import benchmark
import pytest
import torch
from benchmarks import traffic, traffic_decoding, traffic_tables
from benchmarks.kept import _kept, kept_bytes
from benchmarks.models import Setting

pytest.importorskip("triton", reason="comes with torch's builds for GPUs")
LARGE = traffic.Shape("encoder", 8, 8, 512, 512, 64, carry=True)
MAP = 8 * 8 * 512 * 512 * 4


def test_operators_count_their_tensors_once_and_views_nothing():
    x, y = torch.zeros(3, 5), torch.zeros(5)
    with traffic.Operators() as operators:
        (x + y).t().view(5, 3)[1:]
    assert operators.cost == traffic.Cost(launches=1, bytes=(15 + 5 + 15) * 4)
    with traffic.Operators() as operators:
        x + y.expand(3, 5)
    assert operators.cost.bytes == (15 + 5 + 15) * 4


def test_an_attention_takes_three_launches_forward_and_five_backward():
    assert traffic._by_us(LARGE).launches == 3 + 5


def test_maps_are_read_and_written_at_most_twice_in_either_direction():
    """Forward carry, A_in, Z: 2 written, 3 read. Backward those again, and the gradients of Z from
    above, of Z and of A_in: 4 written, 9 read; flags of 2 bytes a pixel and the rest are small."""
    moved = traffic._by_us(LARGE).bytes
    heads = 8 * 8 * 512 * 64 * 4  # of queries, keys, values or output
    assert 0 < moved - 18 * MAP < 25 * heads
    below = traffic.Shape("encoder", 8, 8, 512, 512, 64)
    assert 0 < traffic._by_us(below).bytes - 15 * MAP < 25 * heads


@pytest.mark.parametrize("length", [7, 32, 33, 128])
def test_what_a_causal_map_holds_is_counted_in_whole_lines(length):
    for size in (1, 2, 4):
        places = [(row, column) for row in range(length) for column in range(length)]
        every, below = (
            {(row * length + column) * size // traffic.LINE for row, column in some}
            for some in (places, [(row, column) for row, column in places if column <= row])
        )
        share = traffic._causal_share(length, size)
        assert share == pytest.approx(len(below) / len(every))


def test_causal_maps_are_whole_where_they_leave_alone():
    """As above, of lower triangles: 15; and with a carry, Z and its gradient whole."""
    heads = 8 * 8 * 512 * 64 * 4
    share = sum(range(1, 17)) / 16**2  # of lines of 32 numbers
    plain = traffic.Shape("decoder", 8, 8, 512, 512, 64)
    assert 0 < traffic._by_us(plain).bytes - 15 * share * MAP < 25 * heads
    carried = traffic._by_us(dataclasses.replace(plain, carry=True)).bytes
    assert 0 < carried - (16 * share + 2) * MAP < 25 * heads


def test_causal_maps_are_computed_in_blocks_and_pixels():
    shape = traffic.Shape("decoder", 8, 8, 512, 512, 64)
    whole = traffic.attention(dataclasses.replace(shape, attention="encoder"), "our kernels")
    ours = traffic.attention(shape, "our kernels")
    assert ours.products / whole.products == pytest.approx(sum(range(1, 17)) / 16**2)
    assert ours.plain / whole.plain == pytest.approx(sum(range(1, 513)) / 512**2)


def test_every_way_takes_less_than_torch_alone():
    """But for whole maps, whose convolution ours computes again; of causal ones it is half."""
    for name, dtype in itertools.product(("encoder", "decoder"), (torch.float32, torch.bfloat16)):
        for length in (32, 512):
            shape = traffic.Shape(name, 4096 // length, 4, length, length, 40, dtype=dtype)
            plain, ours, fused = (traffic.attention(shape, way) for way in traffic.WAYS)
            assert plain.launches > ours.launches > fused.launches
            assert plain.bytes > ours.bytes > fused.bytes
            assert (ours.plain > plain.plain) == (name == "encoder")
            assert plain.plain > fused.plain == 0


def test_time_is_that_of_the_slowest_of_launches_bytes_and_arithmetic():
    chip = traffic.Chip(2e12, 1e12, {torch.float32: 1e14}, launch=1e-6)
    for cost, seconds in (
        (traffic.Cost(8, 2e6), 8e-6),
        (traffic.Cost(8, 4e7), 2e-5),
        (traffic.Cost(8, 4e7, products=1e10, plain=1e8), 2e-4),
    ):
        assert cost.seconds(chip, torch.float32) == pytest.approx(seconds)


def test_the_rest_of_a_step_grows_with_its_tokens():
    model, setting = traffic.MODELS["ea_transformer_lite"], Setting(vocabulary=50, threads=1)
    small, large = (traffic.rest_of_step(model, setting, tokens) for tokens in (64, 4096))
    assert small.launches == large.launches > 1000
    # 18 layers keep several activations of 160 numbers per token.
    assert large.bytes - small.bytes > 4000 * 160 * 4 * 18
    assert large.products == pytest.approx(64 * small.products)


SMALL = Setting(vocabulary=20, threads=1)


def test_ours_keep_no_maps_which_torch_alone_does():
    kept = {
        length: [
            kept_bytes("ea_transformer_lite", length, 4096, SMALL, way) for way in traffic.WAYS
        ]
        for length in (16, 32)
    }
    (short_plain, short_ours, short_fused), (plain, ours, fused) = kept.values()
    maps = 3 * 6 * 4 * 4096 * 16 * 4  # of 18 attentions with 4 heads, what the double length adds
    assert plain - short_plain > 3 * maps  # logits, mixed logits, probabilities
    # The carry of the encoder's layers is kept, and what its first layer gives the second.
    assert ours - short_ours < maps / 2 and ours < 1.2 * fused


def test_kept_tensors_count_once_and_weights_not():
    class Training:
        model, setting = torch.nn.Linear(3, 3), SMALL

        def criterion(self, model, sample):
            x = sample * 1
            return model(x) * x + x.sin()  # keeps x and the product; the weight is the model's

    sample = torch.zeros(5, 3, requires_grad=True)
    assert _kept(Training(), sample, traffic.WAYS[0]) == 2 * 5 * 3 * 4


def test_nothing_stays_of_what_was_counted():
    held = []

    class Training:
        model, setting = torch.nn.Linear(3, 3), SMALL

        def criterion(self, model, sample):
            held.append(weakref.ref(model(sample).exp()))  # exp keeps its own output
            return held[0]()

    assert _kept(Training(), torch.zeros(5, 3), traffic.WAYS[0]) > 0
    assert held[0]() is None


def test_a_step_of_decoding_takes_three_launches_for_an_attention(monkeypatch):
    monkeypatch.setattr(traffic_decoding, "FEW", (2, 3))
    monkeypatch.setattr(traffic_decoding, "STEPS", 3)
    found, searches = [], traffic_decoding.counted_launches

    @contextlib.contextmanager
    def noted():
        with searches() as launches:
            found.append(launches)
            yield launches

    monkeypatch.setattr(traffic_decoding, "counted_launches", noted)
    plain, ours, fused = (
        traffic_decoding.decoding_step("ea_transformer_lite", SMALL, way) for way in traffic.WAYS
    )
    # The encoder's 6 once, the decoder's 12 in each of the steps and that which ends the sentence.
    assert [len(launches) for launches in found] == [3 * (6 + 12 * 4)] * 2
    assert plain.launches > 1.5 * ours.launches and ours.launches < 1.3 * fused.launches
    assert plain.bytes > ours.bytes > 0


def test_prints_what_it_predicts(capsys, monkeypatch):
    monkeypatch.setattr(traffic_tables, "LENGTHS", (8,))
    monkeypatch.setattr(traffic_decoding, "FEW", (2, 3))
    for module in (traffic_decoding, traffic_tables):
        monkeypatch.setattr(module, "STEPS", 1)
    arguments = ["--traffic", "--vocabulary", "20", "--bandwidth", "2", "--launch", "3"]
    assert benchmark.main([*arguments, "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    assert "nothing here was measured" in printed and "2 TB/s, us" in printed
    assert "| 8 | bfloat16 | our kernels | 8 |" in printed
    assert "Kept for the gradients" in printed and "mean of 1 steps" in printed


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--traffic", "--arch", "realformer_lite"], "--traffic: counts ea_transformer_lite, "),
        (["--traffic", "--bandwidth", "0"], "--bandwidth 0.0 must be more than 0"),
        (["--traffic", "--launch", "-1"], "--launch -1.0 must be more than 0"),
    ],
)
def test_wrong_options_are_named(arguments, message, capsys):
    try:
        assert benchmark.main(arguments) == 1
    except SystemExit as stop:
        assert stop.code == 2
    assert message in capsys.readouterr().err
