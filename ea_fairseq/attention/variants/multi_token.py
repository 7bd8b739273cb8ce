"""Multi-token attention: a weight depends on several queries, keys and heads."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import UserError
from ..contract import (
    LogitTransform,
    Place,
    Projected,
    State,
    at_least_float32,
    mix_heads,
    zero_hidden,
)
from ..convolution import convolve
from ..options import VariantOptions, one_of, option, switch
from ..registry import Architecture, Variant, register


@dataclass(frozen=True)
class MultiTokenOptions(VariantOptions):
    """Options of multi-token attention."""

    query_kernel: int = option(
        6,
        one_of(*range(1, 16)),
        "C",
        "queries that a logit is convolved over, 1 to 15: its own and earlier ones, in the encoder "
        "later ones too",
    )
    key_kernel: int = option(
        11,
        one_of(*range(1, 32, 2), kind="odd, "),
        "C",
        "keys that a logit is convolved over, odd, 1 to 31; with one query and one key there is "
        "no convolution",
    )
    head_group: int = option(
        2,
        one_of(*range(1, 17)),
        "C",
        "neighbouring heads whose probabilities are mixed, 1 to 16, a divisor of the number of "
        "heads; 1 for none",
    )
    head_norm: bool = option(
        True, switch, "true|false", "whether the output of each head is normalised"
    )


class MultiTokenAttention(LogitTransform):
    """Multi-token attention (arXiv 2504.00927), sections 3.1 to 3.3.

    Per head, with C queries and D keys, u = C - 1 and c = (D - 1) / 2:

    Z_ts = sum_ab kernel_ab L_(t+a-u)(s+b-c)         a = 0..C-1, b = 0..D-1, hidden L = 0
    P    = softmax(Z), then in each group of heads P_h = sum_g mixing_hg P_g
    O_h  = scale * gain * P_h V_h / rms(P_h V_h)     scale = 0.2 + 0.6 exp(-0.3 layer)

    Kernels and mixing start as identities, gains as 1. The norm, its place and its scale, with
    layers counted from 0, are those of the authors' code (facebookresearch/RAM, projects/mta).

    Differs from the paper: it is about causal self-attention alone. Encoder-decoder attention
    convolves over earlier queries too, the encoder over queries on both sides: u = C / 2, rounded
    down. There every fourth layer has a convolution; here all have.

    Args:
        place: the attention
        query_kernel: C
        key_kernel: D
        head_group: heads of a group
        head_norm: whether each head's output is normalised
    """

    def __init__(
        self, place: Place, query_kernel: int, key_kernel: int, head_group: int, head_norm: bool
    ):
        super().__init__()
        both_sides = place.attention == "encoder"
        self.earlier = query_kernel // 2 if both_sides else query_kernel - 1  # u
        self.later = query_kernel - 1 - self.earlier
        self.beside = key_kernel // 2  # c
        self.kernel = self.mixing = self.gain = None
        if query_kernel * key_kernel > 1:
            kernel = torch.zeros(place.num_heads, 1, query_kernel, key_kernel)
            kernel[:, :, self.earlier, self.beside] = 1
            self.kernel = nn.Parameter(kernel)
        if head_group > 1:
            groups = place.num_heads // head_group
            self.mixing = nn.Parameter(torch.eye(head_group).repeat(groups, 1, 1))
        if head_norm:
            self.scale = 0.2 + 0.6 * math.exp(-0.3 * place.layer)
            self.gain = nn.Parameter(torch.ones(place.head_dim))

    @property
    def reads_neighbours(self) -> bool:
        """See :attr:`LogitTransform.reads_neighbours`."""
        return True

    def forward(
        self,
        logits: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        projected: Projected | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """See :meth:`LogitTransform.forward`."""
        logits = zero_hidden(logits, visible)
        if self.kernel is not None:
            logits = self._convolve(F.pad(logits, (0, 0, self.earlier, self.later)))
        return zero_hidden(logits, visible), visible

    def step(
        self,
        logits: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        state: State,
        projected: Projected | None = None,
    ) -> tuple[Tensor, Tensor | None, State]:
        """See :meth:`LogitTransform.step`.

        The state has "rows", (batch, heads, C - 1, columns): the last rows of L, 0 where hidden.
        The decoder's have fewer columns than this row, whose last key they could not see.
        """
        logits = zero_hidden(logits, visible)
        if self.kernel is None:
            return logits, visible, {}
        columns = logits.size(3)
        if state:
            rows = state["rows"]
            rows = torch.cat([F.pad(rows, (0, columns - rows.size(3))), logits], dim=2)
        else:
            rows = F.pad(logits, (0, 0, self.earlier, 0))
        logits = zero_hidden(self._convolve(rows), visible)
        return logits, visible, {"rows": rows[:, :, 1:]}

    def mix_probs(self, probs: Tensor, visible: Tensor | None) -> Tensor:
        """See :meth:`LogitTransform.mix_probs`."""
        return probs if self.mixing is None else mix_heads(probs, self.mixing)

    def mix_output(self, output: Tensor) -> Tensor:
        """See :meth:`LogitTransform.mix_output`; in float32 at least."""
        if self.gain is None:
            return output
        wide = at_least_float32(output)
        rms = (wide.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
        return (self.scale * self.gain.to(wide.dtype) * wide / rms).to(output.dtype)

    def _convolve(self, rows: Tensor) -> Tensor:
        """(batch, heads, C - 1 + tgt_len, src_len) to (batch, heads, tgt_len, src_len)."""
        rows = F.pad(rows, (self.beside, self.beside))
        return convolve(rows, self.kernel.to(rows.dtype), groups=rows.size(1))


def _build(options: MultiTokenOptions, place: Place) -> MultiTokenAttention:
    if place.num_heads % options.head_group:
        raise UserError(
            f"--ea-head-group must divide the {place.num_heads} heads of {place.attention} "
            f"attention, not {options.head_group}"
        )
    if place.is_cut and options.head_norm:
        side = "encoder" if place.attention == "encoder" else "decoder"
        raise UserError(
            f"--{side}-layers-to-keep cannot be combined with --ea-head-norm true: a layer's place "
            "in its stack decides the norm's scale"
        )
    return MultiTokenAttention(
        place, options.query_kernel, options.key_kernel, options.head_group, options.head_norm
    )


register(
    Variant(
        name="multi_token",
        summary="convolution over queries and keys, groups of heads mixed (arXiv 2504.00927)",
        options=MultiTokenOptions,
        build=_build,
        # Sizes of the paper's language models.
        architectures=(Architecture("mta_transformer_lite", "lite"),),
        cases=(
            {},
            {"query_kernel": 3, "key_kernel": 3, "head_group": 1, "head_norm": False},
            {"query_kernel": 1, "key_kernel": 1, "head_group": 4},
            {"query_kernel": 2, "key_kernel": 1, "head_norm": False},
        ),
        neutral={"head_norm": False},
    )
)
