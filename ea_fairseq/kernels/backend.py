"""Chooses how attention is computed: by torch, C++ or Triton."""

import functools
import logging
import os
import re

import torch
from torch import Tensor

from .cpp.library import SWITCH, constant_when_traced, is_available, is_switched_off, switch

logger = logging.getLogger(__name__)

# What Triton's kernels are made for.
TYPES = (torch.float32, torch.float16, torch.bfloat16)
KERNEL_SIZES = (1, 3, 5)
MAX_HEADS, MAX_HEAD_DIM = 16, 64
# Of a tensor: places are 32-bit integers, and the last blocks reach beyond the last number.
MAX_NUMBERS = 2**31 - 2**16
MAX_LENGTH = 65_535 * 32  # of rows or columns: what a grid has, in blocks of 32
CAPABILITY = (8, 0)  # of NVIDIA's chips
VERSIONS = (3, 4), (4, 0)  # of Triton: from, to before


def chosen_backend(queries: Tensor, src_len: int, kernel_size: int, cached: int = 0) -> str:
    """How evolving attention with a convolution is computed: "torch", "cpp" or "triton".

    Args:
        queries: (batch, heads, tgt_len, head_dim)
        src_len: keys of each
        kernel_size: of the convolution
        cached: numbers of the keys that decoding keeps

    Raises:
        UserError: where ``EA_FAIRSEQ_NATIVE`` has a value that it does not know
    """
    if is_available(queries):
        return "cpp"
    batch, heads, tgt_len, head_dim = queries.shape
    if batch == 0 or tgt_len == 0 or src_len == 0:  # nothing to launch
        return "torch"
    if not _triton_runs_on(queries.device.type, queries.device.index):
        return "torch"
    if queries.dtype not in TYPES:
        return _torch_instead(f"{queries.dtype} numbers")
    if heads > MAX_HEADS:
        return _torch_instead(f"{heads} heads")
    if head_dim > MAX_HEAD_DIM:
        return _torch_instead(f"a head_dim of {head_dim}")
    if kernel_size not in KERNEL_SIZES:
        return _torch_instead(f"a kernel of {kernel_size}")
    numbers = max(batch * heads * tgt_len * src_len, cached)
    if numbers > MAX_NUMBERS or max(tgt_len, src_len) > MAX_LENGTH:
        return _torch_instead("maps this large")
    return "triton"


@constant_when_traced
def _triton_runs_on(kind: str, index: int | None) -> bool:
    if is_switched_off():
        return False
    if kind == "cuda":
        return _triton_runs_on_gpu(index)
    return kind == "cpu" and switch() == "triton" and interprets()


def interprets() -> bool:
    """Whether Triton interprets its kernels on the CPU, which shows errors and takes its time."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def _triton_runs_on_gpu(index: int | None) -> bool:
    chosen = switch()
    if chosen not in ("1", "triton"):
        return False
    try:
        import triton
    except ImportError as error:
        _say(f"Triton cannot be imported ({error})")
        return False
    if interprets():
        _say("Triton interprets its kernels (TRITON_INTERPRET=1), which is for a CPU")
        return False
    name, capability = torch.cuda.get_device_name(index), torch.cuda.get_device_capability(index)
    here = f"{name}, Triton {triton.__version__}"
    version = tuple(int(part) for part in re.findall(r"\d+", triton.__version__)[:2])
    if not VERSIONS[0] <= version < VERSIONS[1]:
        oldest, newest = (".".join(map(str, ends)) for ends in VERSIONS)
        _say(f"{here}: the kernels need Triton from {oldest} on, before {newest}")
        return False
    if torch.version.hip and chosen != "triton":
        _say(f"{here}: nothing was tried on AMD; {SWITCH}=triton takes the kernels all the same")
        return False
    if not torch.version.hip and capability < CAPABILITY:
        _say(f"{here}: the kernels need compute capability {CAPABILITY[0]}.{CAPABILITY[1]}")
        return False
    fault = _fault(index)
    if fault is not None:
        _say(f"{here}: no kernel starts ({fault})")
        return False
    return True


def _fault(index: int | None) -> str | None:
    """Why Triton cannot start a kernel there, or None: it wants a C compiler, Python's headers, a
    folder that it may write to and a chip that its compiler knows.

    Raises:
        torch.OutOfMemoryError: which says nothing about Triton
    """
    try:
        from .triton.launches import start

        start(torch.device("cuda", index))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of Triton, of its compilers or of the driver
        lines = str(error).strip().splitlines()
        return lines[0] if lines else type(error).__name__
    return None


@constant_when_traced
def _torch_instead(what: str) -> str:
    _say(f"Triton's kernels are not made for {what}")
    return "torch"


@functools.cache
def _say(reason: str) -> None:
    """Once each, however many layers meet it."""
    logger.warning(
        "%s: torch alone is used, which is slower, and less exact in half precision", reason
    )
