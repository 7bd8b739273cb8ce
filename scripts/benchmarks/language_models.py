"""Blocks of text and steps of generation for language models."""

from __future__ import annotations

import time
from typing import Any

import torch

from .models import EOS, SPECIAL, Setting, build

#: The plain language model of Lite's size.
BASELINE = "transformer_lm_lite"


def language_model_of(arch: str) -> str:
    """The language model of an architecture, by its name or the translation model's.

    Raises:
        ValueError: the variant serves no decoder, or there is no such architecture
    """
    from ea_fairseq.attention.variants import language_models

    known = language_models()
    if arch in known.values():
        return arch
    if arch not in known:
        raise ValueError(f"--arch {arch}: no language model: choose from {', '.join(known)}")
    return known[arch]


def block(length: int, tokens: int, setting: Setting) -> dict[str, Any]:
    """A batch of whole blocks of ``length`` tokens, ``tokens`` of them at most."""
    generator = torch.Generator().manual_seed(length)
    count = max(1, tokens // length)
    text = torch.randint(SPECIAL, setting.vocabulary, (count, length), generator=generator)
    text = text.to(setting.device)
    before = torch.cat([torch.full((count, 1), EOS, device=setting.device), text[:, :-1]], dim=1)
    lengths = torch.full((count,), length, device=setting.device)
    return {
        "net_input": {"src_tokens": before, "src_lengths": lengths},
        "target": text,
        "ntokens": count * length,
    }


class Generation:
    """A language model that has written so many tokens, and writes on."""

    def __init__(self, arch: str, setting: Setting, written: int, rows: int = 5):
        model, _ = build(arch, setting)
        self.decoder, self.device = model.eval().decoder, setting.device
        generator = torch.Generator().manual_seed(1)
        shape = (rows, written + 20)
        self.text = torch.randint(SPECIAL, setting.vocabulary, shape, generator=generator)
        self.text = self.text.to(setting.device)
        self.written = written

    def seconds_of_steps(self) -> float:
        """Time of the last 20 tokens, one by one; the others come before, uncounted."""
        state: dict = {}
        began = 0.0
        with torch.no_grad():
            for length in range(1, self.text.size(1) + 1):
                if length == self.written + 1:
                    self._wait()
                    began = time.perf_counter()
                self.decoder(self.text[:, :length], incremental_state=state)
        self._wait()
        return time.perf_counter() - began

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
