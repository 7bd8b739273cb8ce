"""Models, batches and training steps of the benchmarks: fairseq's own, on generated tokens."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

BASELINES = {"lite": "transformer_lite", "base": "transformer"}
PAD, EOS, SPECIAL = 1, 2, 4


@dataclass(frozen=True)
class Setting:
    """What both models of a comparison share.

    Attributes:
        vocabulary: entries of the dictionary of both languages
        device: "cpu" or "cuda"
        threads: of torch
        dropout: in training
        dtype: "float32", or the type of automatic mixed precision
        options: more options of the models, by argparse name
        clock: "perf_counter", or "process_time" for the processor's
    """

    vocabulary: int = 6000
    device: str = "cpu"
    threads: int = 2
    dropout: float = 0.2
    dtype: str = "float32"
    options: dict[str, Any] = field(default_factory=dict)
    clock: str = "perf_counter"

    def precision(self) -> torch.autocast:
        """The context in which models run."""
        dtype = getattr(torch, self.dtype)
        enabled = dtype != torch.float32
        return torch.autocast(self.device, dtype if enabled else None, enabled=enabled)


def sides(archs: tuple[str, str]) -> tuple[tuple[str, bool], ...]:
    """The baseline, the other model, and that on torch alone: architecture, whether so."""
    baseline, other = archs
    return (baseline, False), (other, False), (other, True)


def three(make: Callable[..., Any], archs: tuple[str, str], setting: Setting) -> list[Any]:
    """Something of each of the three sides, made and used as `OnTorchAlone` where that is it."""
    made = [(make(arch, setting), alone) for arch, alone in sides(archs)]
    return [OnTorchAlone(each) if alone else each for each, alone in made]


class OnTorchAlone:
    """What calls another object's methods with nothing compiled."""

    def __init__(self, inner: Any):
        self._inner = inner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        from ea_fairseq.kernels.cpp.library import torch_alone

        return torch_alone()(getattr(self._inner, name))


def baseline_of(arch: str) -> str:
    """fairseq's own Transformer of an architecture's size.

    Raises:
        ValueError: for what is no architecture of a variant
    """
    from ea_fairseq.attention.variants import architectures

    known = architectures()
    if arch not in known:
        raise ValueError(f"--arch {arch}: choose from {', '.join(known)}; or name its --baseline")
    return BASELINES[known[arch][1].size]


def build(arch: str, setting: Setting, seed: int = 1) -> tuple[torch.nn.Module, Any]:
    """A fresh model and a task that holds its dictionaries.

    Args:
        arch: an architecture, or one with options: "transformer_lite encoder-layers=3"
        setting: of the benchmark
        seed: of the weights

    Raises:
        ValueError: where fairseq knows no such architecture
    """
    from fairseq.data import Dictionary
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    import ea_fairseq.plugin  # noqa: F401  (registers the architectures)
    from ea_fairseq.models.cost import parse

    arch, options = options_of(arch)
    if arch not in ARCH_CONFIG_REGISTRY:
        raise ValueError(
            f"{arch}: no such architecture; choices: {', '.join(ARCH_CONFIG_REGISTRY)}"
        )
    args = argparse.Namespace(
        arch=arch,
        dropout=setting.dropout,
        share_decoder_input_output_embed=True,
        max_source_positions=1024,
        max_target_positions=1024,
        **setting.options,
    )
    vars(args).update(vars(parse(arch, options)[0]))
    ARCH_CONFIG_REGISTRY[arch](args)
    symbols = Dictionary()
    for index in range(setting.vocabulary - len(symbols)):
        symbols.add_symbol(f"w{index}")
    task = SimpleNamespace(source_dictionary=symbols, target_dictionary=symbols)
    torch.manual_seed(seed)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task)
    return model.to(setting.device), task


def options_of(model: str) -> tuple[str, dict[str, str | bool]]:
    """The architecture and the options of "transformer_lite encoder-layers=3"."""
    arch, *words = model.split()
    parts = (word.partition("=") for word in words)
    return arch, {name: value if equals else True for name, equals, value in parts}


def batch(length: int, tokens: int, setting: Setting) -> dict[str, Any]:
    """A batch as fairseq makes it: sentences of 7/8 ``length`` to ``length`` tokens on both sides,
    ``tokens`` of them at most, padding included."""
    generator = torch.Generator().manual_seed(length)
    count = max(1, tokens // length)
    shape = (count, length)
    source = torch.randint(SPECIAL, setting.vocabulary, shape, generator=generator)
    target = torch.randint(SPECIAL, setting.vocabulary, shape, generator=generator)
    shorter = torch.randint(0, length // 8 + 1, (2, count), generator=generator)
    shorter[:, 0] = 0
    place = torch.arange(length)
    source[place < shorter[0, :, None]] = PAD
    target[place >= length - shorter[1, :, None]] = PAD
    previous = torch.cat([torch.full((count, 1), EOS), target[:, :-1]], dim=1)
    device = setting.device
    return {
        "net_input": {
            "src_tokens": source.to(device),
            "src_lengths": source.ne(PAD).sum(dim=1).to(device),
            "prev_output_tokens": previous.to(device),
        },
        "target": target.to(device),
        "ntokens": int(target.ne(PAD).sum()),
    }


#: What makes a batch: length of its sentences, tokens at most, setting.
Batch = Callable[[int, int, Setting], dict[str, Any]]


class Training:
    """A model in training: fairseq's label-smoothed criterion and Adam."""

    def __init__(self, arch: str, setting: Setting, seed: int = 1):
        from fairseq.criterions.label_smoothed_cross_entropy import (
            LabelSmoothedCrossEntropyCriterion,
        )
        from fairseq.optim.adam import Adam

        self.setting = setting
        self.model, task = build(arch, setting, seed)
        self.model.train()
        self.criterion = LabelSmoothedCrossEntropyCriterion(
            task, sentence_avg=False, label_smoothing=0.1
        )
        self.optimizer = Adam(self.model.parameters(), lr=1e-4, weight_decay=1e-4)

    def step(self, sample: dict[str, Any]) -> float:
        """One update; returns the loss per token."""
        self.optimizer.zero_grad()
        with self.setting.precision():
            loss = self.criterion(self.model, sample)[0] / sample["ntokens"]
        loss.backward()
        self.optimizer.step()
        return loss.item()


class Decoding:
    """A model in fairseq's beam search, for a fixed number of steps."""

    def __init__(self, arch: str, setting: Setting, beam: int = 5):
        self.setting = setting
        self.model, self.task = build(arch, setting)
        self.model.eval()
        self.beam = beam

    def search(self, sample: dict[str, Any], steps: int) -> list[list[int]]:
        """Translates; returns the best hypothesis of each sentence, of ``steps`` tokens and the
        end of the sentence."""
        from fairseq.sequence_generator import SequenceGenerator

        generator = SequenceGenerator(
            [self.model],
            self.task.target_dictionary,
            beam_size=self.beam,
            max_len_a=0,
            max_len_b=steps,
            min_len=steps,
        )
        with torch.no_grad(), self.setting.precision():
            found = generator.generate([self.model], sample)
        return [hypotheses[0]["tokens"].tolist() for hypotheses in found]
