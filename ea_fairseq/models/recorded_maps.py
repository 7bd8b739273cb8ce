"""The probabilities of a decoder's self-attention, for those who look at them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from ..errors import UserError
from .branches import BranchedAttention
from .multihead_attention import TransformedAttention


@contextmanager
def recorded_self_attention(decoder: nn.Module) -> Iterator[list[Tensor]]:
    """Records, for as long as the block lasts, what each layer's self-attention attends to.

    Attentions then go the way that has maps, in training slower than the fused one.

    Args:
        decoder: of a model of this project

    Yields:
        a list, to which every layer that runs adds its probabilities before dropout: (heads, batch,
        tgt_len, src_len), float32 at least

    Raises:
        UserError: the decoder is fairseq's, which in training averages over heads
    """
    maps: list[Tensor] = []
    hooks = []

    def ask(module: nn.Module, args: Any, kwargs: Any) -> Any:
        return args, kwargs | {"need_weights": True}

    def keep(module: nn.Module, args: Any, output: Any) -> None:
        maps.append(output[1])

    for layer in decoder.layers.children():  # to iterate over the list itself would drop layers
        if not isinstance(layer.self_attn, TransformedAttention | BranchedAttention):
            raise UserError(
                "fairseq's own attention does not give the maps of its heads: --arch "
                "ea_transformer_lite (or _base) with --ea-variant plain is the same model and does"
            )
        hooks.append(layer.self_attn.register_forward_pre_hook(ask, with_kwargs=True))
        hooks.append(layer.self_attn.register_forward_hook(keep))
    try:
        yield maps
    finally:
        for hook in hooks:
            hook.remove()
