"""Limits a search by its own sentence's length, not by the batch's.

Replaced in fairseq:
- ``SequenceGenerator._generate``: with ``--max-len-a`` the limit went by the longest source of the
  batch, padding counted, so that a search that does not end gave a sentence one translation alone
  and others beside others; ``--min-len`` began behind the longest prefix. Now each sentence has the
  limit that it has alone, as in `ea_fairseq.inference.search`, and no prefix is cut. A search
  that came to its limit without all of its ``--constraints`` ended in an assertion.
- ``SequenceGenerator.is_finished``: a sentence is finished at its own limit.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fairseq.search import Search
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn

from ...errors import UserError


class LimitedSearch(nn.Module):
    """A search strategy of fairseq's that ends each sentence at a limit of its own.

    Args:
        strategy: what chooses
        eos: number of the end of sentence, the one token left at a limit
        min_len: tokens before which no sentence ends
        prefixes: each sentence's tokens that are given
        limits: the most tokens of each sentence, its end not counted
    """

    def __init__(
        self,
        strategy: Search,
        eos: int,
        min_len: int,
        prefixes: Sequence[int],
        limits: Sequence[int],
    ):
        super().__init__()
        self.strategy, self.eos, self.min_len = strategy, eos, min_len
        self.prefixes, self.limits = list(prefixes), list(limits)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.strategy, name)

    def prune_sentences(self, batch_idxs: Tensor) -> None:
        """Go on with these of the sentences, (sentences), integers."""
        kept = batch_idxs.tolist()
        self.prefixes = [self.prefixes[i] for i in kept]
        self.limits = [self.limits[i] for i in kept]
        self.strategy.prune_sentences(batch_idxs)

    def step(self, step: int, lprobs: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Choose the next tokens, by log-probabilities (sentences, beam, vocabulary)."""
        for i, (prefix, limit) in enumerate(zip(self.prefixes, self.limits, strict=True)):
            if step >= limit:
                end = lprobs[i, :, self.eos].clone()
                lprobs[i] = -math.inf
                lprobs[i, :, self.eos] = end
            elif prefix <= step < self.min_len:
                lprobs[i, :, self.eos] = -math.inf
        return self.strategy.step(step, lprobs, *args, **kwargs)


def own_limits(
    generator: SequenceGenerator, lengths: Sequence[int], prefixes: Sequence[int]
) -> list[int]:
    """The most tokens of each sentence, its end not counted.

    Args:
        generator: whose ``max_len_a`` and ``max_len_b`` they are
        lengths: of the sources, in tokens, the end of sentence counted
        prefixes: each sentence's tokens that are given, which are never cut
    """
    a, b, most = generator.max_len_a, generator.max_len_b, generator.max_len - 1
    return [
        limit_of(length, a, b, max(generator.min_len, prefix), most)
        for length, prefix in zip(lengths, prefixes, strict=True)
    ]


def limit_of(length: int, a: float, b: int, least: int, most: float) -> int:
    """The most tokens of one sentence, its end not counted.

    Args:
        length: of the source, in tokens, the end of sentence counted
        a, b: ``max_len_a`` and ``max_len_b``
        least: tokens that it may have in any case
        most: tokens that the model writes
    """
    return int(min(max(int(a * length + b), least), most))


@contextlib.contextmanager
def _room_for(constraints: Tensor | None, limit: int) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        if constraints is None:
            raise
        raise UserError(
            "--constraints: a translation came to the limit of its length without all of its "
            f"constraints: give a --max-len-b above {limit}, or fewer of them"
        ) from error


def _each_by_itself(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _generate(
        self: SequenceGenerator,
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> Any:
        net_input = sample["net_input"]
        lengths = net_input.get("src_lengths")
        by_length = self.max_len_a > 0 or prefix_tokens is not None
        if not by_length or lengths is None or self.match_source_len:
            with _room_for(constraints, self.max_len_b):
                return original(self, sample, prefix_tokens, constraints, bos_token)
        prefixes = [0] * len(lengths)
        if prefix_tokens is not None:
            prefixes = prefix_tokens.ne(self.pad).sum(dim=1).tolist()
        limits = own_limits(self, lengths.tolist(), prefixes)
        before = self.search, self.max_len_a, self.max_len_b
        self.search = LimitedSearch(self.search, self.eos, self.min_len, prefixes, limits)
        self.max_len_a, self.max_len_b = 0, max(limits)
        try:
            with _room_for(constraints, before[2]):
                return original(self, sample, prefix_tokens, constraints, bos_token)
        finally:
            self.search, self.max_len_a, self.max_len_b = before

    return _generate


def _at_its_own_limit(original: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def is_finished(
        self: SequenceGenerator, step: int, unfin_idx: int, max_len: int, *args: Any, **kwargs: Any
    ) -> bool:
        if isinstance(self.search, LimitedSearch):
            max_len = self.search.limits[unfin_idx]
        return original(self, step, unfin_idx, max_len, *args, **kwargs)

    return is_finished


def install() -> None:
    """Make fairseq's searches end so."""
    SequenceGenerator._generate = _each_by_itself(SequenceGenerator._generate)
    SequenceGenerator.is_finished = _at_its_own_limit(SequenceGenerator.is_finished)
