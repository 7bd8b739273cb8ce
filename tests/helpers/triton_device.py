"""Where the tests of Triton's kernels run: on a GPU, or on the CPU in Triton's interpreter."""

import os

import pytest
import torch

from ea_fairseq.kernels.backend import CAPABILITY, interprets

# One that takes the kernels: of others they must not be asked for.
ON_GPU = (
    not interprets()
    and torch.cuda.is_available()
    and (torch.version.hip is not None or torch.cuda.get_device_capability() >= CAPABILITY)
)
DEVICE = "cuda" if ON_GPU else "cpu"
if ON_GPU:  # whose convolutions, of what torch alone computes, may take forms that round more
    torch.backends.cudnn.enabled = False
on_triton = pytest.mark.skipif(
    not ON_GPU and not (interprets() and os.environ.get("EA_FAIRSEQ_NATIVE") == "triton"),
    reason="needs a GPU, or TRITON_INTERPRET=1 EA_FAIRSEQ_NATIVE=triton as in scripts/test.sh",
)


@pytest.fixture
def exact_interpreter(monkeypatch):
    """The interpreter's products take the bits of bfloat16 for whole numbers."""
    if ON_GPU:
        return
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, tl

    product = InterpreterBuilder.create_dot

    def create_dot(self, one, other, *others):
        if one.dtype == tl.bfloat16:
            one, other = (
                TensorHandle((handle.data.astype("uint32") << 16).view("float32"), tl.float32)
                for handle in (one, other)
            )
        return product(self, one, other, *others)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)
