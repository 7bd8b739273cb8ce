"""What a training step keeps for its gradients, by count: nothing is measured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

import torch
from torch import Tensor

from .models import Setting, Training, baseline_of, batch
from .traffic import WAYS, counted_launches

FEW = 2, 3  # sentences


def kept_bytes(arch: str, length: int, tokens: int, setting: Setting, way: str) -> float:
    """Bytes of all tensors that the forward pass of an update keeps, weights excepted.

    Counted on few sentences, some of them padded; it grows by as much with every sentence.

    Args:
        arch: an EA architecture, for the baseline's sake too
        length: of source and target
        tokens: of a batch
        setting: the type and the vocabulary count
        way: one of WAYS
    """
    name = baseline_of(arch) if way == WAYS[2] else arch
    training = Training(name, setting)
    few, more = (_kept(training, batch(length, n * length, setting), way) for n in FEW)
    each = (more - few) / (FEW[1] - FEW[0])
    return few + each * (tokens / length - FEW[0])


def weight_bytes(arch: str, setting: Setting) -> int:
    """Bytes of weights, gradients and Adam's two moments, float32."""
    return 16 * sum(p.numel() for p in Training(arch, setting).model.parameters())


def _kept(training: Training, sample: dict, way: str) -> int:
    weights = {p.untyped_storage().data_ptr() for p in training.model.parameters()}
    kept: dict[int, Tensor] = {}  # the tensors themselves: another may come to lie where one was

    def keep(tensor: Tensor) -> Tensor:
        tensor = tensor.detach()  # an output that its own node keeps would never be freed
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with _as_on_a_gpu(way), hooks, training.setting.precision():
        training.criterion(training.model, sample)
    return sum(
        tensor.untyped_storage().nbytes()
        for place, tensor in kept.items()
        if place not in weights and tensor.dim() > 0
    )


@contextlib.contextmanager
def _as_on_a_gpu(way: str) -> Iterator[None]:
    """A GPU's dropout, which keeps a byte for each number, and our operators without their launches
    where that is the way."""
    from ea_fairseq.kernels.library import torch_alone

    def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return torch.native_dropout(x, p, training)[0] if training and p > 0 else x

    with contextlib.ExitStack() as stack:
        stack.enter_context(torch_alone())
        stack.enter_context(mock.patch("torch.nn.functional.dropout", dropout))
        if way == WAYS[1]:
            stack.enter_context(counted_launches())
            for module in ("variants.evolving", "kernels.fused_attention"):
                stack.enter_context(mock.patch(f"ea_fairseq.{module}.way", lambda *_: "triton"))
        yield
