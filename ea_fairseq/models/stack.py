"""What the loops of encoder and decoder share: building a layer, and who sees whom."""

from typing import Any

from fairseq.distributed import fsdp_wrap
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor, nn


def next_layer(stack: nn.Module) -> int:
    """The index of the layer that a stack is building: fairseq does not tell."""
    index = getattr(stack, "layers_built", 0)
    stack.layers_built = index + 1
    return index


def wrap_layer(layer: nn.Module, cfg: Any) -> nn.Module:
    """Activation checkpointing and FSDP, as fairseq wraps its own layers."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    # A checkpointed layer must be wrapped by FSDP whatever its size.
    min_num_params = 0 if cfg.checkpoint_activations else cfg.min_params_to_wrap
    return fsdp_wrap(layer, min_num_params=min_num_params)


def pairs_visible(queries_padding: Tensor | None, keys_padding: Tensor | None) -> Tensor | None:
    """True where neither query nor key is padding.

    Args:
        queries_padding: bool, (batch, tgt_len), True = padding, or None for no padding
        keys_padding: bool, (batch, src_len), or None

    Returns:
        bool, broadcastable to (batch, 1, tgt_len, src_len), or None where all is visible
    """
    queries = None if queries_padding is None else ~queries_padding[:, None, :, None]
    keys = None if keys_padding is None else ~keys_padding[:, None, None, :]
    if queries is None or keys is None:
        return keys if queries is None else queries
    return queries & keys
