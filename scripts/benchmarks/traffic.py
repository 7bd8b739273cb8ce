"""What an attention costs a GPU: launches, bytes and operations, and the time that these allow.

Counted, not measured: torch's operators and our launches run on tensors without numbers (torch's
meta device), and each operator or launch is taken to read or write each of its tensors once, our
gradients those that they read twice, twice; of the decoder's maps our launches, which leave out
later keys, the lines of memory that hold the rest.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .models import Setting, Training, batch

WAYS = ("torch alone", "our kernels", "baseline, fused")


@dataclass(frozen=True)
class Chip:
    """A GPU as its maker describes it: bytes and operations per second, dense."""

    bandwidth: float
    plain: float  # float32
    products: dict[torch.dtype, float]  # on tensor cores
    launch: float = 5e-6  # seconds that a launch takes from a program in Python; an assumption


def _chip(bandwidth: float, plain: float, single: float, half: float) -> Chip:
    products = {torch.float32: single, torch.float16: half, torch.bfloat16: half}
    return Chip(bandwidth, plain, products)


CHIPS = {
    "A100": _chip(2.04e12, 19.5e12, 156e12, 312e12),
    "H100": _chip(3.35e12, 67e12, 494e12, 989e12),
    "H200": _chip(4.8e12, 67e12, 494e12, 989e12),
}


@dataclass(frozen=True)
class Cost:
    """Of some work. products: operations that tensor cores do; plain: of convolutions."""

    launches: float = 0
    bytes: float = 0
    products: float = 0
    plain: float = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(_fields(self), _fields(other), strict=True)))

    def __mul__(self, factor: float) -> Cost:
        return Cost(*(factor * a for a in _fields(self)))

    def seconds(self, chip: Chip, dtype: torch.dtype) -> float:
        """The least that bandwidth or arithmetic, and the launches one after the other, allow."""
        arithmetic = self.products / chip.products[dtype] + self.plain / chip.plain
        return max(self.launches * chip.launch, self.bytes / chip.bandwidth, arithmetic)


def _fields(cost: Cost) -> tuple[float, ...]:
    return cost.launches, cost.bytes, cost.products, cost.plain


@dataclass(frozen=True)
class Shape:
    """One attention of a batch."""

    attention: str
    batch: int
    heads: int
    tgt_len: int
    src_len: int
    head_dim: int
    kernel_size: int = 3
    carry: bool = False  # reads the layer below's map and writes one for the layer above
    dtype: torch.dtype = torch.float32

    @property
    def causal(self) -> bool:
        """Whether later keys are hidden."""
        return self.attention == "decoder"

    def product(self) -> float:
        """Operations of one product of queries and keys, or of probabilities and values."""
        return 2 * self.batch * self.heads * self.tgt_len * self.src_len * self.head_dim

    def convolution(self) -> float:
        area = self.batch * self.tgt_len * self.src_len
        return 2 * area * self.heads**2 * self.kernel_size**2


def attention(shape: Shape, way: str) -> Cost:
    """Forward and backward of one attention between its projections."""
    products, convolutions = {
        "torch alone": (6, 3),
        "our kernels": (7, 4),  # maps are computed again
        "baseline, fused": (7, 0),
    }[way]
    if way == "our kernels":
        of_blocks, of_pixels = _shares(shape)
        products, convolutions = products * of_blocks, convolutions * of_pixels
    count = {"torch alone": _by_torch, "our kernels": _by_us, "baseline, fused": _fused}[way]
    arithmetic = Cost(products=products * shape.product(), plain=convolutions * shape.convolution())
    return count(shape) + arithmetic


def _shares(shape: Shape) -> tuple[float, float]:
    """What our kernels compute of a map's blocks, and of its pixels."""
    from ea_fairseq.kernels.triton_attention import blocks

    if not shape.causal:
        return 1.0, 1.0
    count = -(-shape.tgt_len // blocks(shape.dtype, shape.head_dim)["ROWS"])
    return (count + 1) / (2 * count), (shape.tgt_len + 1) / (2 * shape.tgt_len)


def _inputs(shape: Shape, device: str) -> tuple[Tensor, ...]:
    lengths = shape.tgt_len, shape.src_len, shape.src_len
    queries, keys, values = (
        torch.empty(
            *(length, shape.batch, shape.heads * shape.head_dim), dtype=shape.dtype, device=device
        )
        .view(length, shape.batch, shape.heads, shape.head_dim)
        .permute(1, 2, 0, 3)
        .requires_grad_()
        for length in lengths
    )
    visible = torch.ones(
        *(shape.batch, 1, shape.tgt_len, shape.src_len), dtype=torch.bool, device=device
    )
    carry = None
    if shape.carry:
        sizes = shape.batch, shape.heads, shape.tgt_len, shape.src_len
        carry = torch.empty(sizes, device=device, requires_grad=True)
    return queries, keys, values, visible, carry


def _by_torch(shape: Shape) -> Cost:
    from ea_fairseq.kernels.library import torch_alone
    from ea_fairseq.variants.evolving import EvolvingLogits

    queries, keys, values, visible, carry = _inputs(shape, "meta")
    settings = {"alpha": 0.1, "beta": 0.1, "convolution": True, "skip": shape.carry}
    transform = EvolvingLogits(
        shape.attention, shape.heads, kernel_size=shape.kernel_size, **settings
    ).to("meta")
    # The meta device knows no automatic mixed precision to switch off.
    no_autocast = mock.patch("torch.autocast", lambda *_, **__: contextlib.nullcontext())
    with torch_alone(), no_autocast, Operators() as operators:
        output, evolved, _ = transform.attend(queries, keys, values, 0.1, visible, carry)
        outputs = [output] if evolved is None else [output, evolved]
        torch.autograd.backward(outputs, [torch.empty_like(tensor) for tensor in outputs])
    return operators.cost


def _by_us(shape: Shape) -> Cost:
    from ea_fairseq.kernels import triton_attention

    queries, keys, values, visible, carry = (
        tensor if tensor is None else tensor.detach() for tensor in _inputs(shape, "meta")
    )
    sizes = shape.heads, shape.heads, shape.kernel_size, shape.kernel_size
    kernel, bias = (torch.empty(size, device="meta") for size in (sizes, sizes[:1]))
    inputs = queries, keys, values, visible, carry, kernel, bias, None
    constants = 0.1, 0.1, 0.1, 0, 0, shape.causal, shape.causal, 0.0
    with counted_launches() as launches:
        output, evolved, _, rows = triton_attention.forward(*inputs, *constants, shape.carry, False)
        triton_attention.backward(
            *(output, evolved if shape.carry else None, None),
            *(*inputs, output, rows, None, *constants),
        )
    return sum(launches, Cost())


def _fused(shape: Shape) -> Cost:
    """FlashAttention: 1 launch forward, 3 backward (rows' sums, gradients, that of the queries to
    the model's type); a number per row, and the queries' gradient once in float32."""
    queries, keys, values, *_ = _inputs(shape, "meta")
    heads = sum(map(_bytes, (queries, keys, values)))
    output, rows = _bytes(queries), 4 * queries[..., 0].numel()
    forward = heads + output + rows
    backward = 2 * output + rows + heads + output + rows + heads + 3 * 4 * queries.numel()
    return Cost(launches=4, bytes=forward + backward)


def _bytes(tensor: Tensor) -> int:
    """Of the numbers that lie in memory: what is expanded counts once."""
    sizes = (n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or n == 0)
    return torch.Size(sizes).numel() * tensor.element_size()


LINE = 128  # bytes that are read or written together, at most
MAPS = {"carry", "mixed", "evolved", "visible", "active", "grad", "grad_evolved", "grad_mixed"}
LEAVING = {"evolved", "grad_mixed"}  # written whole by kernels that are told so


@functools.cache
def _causal_share(length: int, size: int) -> float:
    """What of a map's lines its diagonal and below have, in numbers of ``size`` bytes."""
    lines, after = 0, 0
    for row in range(length):
        first = row * length * size // LINE
        end = -(-(row * length + row + 1) * size // LINE)
        lines += end - max(first, after)
        after = end
    return lines / -(-length * length * size // LINE)


class Operators(TorchDispatchMode):
    """Counts torch's operators, views and our own excepted."""

    def __init__(self):
        super().__init__()
        self.cost = Cost()
        self.counting = True

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside the context nothing is counted."""
        self.counting = False
        try:
            yield
        finally:
            self.counting = True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        returned = func._schema.returns
        is_view = returned and all(r.alias_info and not r.alias_info.is_write for r in returned)
        moves = not any(part in func.name() for part in ("empty", "detach", "ea_fairseq"))
        if self.counting and moves and not is_view:
            leaves = tree_leaves((args, kwargs, result))
            tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            if self.on_gpu(tensors):
                self.cost += Cost(launches=1, bytes=sum(map(_bytes, tensors)))
        return result

    def on_gpu(self, tensors: list[Tensor]) -> bool:
        """Whether an operator on these runs on the GPU where there is one."""
        return True


@contextlib.contextmanager
def counted_launches() -> Iterator[list[Cost]]:
    """Inside the context our launches are counted in the place of being done."""
    from ea_fairseq.kernels import triton_attention_kernels, triton_step_kernels

    found: list[Cost] = []

    class Counted:
        def __init__(self, name: str, kernel: Any):
            # Gradients of maps: written over what was read, or read for two gradients.
            self.first = 2 if "gradient" in name else 1
            self.names = list(inspect.signature(kernel.fn).parameters)

        def __getitem__(self, grid: Any) -> Callable[..., None]:
            def launch(*args, **constants):
                cut = MAPS if constants.get("CAUSAL") else set()
                cut = cut - LEAVING if constants.get("WHOLE") else cut
                moved = 0
                for index, (name, tensor) in enumerate(zip(self.names, args, strict=False)):
                    if isinstance(tensor, Tensor):
                        times = 1 if index else self.first
                        if name in cut:
                            times *= _causal_share(tensor.size(-1), tensor.element_size())
                        moved += times * _bytes(tensor)
                found.append(Cost(launches=1, bytes=moved))

            return launch

    launched = {
        triton_attention_kernels: "mix evolve attend attend_gradient evolve_gradient "
        "products_gradient",
        triton_step_kernels: "mix_step evolve_step attend_step",
    }
    with contextlib.ExitStack() as stack:
        for kernels, names in launched.items():
            counted = {name: Counted(name, getattr(kernels, name)) for name in names.split()}
            stack.enter_context(mock.patch.multiple(kernels, **counted))
        yield found


# ---- A training step


@dataclass(frozen=True)
class Model:
    """What the counts need to know of an architecture; the skip connection is the encoder's."""

    arch: str
    heads: int
    head_dim: int
    layers: int = 6


#: By name.
MODELS = {
    model.arch: model
    for model in (Model("ea_transformer_lite", 4, 40), Model("ea_transformer_base", 8, 64))
}


def step_attentions(model: Model, length: int, tokens: int, dtype: torch.dtype, way: str) -> Cost:
    """All attentions of an update on ``tokens`` in sentences of ``length``."""
    from ea_fairseq.variants import ATTENTIONS

    total = Cost()
    for name in ATTENTIONS:
        shape = (name, max(1, tokens // length), model.heads, length, length, model.head_dim)
        first = attention(Shape(*shape, carry=False, dtype=dtype), way)
        above = attention(Shape(*shape, carry=name == "encoder", dtype=dtype), way)
        total += first + above * (model.layers - 1)
    return total


def rest_of_step(model: Model, setting: Setting, tokens: int) -> Cost:
    """An update without its attentions, the same for every way, in float32.

    Counted on two small batches; it grows by as much with every token.
    """
    from ea_fairseq.kernels.library import torch_alone

    length, few = 8, 64
    costs = []
    for count in (few, 2 * few):
        training = Training(model.arch, setting)
        sample = batch(length, count, setting)
        with torch_alone(), Operators() as operators:
            training.step(sample)
        between = step_attentions(model, length, count, torch.float32, "torch alone")
        weights = sum(p.numel() for p in training.model.parameters())
        weights -= training.model.encoder.embed_tokens.weight.numel()  # looked up, not multiplied
        counted = operators.cost
        costs.append(
            Cost(
                launches=counted.launches - between.launches,
                bytes=counted.bytes - between.bytes,
                products=6 * weights * count,
            )
        )
    one, two = costs
    return one + (two + one * -1) * ((tokens - few) / few)
