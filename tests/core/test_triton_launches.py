"""Where Triton's launches go: on a machine of several GPUs, to that of the numbers."""

import contextlib
import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

pytest.importorskip("triton", reason="comes with torch's builds for GPUs")
from ea_fairseq.kernels.triton import attention as triton_attention  # noqa: E402
from ea_fairseq.kernels.triton import step as triton_step  # noqa: E402

HERE = torch.device("cuda", 1)


@pytest.fixture
def launched(monkeypatch):
    """Launches, which are noted and not done; each must find its numbers on the current device."""
    current, found = [torch.device("cuda", 0)], []

    @contextlib.contextmanager
    def device(other):
        current.append(other)
        yield
        current.pop()

    class Noted:
        def __init__(self, name):
            self.name = name

        def __getitem__(self, grid):
            def launch(*args, **constants):
                tensors = [argument for argument in args if isinstance(argument, torch.Tensor)]
                assert tensors and {tensor.device for tensor in tensors} == {current[-1]}
                assert not any(tensor.dtype == torch.bool for tensor in tensors)
                found.append(self.name)

            return launch

    monkeypatch.setattr(torch.cuda, "device", device)
    for launcher in (triton_attention, triton_step):
        for name, kernel in vars(launcher.kernels).items():
            if not name.startswith("_") and hasattr(kernel, "fn"):  # compiled or interpreted
                monkeypatch.setattr(launcher.kernels, name, Noted(name))
    with FakeTensorMode():
        yield found


def heads(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device=HERE)


@pytest.mark.parametrize("optional", [False, True])
def test_every_launch_is_on_the_device_of_its_numbers(launched, optional):
    def given(tensor):
        return tensor if optional else None

    queries, keys, values = heads(2, 3, 4, 8), heads(2, 3, 5, 8), heads(2, 3, 5, 8)
    carry = given(heads(2, 3, 4, 5))
    visible = given(heads(2, 1, 4, 5, dtype=torch.bool))
    kernel, bias, seed = heads(3, 3, 3, 3), heads(3), given(heads(1, dtype=torch.long))
    inputs = queries, keys, values, visible, carry, kernel, bias, seed
    constants = 0.3, 0.5, 0.7, 2, 0, False, False, 0.1
    outputs = triton_attention.forward(*inputs, *constants, True, True)
    output, evolved, probs, rows = outputs
    above = output, given(evolved), given(probs)
    gradients = triton_attention.backward(*above, *inputs, output, rows, given(rows), *constants)
    cached, table = heads(5, 2, 24), given(heads(2, 5, dtype=torch.long))
    state = given(heads(2, 2, 3, 5)), given(heads(2, 1, dtype=torch.bool))
    query, row = heads(2, 3, 1, 8), given(heads(2, 1, 1, 5, dtype=torch.bool))
    steps = triton_step.step(
        *(query, cached, cached, table, row, None, *state, kernel, bias),
        *(0.3, 0.5, 0.7, 0, False, 1, True),
    )
    assert {tensor.device for tensor in (*outputs, *gradients, *steps)} == {HERE}
    assert launched == [
        *("mix", "evolve", "attend"),
        *("mix", "evolve", "attend_gradient", "evolve_gradient", "products_gradient"),
        *("mix_step", "evolve_step", "attend_step"),
    ]


def test_positions_out_of_reach_of_32_bits_are_brought_nearer():
    far = torch.empty(0, device="meta").as_strided((1, 2, 5, 8), (8, 8, 1 << 29, 1))
    near = triton_attention._near(far)
    assert near.shape == far.shape and near.stride(2) == 8
    assert triton_attention._near(near) is near


def test_a_tensor_and_its_gradient_lie_alike():
    wide = torch.randn(3, 2, 24)
    tensors = [part.unflatten(2, (2, 4)).permute(1, 2, 0, 3) for part in wide.chunk(3, dim=-1)]
    tensors += [torch.randn(1, 2, 3, 4).expand(5, 2, 3, 4), torch.randn(2, 2, 3, 4)]
    for tensor in tensors:
        same, grad = triton_attention._with_gradient(tensor)
        assert same.stride() == grad.stride() and torch.equal(same, tensor)
        grad.fill_(1)  # every number its own place
        assert grad.untyped_storage().nbytes() == 4 * tensor.numel()
    assert same is tensor


def test_products_of_float32_are_cut_where_the_user_says_so():
    """In either way; in a process of its own, since torch does not take back how it was told."""
    ask = """if True:
        import torch
        from ea_fairseq.kernels.triton.attention import blocks

        def show():
            print(*(blocks(dtype, 8)["PRECISION"] for dtype in (torch.float32, torch.bfloat16)))

        show()
        torch.set_float32_matmul_precision("high")
        show()
        for precision in ("ieee", "tf32"):
            torch.backends.cuda.matmul.fp32_precision = precision
            show()
    """
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    exact, cut = "tf32x3 tf32x3", "tf32 tf32x3"
    assert done.stdout.splitlines() == [exact, cut, exact, cut]
