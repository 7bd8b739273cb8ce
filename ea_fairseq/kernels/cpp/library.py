"""The compiled library: built when first needed (build.py), loaded, and called.

It is never required. Where there is no compiler, or ``EA_FAIRSEQ_NATIVE=0``, everything runs on
torch alone, with equal results.
"""

import contextlib
import ctypes
import functools
import logging
import os
import re
import subprocess
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from ...errors import UserError
from .build import built, compiler

logger = logging.getLogger(__name__)

SWITCH = "EA_FAIRSEQ_NATIVE"
CHOICES = {
    "0": "torch alone",
    "1": "compiled, default",
    "cpp": "compiled on the CPU alone",
    "triton": "compiled by Triton alone, wherever it runs",
}

_switched_off: ContextVar[bool] = ContextVar("torch alone", default=False)


@contextlib.contextmanager
def torch_alone() -> Iterator[None]:
    """Inside the context, nothing compiled is used: for comparisons and for counting products."""
    token = _switched_off.set(True)
    try:
        yield
    finally:
        _switched_off.reset(token)


def is_switched_off() -> bool:
    """Whether the code at hand runs inside :func:`torch_alone`."""
    return _switched_off.get()


def switch() -> str:
    """What the user wants compiled: one of CHOICES.

    Raises:
        UserError: where the environment has another value
    """
    chosen = os.environ.get(SWITCH, "1")
    if chosen not in CHOICES:
        choices = ", ".join(f"{choice} ({means})" for choice, means in CHOICES.items())
        raise UserError(f"{SWITCH}={chosen}: choices are {choices}")
    return chosen


def constant_when_traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of what does not change while a program runs: where torch.compile traces it, it is
    called and its result is a constant.

    What ``torch.compiler.assume_constant_result`` does, which imports all of torch's compiler: at
    every start of every command, most of which compile nothing.
    """
    function._dynamo_marked_constant = True
    return function


def is_available(tensor: Tensor) -> bool:
    """Whether the library can work on this tensor, on this machine."""
    return tensor.device.type == "cpu" and _works_on(tensor.dtype)


@constant_when_traced
def _works_on(dtype: torch.dtype) -> bool:
    single_or_double = dtype in (torch.float32, torch.float64)
    return single_or_double and not is_switched_off() and load_library() is not None


def first_gradient(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of an autograd function's ``backward`` that has no gradient of its own.

    torch's ``once_differentiable`` lets the result pass as a constant where the incoming gradient
    is one, though it depends on the inputs: second derivatives would lack a part without a word.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *grads: Tensor | None) -> Any:
        if torch.is_grad_enabled():
            raise UserError(
                "what is compiled has no second derivatives (create_graph=True): "
                f"set {SWITCH}=0 for torch alone"
            )
        return backward(ctx, *grads)

    return checked


def needs_gradient(*tensors: Tensor | None) -> bool:
    """Whether what is computed from these will be asked for its gradient."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


@functools.cache
def load_library() -> ctypes.CDLL | None:
    """The library, built if need be, or None where it is switched off or cannot be built.

    Raises:
        UserError: where the switch, or ``EA_FAIRSEQ_MARCH``, has a value that it does not know
    """
    if switch() not in ("1", "cpp"):
        return None
    command = compiler()
    if command is None:
        named = os.environ.get("CXX")
        logger.warning(
            "no C++ compiler (%s): torch alone is used, which is slower",
            f"CXX is {named!r}" if named else "install g++, or name another in CXX",
        )
        return None
    try:
        return ctypes.CDLL(str(built(command)))
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning(
            "the compiled attention did not build (%s): torch alone is used, which is slower",
            _reason(error),
        )
        return None


def _reason(error: Exception) -> str:
    """The line of a compiler's output that has the error, not those that lead to it."""
    lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
    # A linker's own line comes before the one that says that there was one.
    named = r"\berror: (?!ld returned|linker command failed)"
    errors = [line for line in lines if re.search(named, line)]
    return (errors or lines or [type(error).__name__])[0].strip()


class Held:
    """Something that the library holds, by its address there, as long as the object lives."""

    def hold(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """Makes it, and frees it with the object; at the end of the process not at all, when
        another thread may still be in it.

        Args:
            name: the library's functions are ``NAME_new`` and ``NAME_free``
            arguments: of ``NAME_new``

        Returns:
            its address
        """
        handle = ctypes.c_void_p()
        call(f"{name}_new", *arguments, ctypes.byref(handle))
        weakref.finalize(self, getattr(load_library(), f"{name}_free"), handle).atexit = False
        return handle

    def __reduce__(self) -> Any:
        # Of a copy, here or in another process, the address would be that of something else.
        raise TypeError(f"{type(self).__name__} is neither copied nor pickled: make another")


class Heads(ctypes.Structure):
    """The structure of lines.h: numbers of head_dim by batch, head and position."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("batch_stride", "head_stride", "row_stride")),
    ]


def call(name: str, *arguments: Any, dtype: torch.dtype | None = None) -> None:
    """Calls one of the library's functions.

    Args:
        name: of the function
        arguments: ctypes'
        dtype: chooses its version for float32 or float64, where there are two

    Raises:
        MemoryError: there is not enough
        RuntimeError: anything else that the function could not do
    """
    if dtype is not None:
        name += "_float" if dtype == torch.float32 else "_double"
    function = getattr(load_library(), name)
    function.restype = ctypes.c_char_p
    message = function(*arguments)
    if message is not None:
        kind = MemoryError if message == b"not enough memory" else RuntimeError
        raise kind(f"the compiled library, {name}: {message.decode()}")


def check_types(queries: Tensor, **others: Tensor | None) -> None:
    """Refuses tensors of other numbers or of another device than the queries: their memory would
    be read as if it were the queries'.

    Raises:
        UserError: naming the tensor
    """
    for name, tensor in others.items():
        if tensor is not None and (tensor.dtype, tensor.device) != (queries.dtype, queries.device):
            raise UserError(
                f"{name} must be {queries.dtype} on {queries.device}, as the queries are, not "
                f"{tensor.dtype} on {tensor.device}"
            )


def with_rows(tensor: Tensor) -> Tensor:
    """The tensor with the numbers of its last dimension one after the other, copied if need be."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def visible_rows(visible: Tensor | None, bsz: int, tgt_len: int, src_len: int) -> Tensor | None:
    """What is broadcastable to (batch, 1, tgt_len, src_len) in that shape, in whole rows."""
    return None if visible is None else with_rows(visible.expand(bsz, 1, tgt_len, src_len))


def heads_of(tensor: Tensor) -> Heads:
    """A tensor (batch, heads, positions, head_dim) whose last stride is 1."""
    return Heads(tensor.data_ptr(), *tensor.stride()[:3])


def address(tensor: Tensor | None) -> int | None:
    """Where its numbers begin; a null pointer for None."""
    return None if tensor is None else tensor.data_ptr()


def fields(kind: type, names: str) -> list[tuple[str, type]]:
    """Fields of one type for a C structure."""
    return [(name, kind) for name in names.split()]
