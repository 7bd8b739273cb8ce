"""Every variant keeps the contract; the contract finds variants that do not."""

import math
from dataclasses import asdict, dataclass, replace

import pytest
import torch
from reference import attention as reference_attention
from torch import nn

from ea_fairseq import testing as contract
from ea_fairseq.attention.contract import AttentionArgs, mix_heads
from ea_fairseq.attention.options import fraction, option, positive, positive_integer
from ea_fairseq.attention.registry import Architecture
from ea_fairseq.attention.variants import (
    VARIANTS,
    LogitTransform,
    Place,
    Projected,
    Variant,
    VariantOptions,
    architectures,
    register,
    zero_hidden,
)
from ea_fairseq.errors import UserError
from ea_fairseq.kernels.cpp.library import switch

# In the second pass of scripts/test.sh: of the other variants nothing is compiled.
CASES = [case for case in contract.cases() if switch() != "0" or case[0] == "evolving"]


def case_id(case):
    name, kind, options = case
    return "-".join([name, kind, *(f"{key}={value}" for key, value in options.items())])


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_the_contract_holds(case):
    """Loops in tests/helpers/references/ included."""
    contract.check(*case, reference_attention)


@pytest.mark.parametrize(
    "name", [name for name, variant in VARIANTS.items() if variant.neutral is not None]
)
def test_a_neutral_variant_is_plain_attention(name):
    contract.check_neutral(name)


def test_the_importance_of_a_token_is_not_dropped():
    """Dropout is of the probabilities: the mean over many draws is what there is without it."""
    stack = contract.Stack("bird_eye", "decoder", {})
    transform, inputs = stack.transforms[0], [one[:1] for one in stack.inputs[0]]
    visible, draws = stack.visible[:1], 5_000
    with torch.no_grad():
        expected = transform.attend(*inputs, AttentionArgs(0.7, visible))[0][0]
        many = [one.expand(draws, -1, -1, -1) for one in inputs]
        found = transform.attend(*many, AttentionArgs(0.7, visible, None, dropout=0.5))[0]
    deviation = found.std(dim=0) / draws**0.5
    assert ((found.mean(dim=0) - expected).abs() < 5 * deviation + 1e-9).all()


def test_the_norm_of_each_heads_output_starts_at_the_layers_scale():
    variant = VARIANTS["multi_token"]
    for layer in range(3):
        place = Place("decoder", contract.HEADS, contract.HEAD_DIM, layer, 3)
        transform = variant.build(variant.options(), place)
        sizes = transform.mix_output(torch.randn(2, contract.HEADS, 5, contract.HEAD_DIM))
        expected = 0.2 + 0.6 * math.exp(-0.3 * layer)
        rms = sizes.square().mean(dim=-1).sqrt()
        torch.testing.assert_close(rms, torch.full_like(rms, expected), atol=1e-2, rtol=0)


@pytest.mark.parametrize("name", VARIANTS)
def test_automatic_mixed_precision_leaves_the_work_on_maps_in_float32(name):
    """To the bit, where products of queries, keys and values are in half precision anyway."""
    variant = VARIANTS[name]
    visible = torch.rand(2, 1, 5, 5) < 0.8
    logits, carry = torch.randn(2, 2, contract.HEADS, 5, 5)
    heads = torch.randn(3, 2, contract.HEADS, 5, contract.HEAD_DIM, dtype=torch.bfloat16)

    def worked(transform):
        z, seen = transform(logits, visible, carry, Projected(*heads))
        row = (maps[:, :, :1] for maps in (logits, visible, carry))
        step, *_ = transform.step(*row, {}, Projected(*heads))
        return z, step, transform.mix_probs(z, seen)

    for case in variant.cases:
        place = Place(variant.serves[-1], contract.HEADS, contract.HEAD_DIM, 1, 2)
        transform = variant.build(variant.options(**case), place)
        with torch.no_grad():
            for parameter in transform.parameters():
                parameter.normal_()
            expected = worked(transform)
            with torch.autocast("cpu", torch.bfloat16):
                found = worked(transform)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == torch.float32 and torch.equal(one, other)


#: The papers' numbers, where there is a paper; of evolving attention those of Lite.
EVERYWHERE = ("encoder", "decoder", "encoder-decoder")
DEFAULTS = {
    "evolving": {
        **{"alpha": 0.1, "beta": 0.1, "kernel_size": 3, "convolution": EVERYWHERE},
        **{"skip": ("encoder",), "learned_mixing": False},
    },
    "predictive": {"alpha": 0.1, "prediction_layers": 1},
    "residual": {"skip": EVERYWHERE},
    "bird_eye": {"diagonal": "hidden"},
    "diagonal_free": {"diagonal": "hidden"},
    "talking_heads": {"head_mixing": ("before", "after")},
    "multi_token": {"query_kernel": 6, "key_kernel": 11, "head_group": 2, "head_norm": True},
    "plain": {},
}


def test_options_have_the_papers_numbers_where_nobody_gives_one():
    assert {name: asdict(VARIANTS[name].options()) for name in DEFAULTS} == DEFAULTS
    for name, (variant, architecture) in architectures().items():
        base = {"alpha": 0.5} if name == "ea_transformer_base" else {}
        if variant.name in DEFAULTS:
            options = asdict(variant.options(**architecture.options))
            assert options == DEFAULTS[variant.name] | base, name


def with_width(default, parse):
    """Options of a variant with one of its own."""

    @dataclass(frozen=True)
    class Options(VariantOptions):
        width: float = option(default, parse, "W", "a width") if parse else default

    return {"options": Options}


@dataclass(frozen=True)
class Branch(VariantOptions):
    branch: float = option(1.0, fraction, "B", "a branch")


def with_architecture(size, options=None):
    """An architecture of a variant's own."""
    return {"architectures": (Architecture("wrong_lite", size, options or {}),)}


UNREADABLE = "Options.width: its parse takes the option's name and a value"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "evolving"}, "evolving: the name evolving is taken"),
        # A misspelt attention would never be checked, nor one that it does not serve.
        ({"serves": ("decodr",)}, "wrong: serves: 'decodr' must be one of encoder"),
        (
            {"serves": ("encoder",), "arrangement": ("encoder", "decoder")},
            "wrong: arrangement: 'decoder' is none of the attentions",
        ),
        ({"cases": ({"strat": 1.0},)}, "wrong: cases: 'strat' is no option of"),
        ({"neutral": {"strat": 1.0}}, "wrong: neutral: 'strat' is no option of"),
        # The model was trained with the option's default.
        (
            with_architecture("lite", {"strat": 1.0}),
            "wrong: architectures: 'strat' is no option of",
        ),
        (
            with_architecture("large"),
            "wrong: architecture wrong_lite: size is 'large': choose from",
        ),
        ({"options": Branch}, "wrong: Branch.branch: the name is taken, by --ea-branch"),
        (with_width(1.0, lambda value: float(value)), f"wrong: {UNREADABLE}"),
        (with_width(1.0, float), f"wrong: {UNREADABLE}"),
        (with_width(2.0, fraction), f"wrong: {UNREADABLE}.* 2.0: UserError: --ea-width must be"),
        (with_width(1.0, None), "wrong: Options.width: make it by option"),
    ],
)
def test_what_a_variant_cannot_be_is_told_at_registration(changes, words):
    """Not where a model is built, in a TypeError."""
    given = {"name": "wrong", "arrangement": (), "architectures": (), **changes}
    with pytest.raises(ValueError, match=f"^variant {words}"):
        register(replace(VARIANTS["plain"], **given))
    assert "wrong" not in VARIANTS


def test_a_variant_stands_where_it_serves_alone():
    assert VARIANTS["predictive"].arrangement == VARIANTS["predictive"].serves == ("encoder",)


@pytest.mark.parametrize(
    ("parse", "right", "wrong"),
    [
        (positive, {1: 1.0, "0.5": 0.5, 2.5: 2.5}, [0, -1, "x", None, True, "inf", "nan", 10**400]),
        (positive_integer, {1: 1, "12": 12}, [0, -1, 1.5, "1.5", "x", None, True, 10**400, "1e3"]),
    ],
)
def test_positive_numbers_are_read(parse, right, wrong):
    for given, expected in right.items():
        found = parse("--ea-width", given)
        assert (found, type(found)) == (expected, type(expected))
    for given in wrong:
        with pytest.raises(UserError, match="^--ea-width must be a (whole )?number"):
            parse("--ea-width", given)


# Variants that are wrong in one thing each. A contract test is worth what it catches.


class ZeroesHidden(LogitTransform):
    """One whose whole maps, and rows unless told otherwise, are what `change` makes of logits."""

    def change(self, logits, visible):
        return logits

    def forward(self, logits, visible, carry, projected=None):
        return zero_hidden(self.change(logits, visible), visible), visible


class MixesProbsInOnePath(LogitTransform):
    """Work after the softmax that decoding does not do."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(contract.HEADS))

    def mix_probs(self, probs, visible):
        return mix_heads(probs, self.weight)

    def mix_probs_step(self, probs, visible, state):
        return probs, {}


class MixesInAttendAlone(MixesProbsInOnePath):
    """The same, in a method that is there for speed only."""

    mix_probs = LogitTransform.mix_probs

    def attend(self, queries, keys, values, *others, **more):
        return super().attend(queries, keys, 2 * values * self.weight.sum(), *others, **more)


class HasADeadParameter(LogitTransform):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))


class ReadsTheFuture(ZeroesHidden):
    def change(self, logits, visible):
        return logits + logits.mean(2, keepdim=True)


class ReadsPadding(ZeroesHidden):
    def change(self, logits, visible):
        return logits + logits.roll(1, 3)


class CarriesHiddenEntries(LogitTransform):
    uses_carry = True

    def forward(self, logits, visible, carry, projected=None):
        return logits if carry is None else logits + carry, visible


class ForgetsTheRowBefore(ZeroesHidden):
    """Adds the row above in whole maps, and nothing step by step."""

    def change(self, logits, visible):
        logits = zero_hidden(logits, visible)
        return logits + nn.functional.pad(logits[:, :, :-1], (0, 0, 1, 0))

    def step(self, logits, visible, carry, state, projected=None):
        return zero_hidden(logits, visible), visible, {}


class KeepsItsRowOnItself(ForgetsTheRowBefore):
    """Adds the row above, which it keeps where no beam search can move it."""

    def step(self, logits, visible, carry, state, projected=None):
        logits = zero_hidden(logits, visible)
        added = logits
        if logits.size(3) > 1 and getattr(self, "above", None) is not None:
            above = self.above[: len(logits)]
            above = above if len(above) == len(logits) else torch.zeros_like(logits)
            longer = logits.size(3) - above.size(3)
            added = logits + nn.functional.pad(above, (0, longer))
        self.above = logits
        return zero_hidden(added, visible), visible, {}


class KeepsRowsFirst(ForgetsTheRowBefore):
    """A state whose first dimension counts rows."""

    def step(self, logits, visible, carry, state, projected=None):
        return zero_hidden(logits, visible), visible, {"rows": logits.new_zeros(3, 1)}


class KeepsANumber(LogitTransform):
    def step(self, logits, visible, carry, state, projected=None):
        return zero_hidden(logits, visible), visible, {"rows": 1}


class ReadsLaterColumns(ZeroesHidden):
    """Of whole maps each row is weighed by the mean over the keys, later ones too."""

    def change(self, logits, visible):
        return logits * logits.mean(3, keepdim=True)


class ReadsTheFutureInTraining(ReadsTheFuture):
    """Where a model trains: it would train too well."""

    def change(self, logits, visible):
        return super().change(logits, visible) if self.training else logits


class ReadsTheFutureOfLargeMaps(ReadsTheFuture):
    """As a kernel may that works in blocks."""

    def change(self, logits, visible):
        return super().change(logits, visible) if logits.size(2) > 32 else logits


class DecodesAnotherMap(ZeroesHidden):
    """Where nobody wants gradients, as in decoding, another way with other results."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def change(self, logits, visible):
        wrong = logits.requires_grad or not torch.is_grad_enabled()
        return logits * self.weight * (2 if wrong else 1)


class LeavesHiddenEntries(LogitTransform):
    """Nobody above reads them, for nothing is carried."""

    def forward(self, logits, visible, carry, projected=None):
        return logits, visible


class ReadsTheFutureWhereItIsCausal(LogitTransform):
    """A faster way that leaves the mask to somebody else, taken as models train alone."""

    def attend(self, queries, keys, values, args):
        if args.causal and not args.need_probs:
            return queries @ keys.transpose(2, 3) @ values, None, None
        return super().attend(queries, keys, values, args)


class CountsRowsOfTheMask(ZeroesHidden):
    """A mask may have one row for all."""

    def seen(self, logits, visible):
        return torch.ones_like(logits[:, :1]) if visible is None else visible.to(logits.dtype)

    def change(self, logits, visible):
        return logits * self.seen(logits, visible).cumsum(2)

    def step(self, logits, visible, carry, state, projected=None):
        count = state.get("count", 0) + self.seen(logits, visible)
        return zero_hidden(logits * count, visible), visible, {"count": count}


class ForgetsTheBias(LogitTransform):
    def attend(self, queries, keys, values, args):
        return super().attend(queries, keys, values, args._replace(bias=None))


class NeedsTheRowBefore(ForgetsTheRowBefore):
    """Step by step too; how many rows that takes is told wrongly."""

    left = 0  # how far the row above is moved to the right

    def step(self, logits, visible, carry, state, projected=None):
        logits = zero_hidden(logits, visible)
        added = logits
        if state:
            above = nn.functional.pad(state["row"], (self.left, 0))[..., : logits.size(3)]
            longer = logits.size(3) - above.size(3)
            added = logits + nn.functional.pad(above, (0, longer))
        return zero_hidden(added, visible), visible, {"row": logits}

    def earlier_rows(self):
        return 0


class ReadsAboveWithoutTelling(NeedsTheRowBefore):
    """Its neighbour above and to the left."""

    left = 1

    def change(self, logits, visible):
        logits = zero_hidden(logits, visible)
        return logits + nn.functional.pad(logits[:, :, :-1, :-1], (1, 0, 1, 0))

    def earlier_rows(self):
        return None


class WantsKeysOfEachHypothesis(LogitTransform):
    """Hypotheses of a sentence share its keys."""

    uses_keys = True

    def forward(self, logits, visible, carry, projected=None):
        return zero_hidden(logits + projected.keys.sum(3).unsqueeze(2), visible), visible


class ChangesTheMask(ZeroesHidden):
    def change(self, logits, visible):
        if visible is not None and visible.size(2) > 1:
            visible[:, :, -1, 0] = False
        return logits


class ReturnsOneThing(LogitTransform):
    def forward(self, logits, visible, carry, projected=None):
        return zero_hidden(logits, visible)


#: The attention in which each is found, and what is said of it.
WRONG = {
    MixesProbsInOnePath: ("", "layer 0: output of row 0, by a step .* differs by up to"),
    MixesInAttendAlone: ("", "layer 0: output of row 0, by a step .* differs by up to"),
    HasADeadParameter: ("", "layer 0: weight gets no gradient"),
    ReadsTheFuture: ("", r"layer 0: row \d reads later rows \(queries\): those from \d on"),
    ReadsLaterColumns: ("decoder", r"layer 0: row \d reads later columns \(keys and values\)"),
    ReadsPadding: ("encoder-decoder", "padding left: layer 0: sentence 0 alone and in the batch"),
    CarriesHiddenEntries: ("encoder-decoder", "layer 0: carry in hidden entries: up to .*e"),
    ForgetsTheRowBefore: ("", "layer 0: output of row 1, by a step and of whole maps, differs"),
    KeepsItsRowOnItself: ("encoder-decoder", r"row \d, .* with hypotheses reordered, differs"),
    KeepsRowsFirst: ("", r"layer 0: the state 'rows' is \(3, 1\) for 7 hypotheses"),
    ReadsTheFutureInTraining: ("", r"layer 0: row \d reads later rows \(queries\) in training:"),
    ReadsTheFutureOfLargeMaps: ("", r"33 x 3\d, .* row \d reads later rows"),
    DecodesAnotherMap: ("", "layer 0: output without gradients differs by up to"),
    LeavesHiddenEntries: ("", "layer 0: forward returns up to .* instead of 0 in hidden entries"),
    ReadsTheFutureWhereItIsCausal: ("decoder", r"row \d reads later columns .* in training"),
    CountsRowsOfTheMask: (
        "encoder-decoder",
        r"output with visible \(7, 1, 1, 6\) and with \(7, 1, 5, 6\) differs by up to",
    ),
    ForgetsTheBias: ("", "layer 0: output with a bias, and with both as logits, differs by up to"),
    NeedsTheRowBefore: ("", r"row \d, stepped to through 0 earlier rows \(earlier_rows\(\)\), dif"),
    ReadsAboveWithoutTelling: ("decoder", "reads the first one's map: reads_neighbours must be"),
    WantsKeysOfEachHypothesis: ("encoder-decoder", "RuntimeError: The size of tensor a"),
    ChangesTheMask: ("", "visible changed|differs by up to|reads later|instead of 0"),
    KeepsANumber: ("", "layer 0: the state 'rows' is no tensor: 1"),
    ReturnsOneThing: ("", "ValueError: too many values to unpack"),
}


@pytest.mark.skipif(switch() == "0", reason="of these variants nothing is compiled")
@pytest.mark.parametrize(
    "wrong, kind",
    [(wrong, kind) for wrong in WRONG for kind in contract.CAUSAL if WRONG[wrong][0] in ("", kind)],
)
def test_the_contract_finds_a_wrong_variant(wrong, kind, monkeypatch):
    made = Variant("wrong", "", VariantOptions, lambda options, place: wrong())
    monkeypatch.setitem(VARIANTS, "wrong", made)
    words = WRONG[wrong][1]
    with pytest.raises(AssertionError, match=f"^wrong: {kind} attention, .*{words}"):
        contract.check("wrong", kind, {})


@pytest.mark.parametrize("missing", [{"cases": ()}, {"serves": ()}])
def test_the_contract_passes_no_variant_of_which_it_checks_nothing(missing, monkeypatch):
    monkeypatch.setitem(VARIANTS, "empty", replace(VARIANTS["plain"], name="empty", **missing))
    with pytest.raises(AssertionError, match="^empty: nothing to check: it serves "):
        contract.check_variant("empty")


def test_a_misspelt_variant_is_named_with_the_nearest():
    with pytest.raises(AssertionError, match="^evolvin: no such variant: perhaps .* evolving"):
        contract.check_variant("evolvin")
