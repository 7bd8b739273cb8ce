"""What all of Triton's kernels and their launches share; the kernels themselves are in
attention_kernels.py and step_kernels.py."""

import contextlib

import torch
import triton
import triton.language as tl

# Sizes of batches: a compiled form for each kind of number would have many compiled again.
SIZES = [
    *("heads", "tgt_len", "src_len", "total", "down", "right"),
    *("visible_batch", "visible_row", "images", "parts", "row_blocks", "column_blocks"),
    *("held", "hypotheses"),
]


def on_device_of(tensor: torch.Tensor) -> contextlib.AbstractContextManager:
    """Inside the context launches go to the tensor's device: of several GPUs, Triton takes the
    current one, where the numbers need not be."""
    if tensor.device.type == "cuda":
        return torch.cuda.device(tensor.device)
    return contextlib.nullcontext()


def start(device: torch.device) -> None:
    """Runs a kernel there that is as good as none.

    Raises:
        Exception: whatever keeps Triton from it
    """
    place = torch.zeros(1, dtype=torch.int32, device=device)
    with on_device_of(place):
        _write_one[(1,)](place)
    if place.item() != 1:
        raise RuntimeError("a kernel that writes a number wrote none")


@triton.jit
def _write_one(place):
    tl.store(place, 1)


@triton.jit
def start_of_head(sentence, batch_stride, head, head_stride):
    """Where a head's numbers begin. Maps are below 2**31 numbers, what they come from need not."""
    return sentence.to(tl.int64) * batch_stride + head.to(tl.int64) * head_stride


# ---- Constants of the compiled forms that depend on the chip's maker

AMD = torch.version.hip is not None


def exact() -> str:
    """float32's precision on NVIDIA's tensor cores, by three products of fewer bits; AMD's have
    it."""
    return "ieee" if AMD else "tf32x3"


def registers(channels: int) -> dict:
    """How many registers a thread of a convolution may have. NVIDIA's assembler, where nobody says,
    spills some to have one more program on a multiprocessor; AMD's does not ask."""
    return {} if AMD else {"maxnreg": 128 if channels <= 4 else 255}
