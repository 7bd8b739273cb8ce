"""Evolving attention: carry mixing and convolution mixing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ...errors import UserError
from ...kernels.backend import chosen_backend
from ...kernels.cpp.library import needs_gradient
from ...kernels.fused_attention import Evolution, fused_attention
from ...kernels.fused_step import fused_step
from ..cached_heads import CachedHeads
from ..contract import (
    AttentionArgs,
    LogitTransform,
    Place,
    Projected,
    State,
    at_least_float32,
    zero_hidden,
)
from ..convolution import KERNEL_SIZES, MAP_CONVOLUTIONS
from ..options import (
    ATTENTIONS,
    VariantOptions,
    as_text,
    flag,
    fraction,
    one_of,
    option,
    some_attentions,
    switch,
)
from ..registry import Architecture, Variant, register


@dataclass(frozen=True)
class EvolvingOptions(VariantOptions):
    """Options of evolving attention; sections are those of arXiv 2102.12895."""

    alpha: float = option(
        0.1, fraction, "A", "weight of the previous layer's logits, in [0, 1] (equation 4)"
    )
    beta: float = option(0.1, fraction, "B", "weight of the convolution, in [0, 1] (equation 4)")
    kernel_size: int = option(
        3,
        one_of(*KERNEL_SIZES, kind="odd, "),
        "K",
        "size of the convolution's kernel: 1, 3, 5, 7 or 9 (section 3.3)",
    )
    convolution: tuple[str, ...] = option(
        ",".join(ATTENTIONS),
        some_attentions,
        "WHERE",
        "attentions with a convolution: comma-separated, of encoder, decoder, encoder-decoder; or "
        "none (section 3.5)",
    )
    skip: tuple[str, ...] = option(
        "encoder",
        some_attentions,
        "WHERE",
        "attentions with a skip connection between layers: comma-separated, of encoder, decoder, "
        "encoder-decoder; or none (section 3.3)",
    )
    learned_mixing: bool = option(
        False,
        switch,
        "BOOL",
        "whether alpha and beta are learned, one number for each head and layer that starts at "
        "--ea-alpha and --ea-beta: true or false",
        later=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, used in (("alpha", self.skip), ("beta", self.convolution)):
            start = getattr(self, name)
            if self.learned_mixing and used and start in (0, 1):
                raise UserError(
                    f"{flag(name)} must be between 0 and 1 with --ea-learned-mixing true, which "
                    f"cannot start at its ends, not {start}"
                )

    def without_effect(self, attentions: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, what, dependent in (
            ("skip", "skip connection", ["alpha"]),
            ("convolution", "convolution", ["beta", "kernel_size"]),
        ):
            places = getattr(self, name)
            if not set(places) & set(attentions):
                reason = f"{flag(name)} {as_text(places)} gives no attention of this model a {what}"
                found |= dict.fromkeys([*dependent, *([name] if places else [])], reason)
        if self.learned_mixing and {"alpha", "beta"} <= found.keys():
            found["learned_mixing"] = "neither alpha nor beta is used"
        return found


class EvolvingLogits(LogitTransform):
    """Evolving attention (arXiv 2102.12895), equation (4), sections 3.2 to 3.5.

    A_in = alpha * carry + (1 - alpha) * logits    (logits alone in the first layer)
    Z    = beta * relu(conv(A_in)) + (1 - beta) * A_in

    Differs from the paper: hidden entries count as 0 wherever the convolution reads them, and in
    the carry; the paper does not say what its convolution sees there.

    With learned mixing, which the PA-Transformer's paper names as future work, alpha and beta are
    sigmoid(a) and sigmoid(b), with an a and a b for each head.

    Args:
        attention: "encoder", "decoder" or "encoder-decoder"
        num_heads: heads of the attention
        alpha: weight of the carry, in [0, 1]
        beta: weight of the convolution, in [0, 1]
        kernel_size: odd
        convolution: whether there is a convolution; without it, Z = A_in
        skip: whether the carry is mixed in; without it, A_in = logits
        learned_mixing: whether alpha and beta are where learned numbers start, in (0, 1)
        first: whether this is the first layer, which has no carry to weigh
    """

    def __init__(
        self,
        attention: str,
        num_heads: int,
        alpha: float,
        beta: float,
        kernel_size: int,
        convolution: bool,
        skip: bool,
        learned_mixing: bool = False,
        first: bool = False,
    ):
        super().__init__()
        self.alpha = alpha
        self.beta = beta
        self.uses_carry = skip
        self.convolution = (
            MAP_CONVOLUTIONS[attention](num_heads, kernel_size) if convolution else None
        )
        self.learned_mixing = learned_mixing
        if learned_mixing and skip and not first:
            self.learned_alpha = _before_sigmoid(alpha, num_heads)
        if learned_mixing and convolution:
            self.learned_beta = _before_sigmoid(beta, num_heads)

    def _mix_carry(self, logits: Tensor, visible: Tensor | None, carry: Tensor | None) -> Tensor:
        if self.uses_carry and carry is not None:
            logits = self._mix("alpha", logits, carry)
        return zero_hidden(logits, visible)

    def _mix(self, name: str, maps: Tensor, other: Tensor) -> Tensor:
        """``(1 - weight) * maps + weight * other``, the weight being alpha or beta."""
        if not self.learned_mixing:
            return maps.lerp(other, getattr(self, name))
        learned = getattr(self, f"learned_{name}").to(maps.dtype)
        return maps.lerp(other, learned.sigmoid().view(-1, 1, 1))

    def forward(
        self,
        logits: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        projected: Projected | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """See :meth:`LogitTransform.forward`."""
        a_in = self._mix_carry(logits, visible, carry)
        if self.convolution is None:
            return a_in, visible
        return self._mix("beta", a_in, self.convolution(a_in, visible)), visible

    def attend(
        self, queries: Tensor | None, keys: Tensor | None, values: Tensor, args: AttentionArgs
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """See :meth:`LogitTransform.attend`; compiled where that is possible."""
        if self._backend(queries, values.size(2), args) == "torch":
            return super().attend(queries, keys, values, args)
        if not self.uses_carry:
            args = args._replace(carry=None)
        evolution = self._evolution()
        if args.bias is not None:
            args = self._with_bias_carried(queries, keys, args)
            evolution = replace(evolution, alpha=0.5)
        weights = self.convolution.kernel(), self.convolution.offsets()
        return fused_attention(
            queries, keys, values, args, *weights, evolution, need_carry=self.uses_carry
        )

    def _with_bias_carried(
        self, queries: Tensor, keys: Tensor, args: AttentionArgs
    ) -> AttentionArgs:
        """The bias as part of the carry, for what is compiled adds a carry to products alone.

        With a = alpha, or 0 without a carry,

            a * carry + (1 - a) * (scaling * q k + bias) = (given + 2 * (1 - a) * scaling * q k) / 2

        where given = 2 * (a * carry + (1 - a) * bias): a carry of weight 1/2.
        """
        shape, scaling = (*queries.shape[:3], keys.size(2)), args.scaling
        given = (2 * args.bias.to(at_least_float32(queries).dtype)).expand(shape)
        if args.carry is not None:
            given = given.lerp(2 * args.carry, self.alpha)
            scaling = (1 - self.alpha) * scaling
        return args._replace(carry=given, scaling=2 * scaling, bias=None)

    def attend_step(
        self, queries: Tensor | None, cached: CachedHeads, args: AttentionArgs, state: State
    ) -> tuple[Tensor, Tensor | None, Tensor | None, State]:
        """See :meth:`LogitTransform.attend_step`; compiled where that is possible."""
        chosen = self._backend(queries, cached.src_len, args, cached.values.numel())
        compiled = chosen != "torch" and args.dropout == 0 and args.bias is None
        tensors = (queries, cached.keys, cached.values, args.carry, *state.values())
        if compiled and self.convolution.module is not None:  # what it makes may need a gradient
            tensors = (*tensors, self.convolution.kernel(), self.convolution.offsets())
        if not compiled or needs_gradient(*tensors, *self.parameters()):
            return super().attend_step(queries, cached, args, state)
        if not self.uses_carry:
            args = args._replace(carry=None)
        return fused_step(
            *(queries, cached, args, state),
            # Triton's step reads no more of it than is in use: a launch less.
            self.convolution.all_weights() if chosen == "triton" else self.convolution.kernel(),
            self.convolution.offsets(),
            self._evolution(),
            need_carry=self.uses_carry,
        )

    def _backend(self, queries: Tensor, src_len: int, args: AttentionArgs, cached: int = 0) -> str:
        """What is compiled knows the fixed numbers alone, and reads the weights as they are: hooks
        (of pruning, say, or of weights kept elsewhere) run when the convolution is called."""
        if self.convolution is None or self.learned_mixing or args.logits is not None:
            return "torch"
        if isinstance(args.scaling, Tensor) or self.convolution._forward_pre_hooks:
            return "torch"
        if (weight := self.convolution.weight) is not None and weight.device != queries.device:
            return "torch"
        if queries.size(1) != self.convolution.in_channels:  # memory is what it would read else
            heads = self.convolution.in_channels
            raise UserError(f"queries have {queries.size(1)} heads, the convolution {heads}")
        return chosen_backend(queries, src_len, self.convolution.kernel_size[0], cached)

    def _evolution(self) -> Evolution:
        convolution = self.convolution
        return Evolution(self.alpha, self.beta, convolution.move, convolution.lower_triangular)

    @property
    def reads_neighbours(self) -> bool:
        """See :attr:`LogitTransform.reads_neighbours`."""
        return self.convolution is not None and self.convolution.reach > 0

    def earlier_rows(self) -> int | None:
        """See :meth:`LogitTransform.earlier_rows`."""
        return 0 if self.convolution is None else 2 * self.convolution.reach

    def step(
        self,
        logits: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        state: State,
        projected: Projected | None = None,
    ) -> tuple[Tensor, Tensor | None, State]:
        """See :meth:`LogitTransform.step`; the state is the convolution's."""
        a_in = self._mix_carry(logits, visible, carry)
        if self.convolution is None:
            return a_in, visible, {}
        term, state = self.convolution.step(a_in, visible, state)
        return self._mix("beta", a_in, term), visible, state


def _before_sigmoid(number: float, num_heads: int) -> nn.Parameter:
    """What the sigmoid turns into a number: (heads,)."""
    return nn.Parameter(torch.full((num_heads,), number).logit())


def _build(options: EvolvingOptions, place: Place) -> EvolvingLogits:
    return EvolvingLogits(
        place.attention,
        place.num_heads,
        alpha=options.alpha,
        beta=options.beta,
        kernel_size=options.kernel_size,
        convolution=place.attention in options.convolution,
        skip=place.attention in options.skip,
        learned_mixing=options.learned_mixing,
        first=place.layer == 0,
    )


_EVERYWHERE = ",".join(ATTENTIONS)

register(
    Variant(
        name="evolving",
        summary="carry and convolution mixed into the logits (arXiv 2102.12895)",
        options=EvolvingOptions,
        build=_build,
        architectures=(
            # Table 5; appendix A.3, Table 10.
            Architecture("ea_transformer_lite", "lite", {"alpha": 0.1, "beta": 0.1}),
            Architecture("ea_transformer_base", "base", {"alpha": 0.5, "beta": 0.1}),
            Architecture(
                "ea_conv_transformer_lite",
                "lite",
                {"alpha": 0.1, "beta": 0.1},
                {"branch": "convolution"},
            ),
        ),
        cases=(
            {"alpha": 0.4, "beta": 0.5},
            {"alpha": 0.4, "beta": 0.5, "skip": _EVERYWHERE},
            {"alpha": 0.4, "beta": 0.5, "skip": _EVERYWHERE, "kernel_size": 5},
            {"alpha": 0.4, "beta": 0.5, "kernel_size": 1},
            {"alpha": 0.4, "convolution": "none", "skip": _EVERYWHERE},
            {"alpha": 0.4, "beta": 0.5, "convolution": "decoder", "skip": "none"},
            {"alpha": 0.4, "beta": 0.5, "skip": _EVERYWHERE, "learned_mixing": True},
        ),
        neutral={"alpha": 0.0, "beta": 0.0, "skip": _EVERYWHERE},
    )
)
