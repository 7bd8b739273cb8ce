"""The compiled library: built by the machine's own C++ compiler when first needed, then kept.

It is never required. Where there is no compiler, or ``EA_FAIRSEQ_NATIVE=0``, everything runs on
torch alone, with equal results.
"""

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError

logger = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp",
    "-shared",
    "-fPIC",
)
SWITCH = "EA_FAIRSEQ_NATIVE"

_switched_off: ContextVar[bool] = ContextVar("torch alone", default=False)


@contextlib.contextmanager
def torch_alone() -> Iterator[None]:
    """Inside the context, nothing compiled is used: for comparisons and for counting products."""
    token = _switched_off.set(True)
    try:
        yield
    finally:
        _switched_off.reset(token)


def is_available(tensor: Tensor) -> bool:
    """Whether the library can work on this tensor, on this machine."""
    return (
        tensor.device.type == "cpu"
        and tensor.dtype in (torch.float32, torch.float64)
        and not _switched_off.get()
        and load_library() is not None
    )


def needs_gradient(*tensors: Tensor | None) -> bool:
    """Whether what is computed from these will be asked for its gradient."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def compiler() -> str | None:
    """Path of the C++ compiler: ``$CXX``, else g++, or None where there is neither."""
    return shutil.which(os.environ.get("CXX") or "g++")


@functools.cache
def load_library() -> ctypes.CDLL | None:
    """The library, built if need be, or None where it is switched off or cannot be built.

    Raises:
        UserError: where the switch has another value than 0 or 1
    """
    switch = os.environ.get(SWITCH, "1")
    if switch not in ("0", "1"):
        raise UserError(f"{SWITCH}={switch}: choices are 0 (torch alone) and 1 (compiled, default)")
    if switch == "0":
        return None
    command = compiler()
    if command is None:
        logger.info("no C++ compiler: torch alone is used, which is slower")
        return None
    try:
        return ctypes.CDLL(str(_built(command)))
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        logger.warning(
            "the compiled attention did not build (%s): torch alone is used, which is slower",
            reason.strip().splitlines()[0] if reason.strip() else type(error).__name__,
        )
        return None


def _built(command: str) -> Path:
    """The library's file for this source, compiler and processor; compiles where it is missing."""
    version = subprocess.run(
        [command, "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    sources = [path.read_text() for path in sorted([*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h")])]
    parts = (*sources, " ".join(FLAGS), command, version, _processor())
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    path = _folder() / f"ea_fairseq-{digest}.so"
    if path.exists():
        return path
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
        building = Path(file.name)
    try:
        logger.info("compiling the attention, once for this machine")
        subprocess.run(
            [command, *FLAGS, *map(str, sorted(FOLDER.glob("*.cpp"))), "-o", str(building)],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        building.replace(path)  # several processes may build at once: the last one wins
    finally:
        building.unlink(missing_ok=True)
    return path


def _folder() -> Path:
    """The user's own folder for the library; nobody else may write there, as it will be run.

    Raises:
        OSError: where it belongs to somebody else or others may write to it
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache) / "ea_fairseq"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{folder} can be written by others")
    return folder


def _processor() -> str:
    """What -march=native depends on: a folder may be shared by machines of different kinds."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return platform.processor() or platform.machine()


class Heads(ctypes.Structure):
    """The structure of lines.h: numbers of head_dim by batch, head and position."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("batch_stride", "head_stride", "row_stride")),
    ]


def function(name: str, dtype: torch.dtype) -> Any:
    """One of the library's functions, in its version for float32 or float64."""
    return getattr(load_library(), f"{name}_{'float' if dtype == torch.float32 else 'double'}")


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
