"""What beam search costs a GPU, by count: see traffic.py."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from .models import Decoding, Setting, baseline_of, batch
from .traffic import WAYS, Cost, Operators, counted_launches

SENTENCES, LENGTH, STEPS, BEAM = 64, 25, 25, 5
FEW = 3, 5


class _Search(Operators):
    """Counts a search's operators, those on its counters excepted, which stay on the CPU."""

    def on_gpu(self, tensors: list[Tensor]) -> bool:
        return not all(tensor.dim() == 0 and tensor.dtype == torch.long for tensor in tensors)


def decoding_step(arch: str, setting: Setting, way: str) -> Cost:
    """A step of beam search over 64 sentences, the mean of 25, the encoder's share included.

    Counted on few sentences, some of them padded; bytes grow by as much with every sentence.

    Args:
        arch: an EA architecture, for the baseline's sake too
        setting: the vocabulary counts; float32
        way: one of WAYS
    """
    name = baseline_of(arch) if way == WAYS[2] else arch
    decoding = Decoding(name, setting, BEAM)
    few, more = (_counted(decoding, batch(LENGTH, n * LENGTH, setting), way) for n in FEW)
    each = (more + few * -1) * (1 / (FEW[1] - FEW[0]))
    return (few + each * (SENTENCES - FEW[0])) * (1 / STEPS)


def _counted(decoding: Decoding, sample: dict[str, Any], way: str) -> Cost:
    from ea_fairseq.kernels.library import torch_alone

    with contextlib.ExitStack() as stack:
        stack.enter_context(torch_alone())
        operators = stack.enter_context(_Search())
        launches = stack.enter_context(_as_ours(operators)) if way == WAYS[1] else []
        decoding.search(sample, STEPS)
    return sum(launches, operators.cost)


@contextlib.contextmanager
def _as_ours(operators: Operators) -> Iterator[list[Cost]]:
    """Counts attentions as our kernels' launches; what they compute is still torch's, uncounted."""
    from ea_fairseq.variants.evolving import EvolvingLogits

    def replaced(name: str) -> Callable[..., Any]:
        plain = getattr(EvolvingLogits, name)

        def attend(self: EvolvingLogits, *args: Any, **kwargs: Any) -> Any:
            with mock.patch.object(EvolvingLogits, "_way", lambda *_: "triton"):
                plain(self, *args, **kwargs)
            with operators.paused():
                return plain(self, *args, **kwargs)

        return attend

    with contextlib.ExitStack() as stack:
        for module in ("fused_attention", "fused_step"):
            path = f"ea_fairseq.kernels.{module}.way"
            stack.enter_context(mock.patch(path, lambda *_: "triton"))
        for name in ("attend", "attend_step"):
            stack.enter_context(mock.patch.object(EvolvingLogits, name, replaced(name)))
        yield stack.enter_context(counted_launches())
