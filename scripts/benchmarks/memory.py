"""Peak memory of a training step; on the CPU each in a process of its own."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import re
from pathlib import Path

import torch

from ea_fairseq.kernels.cpp.library import torch_alone

from .models import Batch, Setting, Training, batch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_memory(
    arch: str, length: int, tokens: int, setting: Setting, make: Batch = batch, alone: bool = False
) -> int:
    """Bytes that model, optimizer and two training steps need at most at a time.

    On the CPU the peak of the process's resident memory, from before the model is built; on a GPU
    what torch allocated there, which takes no process of its own.

    Args:
        arch: architecture
        length: of sentences
        tokens: of a batch, at most
        setting: of the benchmark
        make: makes the batch
        alone: whether on torch alone

    Raises:
        ValueError: on the CPU of a system that does not tell (not Linux)
    """
    if setting.device == "cpu" and not CLEAR.exists():
        raise ValueError("memory: peak memory on the CPU is only known on Linux")
    if setting.device == "cuda":
        return _measure(arch, length, tokens, setting, make, alone)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (arch, length, tokens, setting, make, alone))


def _measure(
    arch: str, length: int, tokens: int, setting: Setting, make: Batch, alone: bool
) -> int:
    with torch_alone() if alone else contextlib.nullcontext():
        torch.set_num_threads(setting.threads)
        # What libraries allocate once, at their first use, is not the step's.
        Training(arch, setting).step(make(8, 64, setting))
        sample = make(length, tokens, setting)
        if setting.device == "cuda":
            gc.collect()  # earlier models may wait in circles of references
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        else:
            CLEAR.write_text("5")
            before = _status("VmRSS")
        training = Training(arch, setting)
        for _ in range(2):
            training.step(sample)
    peak = torch.cuda.max_memory_allocated() if setting.device == "cuda" else _status("VmHWM")
    return peak - before


def _status(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    return int(re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text())[1]) * 1024
