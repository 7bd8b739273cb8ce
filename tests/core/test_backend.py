"""Which of the three ways an attention takes, and what is said where it is torch."""

import contextlib
import logging
import sys
from types import SimpleNamespace

import pytest
import torch
from compiled import needs_compiler

from ea_fairseq.errors import UserError
from ea_fairseq.kernels import backend
from ea_fairseq.kernels.cpp import library


@pytest.fixture
def gpu(monkeypatch, caplog):
    """A machine with a GPU as the arguments say; returns the way of queries there, and what was
    said."""
    monkeypatch.delenv("EA_FAIRSEQ_NATIVE", raising=False)

    def gpu(shape=(2, 4, 5, 8), dtype=torch.float32, kernel_size=3, src_len=7, cached=0, **machine):
        machine = {"capability": (9, 0), "triton": "3.7.1", "hip": None, "fault": None, **machine}
        monkeypatch.setattr(backend, "_fault", lambda _: machine["fault"])
        monkeypatch.setenv("TRITON_INTERPRET", machine.get("interpreted", "0"))
        backend._triton_runs_on_gpu.cache_clear()
        backend._say.cache_clear()
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a chip")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: machine["capability"])
        monkeypatch.setattr(torch.version, "hip", machine["hip"])
        module = machine["triton"] and SimpleNamespace(__version__=machine["triton"])
        monkeypatch.setitem(sys.modules, "triton", module)
        device = torch.device("cuda", 0)
        queries = SimpleNamespace(device=device, dtype=dtype, shape=torch.Size(shape))
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = {
                backend.chosen_backend(queries, src_len, kernel_size, cached) for _ in range(3)
            }
        return *found, caplog.messages

    yield gpu
    backend._triton_runs_on_gpu.cache_clear()
    backend._say.cache_clear()


def test_what_is_constant_when_traced_is_marked_as_torch_marks_it():
    ours, theirs = (
        mark(lambda: 1)
        for mark in (library.constant_when_traced, torch.compiler.assume_constant_result)
    )
    assert vars(ours) == vars(theirs) != {}


@pytest.mark.parametrize(
    "switch, machine, way",
    [
        (None, {}, "triton"),
        (None, {"dtype": torch.float16}, "triton"),
        (None, {"dtype": torch.bfloat16}, "triton"),
        (None, {"shape": (1, 16, 1024, 64), "kernel_size": 5, "capability": (8, 0)}, "triton"),
        # What is empty needs no launch.
        (None, {"shape": (0, 4, 5, 8)}, "torch"),
        (None, {"shape": (2, 4, 0, 8)}, "torch"),
        (None, {"src_len": 0}, "torch"),
        ("0", {}, "torch"),
        ("cpp", {}, "torch"),
        ("triton", {}, "triton"),
        ("triton", {"hip": "6.4"}, "triton"),
    ],
)
def test_a_gpu_takes_triton_where_the_switch_lets_it(gpu, monkeypatch, switch, machine, way):
    if switch is not None:
        monkeypatch.setenv("EA_FAIRSEQ_NATIVE", switch)
    assert gpu(**machine) == (way, [])


@pytest.mark.parametrize(
    "machine, said",
    [
        ({"capability": (7, 5)}, "a chip, Triton 3.7.1: the kernels need compute capability 8.0"),
        ({"triton": "2.1.0"}, "a chip, Triton 2.1.0: the kernels need Triton from 3.4 on"),
        (
            {"triton": "4.0.0+git1"},
            "Triton 4.0.0+git1: the kernels need Triton from 3.4 on, before 4",
        ),
        ({"fault": "no cc"}, "a chip, Triton 3.7.1: no kernel starts (no cc)"),
        ({"interpreted": "1"}, "Triton interprets its kernels (TRITON_INTERPRET=1)"),
        ({"triton": None}, "Triton cannot be imported"),
        ({"hip": "6.4"}, "nothing was tried on AMD; EA_FAIRSEQ_NATIVE=triton"),
        ({"dtype": torch.float64}, "not made for torch.float64 numbers"),
        ({"shape": (2, 17, 5, 8)}, "not made for 17 heads"),
        ({"shape": (2, 4, 5, 65)}, "not made for a head_dim of 65"),
        ({"kernel_size": 7}, "not made for a kernel of 7"),
        ({"shape": (1 << 25, 16, 5, 8)}, "not made for maps this large"),
        ({"shape": (1, 1, 1, 8), "src_len": 1 << 22}, "not made for maps this large"),
        ({"cached": 1 << 31}, "not made for maps this large"),
    ],
)
def test_what_triton_does_not_do_falls_back_to_torch_and_says_so_once(gpu, machine, said):
    found, messages = gpu(**machine)
    assert found == "torch" and len(messages) == 1
    assert said in messages[0] and "torch alone is used" in messages[0]


@pytest.mark.parametrize(
    "fault, said",
    [
        (RuntimeError("Failed to find C compiler.\nPlease"), "Failed to find C compiler."),
        (PermissionError(), "PermissionError"),
        # Kept as a fault, it would leave a training without kernels from then on.
        (torch.OutOfMemoryError("CUDA out of memory"), None),
    ],
)
def test_a_kernel_that_does_not_start_says_why_in_a_line(monkeypatch, fault, said):
    pytest.importorskip("triton", reason="comes with torch's builds for GPUs")
    from ea_fairseq.kernels.triton import launches

    def start(device):
        assert device == torch.device("cuda", 1)
        raise fault

    monkeypatch.setattr(launches, "start", start)
    with contextlib.nullcontext() if said else pytest.raises(torch.OutOfMemoryError):
        assert backend._fault(1) == said


def test_a_wrong_switch_is_refused_on_a_gpu_too(gpu, monkeypatch):
    monkeypatch.setenv("EA_FAIRSEQ_NATIVE", "cuda")
    with pytest.raises(UserError, match="EA_FAIRSEQ_NATIVE=cuda: .*0 .*1 .*cpp .*triton"):
        gpu()


def test_torch_alone_is_torch_everywhere(gpu):
    with library.torch_alone():
        assert gpu() == ("torch", [])
        assert backend.chosen_backend(torch.zeros(1, 2, 3, 4), 5, 3) == "torch"


@pytest.mark.parametrize(
    "switch, interpreted, dtype, way",
    [
        pytest.param("1", "0", torch.float32, "cpp", marks=needs_compiler),
        pytest.param("1", "0", torch.float16, "torch", marks=needs_compiler),
        ("triton", "1", torch.float32, "triton"),
        ("triton", "0", torch.float32, "torch"),
    ],
)
def test_the_cpu_takes_cpp_or_interprets_triton(monkeypatch, switch, interpreted, dtype, way):
    library.load_library.cache_clear()
    monkeypatch.setenv("EA_FAIRSEQ_NATIVE", switch)
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    assert backend.chosen_backend(torch.zeros(1, 2, 3, 4, dtype=dtype), 5, 3) == way
    library.load_library.cache_clear()
