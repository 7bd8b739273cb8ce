"""Predictive attention, the encoder-only ancestor of evolving attention."""

from dataclasses import dataclass

from torch import Tensor, nn

from ..contract import LogitTransform, Place, Projected, zero_hidden
from ..convolution import EncoderConvolution
from ..options import VariantOptions, fraction, one_of, option
from ..registry import Architecture, Variant, register


@dataclass(frozen=True)
class PredictiveOptions(VariantOptions):
    """Options of predictive attention; sections are those of the PA-Transformer's paper."""

    alpha: float = option(
        0.1, fraction, "A", "weight of the prediction from the layer below, in [0, 1] (equation 4)"
    )
    prediction_layers: int = option(
        1,
        one_of(0, 1, 2, 3),
        "M",
        "3 x 3 convolutions of a prediction, one after the other: 0 (the previous layer's logits "
        "themselves, the paper's Transformer with RC), 1, 2 or 3 (sections 3.3 and 5)",
    )


class PredictiveLogits(LogitTransform):
    """Predictive Attention Transformer (ICLR 2021 submission), equation (4), section 3.3.

    Z = alpha * CNN(carry) + (1 - alpha) * logits    (logits alone in the first layer)

    CNN is ``prediction_layers`` times relu(conv(...)), 3 x 3 over the maps of all heads.

    Differs from the paper: hidden entries count as 0 wherever a convolution reads them, and in the
    carry; the paper does not say what its convolutions see there.

    Args:
        num_heads: heads of the attention
        alpha: weight of the prediction, in [0, 1]
        prediction_layers: number of convolutions; with 0, CNN(carry) = carry
        first: whether this is the first layer, which predicts nothing and has no convolutions
    """

    uses_carry = True

    def __init__(self, num_heads: int, alpha: float, prediction_layers: int, first: bool):
        super().__init__()
        self.alpha = alpha
        count = 0 if first else prediction_layers
        self.convolutions = nn.ModuleList(EncoderConvolution(num_heads, 3) for _ in range(count))

    @property
    def reads_neighbours(self) -> bool:
        """See :attr:`LogitTransform.reads_neighbours`."""
        return len(self.convolutions) > 0

    def forward(
        self,
        logits: Tensor,
        visible: Tensor | None,
        carry: Tensor | None,
        projected: Projected | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """See :meth:`LogitTransform.forward`."""
        if carry is not None:
            carry = zero_hidden(carry, visible)  # the layer below may have hidden less
            for convolution in self.convolutions:
                carry = convolution(carry, visible)
            logits = logits.lerp(carry, self.alpha)
        return zero_hidden(logits, visible), visible


def _build(options: PredictiveOptions, place: Place) -> PredictiveLogits:
    return PredictiveLogits(
        place.num_heads, options.alpha, options.prediction_layers, first=place.layer == 0
    )


register(
    Variant(
        name="predictive",
        summary="the encoder's layers predict the logits of the layer above (PA-Transformer)",
        options=PredictiveOptions,
        build=_build,
        # Section 4.1.1: in the encoder alone.
        serves=("encoder",),
        # Section 4.1.1: alpha for translation; the hidden size of 160 is Lite's.
        architectures=(
            Architecture("pa_transformer_lite", "lite", {"alpha": 0.1}),
            # Appendix B.1.
            Architecture(
                "pa_conv_transformer_lite", "lite", {"alpha": 0.1}, {"branch": "convolution"}
            ),
        ),
        cases=(
            {"alpha": 0.4},
            {"alpha": 0.4, "prediction_layers": 0},
            {"alpha": 0.4, "prediction_layers": 3},
        ),
        neutral={"alpha": 0.0},
    )
)
