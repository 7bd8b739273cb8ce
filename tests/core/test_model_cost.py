"""Cost of the architectures against the paper's Table 5 and a count by hand."""

import contextlib
import io
import json

import model_cost
import pytest

from ea_fairseq.models.cost import cost

BASE = dict(embed_dim=512, ffn_dim=2048)


def by_hand(embed_dim=160, ffn_dim=160, layers=6, length=30, heads=0, kernel_size=3):
    """Multiply-adds of projections, attention products, feed-forward nets and convolutions."""
    projection = embed_dim * embed_dim * length
    products = 2 * length * length * embed_dim
    ffn = 2 * embed_dim * ffn_dim * length
    encoder = 4 * projection + products + ffn
    decoder = 8 * projection + 2 * products + ffn
    convolutions = 3 * (heads * kernel_size * length) ** 2
    return 2 * layers * (encoder + decoder + convolutions)


@pytest.fixture(scope="module")
def costs():
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert model_cost.main(["--json"]) == 0
    return json.loads(output.getvalue())


@pytest.mark.parametrize(
    "arch,parameters,sizes,papers",
    [
        ("transformer_lite", 2_482_560, {}, (2.48e6, 158.31e6)),
        ("ea_transformer_lite", 2_485_224, dict(heads=4), (2.49e6, 163.46e6)),
        ("transformer", 44_138_496, BASE, (44.14e6, 2.68e9)),
        ("ea_transformer_base", 44_149_008, dict(heads=8, **BASE), (44.15e6, 2.70e9)),
    ],
)
def test_counts_equal_a_count_by_hand_and_are_the_papers(costs, arch, parameters, sizes, papers):
    found = costs[arch]["parameters"], costs[arch]["flops"]
    assert found[0] == parameters
    assert found == pytest.approx(papers, rel=0.01)
    if sizes.get("heads"):
        # Rows that the convolutions' move pushes out of the map are not computed: 1 of 30.
        assert 0.998 < found[1] / by_hand(**sizes) < 1
    else:
        assert found[1] == by_hand(**sizes)


def test_bad_input_is_one_line(capsys):
    for arguments, named in [
        (["--arch", "ea_transformer_big"], "ea_transformer_lite"),
        (["--arch", "ea_transformer_lite", "--set", "ea-kernel-size=4"], "1, 3, 5, 7, 9"),
        (["--arch", "ea_transformer_lite", "--set", "kernel=4"], "--kernel"),
    ]:
        assert model_cost.main(arguments) == 1
        error = capsys.readouterr().err
        assert error.startswith("error:") and named in error and error.count("\n") == 1


def test_options_of_training_are_left_out():
    options = {"ea-kernel-size": 5, "lr": 0.001, "max-tokens": 2048}
    flops = cost("ea_transformer_lite", options)["flops"]
    assert 0.99 < flops / by_hand(heads=4, kernel_size=5) < 1


def test_source_and_target_count_by_their_own_lengths():
    """With as many layers on both sides, the two could be exchanged."""
    width, source, target = 160, 7, 20
    projection, network = width * width, 2 * width * 160
    encoder = (4 * projection + network) * source + 2 * source * source * width
    decoder = (6 * projection + network) * target + 2 * target * target * width
    between = 2 * projection * source + 2 * target * source * width
    found = cost("transformer_lite", {"decoder-layers": 2}, source, target)["flops"]
    assert found == 2 * (6 * encoder + 2 * (decoder + between))


def test_a_language_model_has_no_source(capsys):
    arguments = ["--arch", "ea_transformer_lm_lite", "--src-len", "512"]
    assert model_cost.main(arguments) == 1
    assert capsys.readouterr().err.startswith("error: --src-len 512: --arch ea_transformer_lm_lite")
    assert model_cost.main(arguments[:2]) == 0
