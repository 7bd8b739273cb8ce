"""The beginning of a text in, the text in full out; and what a model makes of a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from ..errors import UserError
from .model_folder import LANGUAGE_MODELING, MOST_BEAM, Search
from .sampling import Sampling
from .search import Hypothesis
from .text_model import (
    EOS,
    MAX_TOKENS,
    NO_NUMBERS,
    TextModel,
    as_list,
    check_whole_number,
    in_buffers,
    shown,
)


@dataclass(frozen=True)
class Continuation:
    """A text that begins with a prefix.

    Attributes:
        prefix: the beginning that was given
        text: the whole text, the prefix among it, as its tokens say it
        prefix_tokens: of the prefix, in subwords
        tokens: of the whole text, as the model knows them: what of the prefix it does not know is
            ``<unk>``; the end of sentence, ``</s>``, is the last
        token_scores: log-probability of each token, those of the prefix among them, to base 2, as
            fairseq-interactive prints them
        score: their sum divided by their number to the power of the length penalty
        cut: whether the limit of the length ended it, not the model
        problem: why the prefix could not be gone on with, or None
    """

    prefix: str
    text: str
    prefix_tokens: list[str]
    tokens: list[str]
    token_scores: list[float]
    score: float
    cut: bool
    problem: str | None = None


@dataclass(frozen=True)
class Likelihood:
    """How probable a text is.

    Attributes:
        text: the text
        tokens: as the model knows them, what it does not know as ``<unk>``; the end of sentence,
            ``</s>``, is the last
        token_scores: log-probability of each token, to base 2
    """

    text: str
    tokens: list[str]
    token_scores: list[float]

    @property
    def score(self) -> float:
        """The mean of the tokens' log-probabilities, to base 2."""
        return sum(self.token_scores) / len(self.token_scores)

    @property
    def perplexity(self) -> float:
        """Per token, the end of sentence among them."""
        return 2**-self.score


class LanguageModel(TextModel):
    """Goes on with texts, and scores them, with a model folder, or with several that decide
    together.

    Nothing changes by its use: threads may share one. Arguments and errors are those of
    `TextModel`.
    """

    TASK = LANGUAGE_MODELING

    def generate(
        self,
        prefix: str | Sequence[str],
        *,
        beam: int | None = None,
        n_best: int = 1,
        lenpen: float | None = None,
        max_len: int | None = None,
        sampling: Sampling | None = None,
        max_tokens: int = MAX_TOKENS,
        details: bool = False,
        progress: bool = False,
    ) -> Any:
        """Goes on with the beginning of a text, or with each of a list.

        Args:
            prefix: a line of text, or none: it is read behind the end of another line
            beam: hypotheses that the search goes on with; default: the model's own
            n_best: texts for each prefix, at most `beam`; with sampling draws, at most 1,000
            lenpen: length penalty: more than 1 favours longer texts; default: the model's own
            max_len: the most tokens behind the prefix; default: the model's own, or its positions
            sampling: how tokens are drawn; None: beam search
            max_tokens: tokens of prefixes in a batch, padding included, with sampling for each draw
            details: whether to return `Continuation`s, which have scores and tokens
            progress: whether to show a progress bar on standard error

        Returns:
            for a prefix its text, for a list a list; with `n_best` above 1 a list of texts in the
            place of each, the best first; of sampling, in the order in which they were drawn

        Raises:
            UserError: for bad options; and without `details`, naming the texts, where some are
                longer than the model can read. `Continuation.problem` tells with `details`.
        """
        prefixes, one = as_list("prefix", prefix)
        request = self._request(
            beam, n_best, lenpen, max_len, sampling, max_tokens, details, progress
        )
        results = list(self._go_on(prefixes, request, 0))
        return results[0] if one else results

    def stream(
        self,
        prefixes: Iterable[str],
        *,
        beam: int | None = None,
        n_best: int = 1,
        lenpen: float | None = None,
        max_len: int | None = None,
        sampling: Sampling | None = None,
        max_tokens: int = MAX_TOKENS,
        details: bool = False,
        progress: bool = False,
        buffer: int = 2000,
    ) -> Iterator[Any]:
        """Goes on with texts as they come, in their order, in memory that does not grow.

        Args:
            prefixes: any number of them
            buffer: texts that are read, sorted by length and gone on with together
            beam, n_best, lenpen, max_len, sampling, max_tokens, details, progress: as for
                `generate`

        Yields:
            what `generate` returns for each of a list
        """
        request = self._request(beam, n_best, lenpen, max_len, sampling, max_tokens, details, False)

        def go_on(chunk: list[str], number: int) -> Iterator[Any]:
            return self._go_on(chunk, request, number)

        yield from in_buffers("prefixes", prefixes, buffer, go_on, progress)

    def score(self, text: str | Sequence[str], *, max_tokens: int = MAX_TOKENS) -> Any:
        """How probable a line of text is, or each of a list, from its first token to its end.

        Args:
            text: a line, read behind the end of another one; it may be empty
            max_tokens: tokens of a batch, padding included

        Returns:
            of a text its `Likelihood`, of a list a list

        Raises:
            UserError: naming the text, where one is longer than the model can read, or its scores
                are no numbers.
        """
        texts, one = as_list("text", text)
        check_whole_number("max_tokens", max_tokens)
        tokens = [self.tokens(line) for line in texts]
        for number, split in enumerate(tokens, start=1):
            if problem := self._problem(split):
                raise UserError(f"text {number}: {problem}")
        read = [self.numbers(split) for split in tokens]
        scores = self._in_batches(
            lambda batch: self._scores([read[i] for i in batch]), tokens, max_tokens
        )
        words = self.target_dictionary
        found = []
        for i, text in enumerate(texts):
            if any(map(math.isnan, scores[i])):
                raise UserError(f"text {i + 1}: {NO_NUMBERS}")
            found.append(Likelihood(text, [*(words[n] for n in read[i][:-1]), EOS], scores[i]))
        return found[0] if one else found

    @torch.inference_mode()
    def _scores(self, texts: list[list[int]]) -> list[list[float]]:
        """Log-probabilities to base 2 of each token of some texts, in one full pass."""
        words = self.target_dictionary
        device = next(self.models[0].parameters()).device
        targets = pad_sequence(
            [torch.tensor(text) for text in texts], batch_first=True, padding_value=words.pad()
        ).to(device)
        ends = targets.new_full((len(texts), 1), words.eos())
        read = torch.cat([ends, targets[:, :-1]], dim=1)  # what is behind a text changes no score
        found = [
            model.get_normalized_probs(model(read), log_probs=True).float() for model in self.models
        ]
        together = torch.stack(found).logsumexp(dim=0) - math.log(len(found))
        chosen = together.gather(2, targets[:, :, None]).squeeze(2) / math.log(2)
        return [row[: len(text)].tolist() for row, text in zip(chosen, texts, strict=True)]

    @cached_property
    def _most(self) -> int:
        """Tokens of a text that every model can read; the end of sentence comes before them."""
        return min(model.max_decoder_positions() for model in self.models) - 1

    def _problem(self, tokens: list[str]) -> str | None:
        if len(tokens) <= self._most:
            return None
        return f"{len(tokens):,} subwords; the model takes {self._most:,}"

    def _request(
        self,
        beam: int | None,
        n_best: int,
        lenpen: float | None,
        max_len: int | None,
        sampling: Sampling | None,
        max_tokens: int,
        details: bool,
        progress: bool,
    ) -> _Request:
        check_whole_number("n_best", n_best)
        check_whole_number("max_tokens", max_tokens)
        given = {"beam": beam, "lenpen": lenpen}
        given = {name: value for name, value in given.items() if value is not None}
        if max_len is not None:
            check_whole_number("max_len", max_len)
            given |= {"max_len_a": 1.0, "max_len_b": max_len - 1}
        if sampling is not None:
            if not isinstance(sampling, Sampling):
                raise UserError(f"sampling is {sampling!r}: give a Sampling, such as Sampling()")
            for name in given.keys() & {"beam", "lenpen"}:
                raise UserError(f"{name} goes with beam search, not with sampling: leave it out")
            given["beam"] = 1
        search = replace(self.config.search, **given)
        most, what = (search.beam, "beam") if sampling is None else (MOST_BEAM, "the most")
        if n_best > most:
            raise UserError(f"n_best is {n_best!r}: choose from 1 to {what}, {most}")
        return _Request(search, n_best, sampling, max_tokens, details, progress)

    def _go_on(self, prefixes: list[str], request: _Request, first: int) -> Iterator[Any]:
        """The results for some prefixes; ``first`` is the number of the first, from 0."""
        for prefix in prefixes:
            if not isinstance(prefix, str):
                raise UserError(f"{shown(prefix)} is no text")
        tokens = [self.tokens(prefix) for prefix in prefixes]
        self._tell_of_unknown(tokens)
        problems = [self._problem(found) for found in tokens]
        if not request.details:
            for number, problem in enumerate(problems, start=first + 1):
                if problem:
                    raise UserError(f"text {number}: {problem}")
        readable = [i for i, problem in enumerate(problems) if problem is None]
        found = self._search([tokens[i] for i in readable], [first + i for i in readable], request)
        hypotheses = dict(zip(readable, found, strict=True))
        for i in (i for i, found in hypotheses.items() if not found):
            problems[i] = NO_NUMBERS
            if not request.details:
                raise UserError(f"text {first + i + 1}: {NO_NUMBERS}")
        for i, prefix in enumerate(prefixes):
            if problems[i] is None:
                results = [self._result(prefix, tokens[i], h) for h in hypotheses[i]]
            else:
                results = [Continuation(prefix, "", tokens[i], [], [], 0.0, False, problems[i])]
            # A small dictionary may have fewer texts in it than were asked for.
            results += results[-1:] * (request.n_best - len(results))
            if not request.details:
                results = [result.text for result in results]
            yield results if request.n_best > 1 else results[0]

    def _search(
        self, prefixes: list[list[str]], numbers: list[int], request: _Request
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of token sequences, or those drawn; ``numbers`` are the texts'."""
        sampling, draws = request.sampling, request.n_best

        def search(batch: list[int]) -> list[list[Hypothesis]]:
            read = [self.numbers(prefixes[i])[:-1] for i in batch]
            if sampling is None:
                return self._beam_search.go_on(read, request.search, n_best=draws)
            # The draws of a prefix are rows of a batch beside each other.
            read = [prefix for prefix in read for _ in range(draws)]
            streams = [sampling.stream(numbers[i], draw) for i in batch for draw in range(draws)]
            drawn = iter(self._beam_search.go_on(read, request.search, sampling, streams))
            return [[found for _ in range(draws) for found in next(drawn)] for _ in batch]

        rows = 1 if sampling is None else draws
        most = request.max_tokens // rows
        return self._in_batches(search, prefixes, most, request.progress, " texts")

    def _result(self, prefix: str, tokens: list[str], hypothesis: Hypothesis) -> Continuation:
        words = self.target_dictionary
        written = [words[number] for number in hypothesis.tokens[:-1]]
        return Continuation(
            prefix,
            self.text([*tokens, *written[len(tokens) :]]),
            tokens,
            [*written, EOS],
            [score / math.log(2) for score in hypothesis.token_scores],
            hypothesis.score / math.log(2),
            hypothesis.cut,
        )


@dataclass(frozen=True)
class _Request:
    """What a call of `LanguageModel.generate` asks for."""

    search: Search
    n_best: int
    sampling: Sampling | None
    max_tokens: int
    details: bool
    progress: bool
