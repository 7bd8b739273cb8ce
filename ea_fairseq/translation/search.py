"""Beam search with the result of fairseq's ``SequenceGenerator``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoderDecoderModel, FairseqIncrementalDecoder
from torch import Tensor

from .model_folder import Search


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a source.

    Attributes:
        tokens: numbers, the end of sentence last
        score: sum of the tokens' log-probabilities, divided by their number to the power of the
            length penalty; natural logarithms
        token_scores: log-probability of each token
        attention: (tokens, source tokens), or None where it was not asked for
        cut: whether the limit of the length ended it
    """

    tokens: list[int]
    score: float
    token_scores: list[float]
    attention: Tensor | None
    cut: bool


class BeamSearch:
    """Translates batches of sources; keeps nothing between calls, so that threads may share it.

    Args:
        models: that decide together, by the mean of their probabilities
        dictionary: of the target
    """

    def __init__(self, models: Sequence[FairseqEncoderDecoderModel], dictionary: Dictionary):
        self.models = list(models)
        self.pad, self.eos, self.unk = dictionary.pad(), dictionary.eos(), dictionary.unk()
        self.vocabulary = len(dictionary)
        self.longest = min(model.max_decoder_positions() for model in models) - 1

    @torch.inference_mode()
    def __call__(
        self, sources: Sequence[Sequence[int]], search: Search, need_attention: bool = False
    ) -> list[list[Hypothesis]]:
        """Translates a batch.

        Args:
            sources: numbers of each sentence's tokens, the end of sentence last
            search: the settings; the limit of the length goes by each sentence's own
            need_attention: whether hypotheses have their attention, the mean of the last layer's
                heads

        Returns:
            for each source up to ``search.beam`` hypotheses, the best first
        """
        return _Batch(self, sources, search, need_attention).run()


class _Batch:
    """The state of one search. Rows are hypotheses, ``beam`` neighbours for each sentence."""

    def __init__(
        self,
        owner: BeamSearch,
        sources: Sequence[Sequence[int]],
        search: Search,
        need_attention: bool,
    ):
        self.owner, self.search, self.need_attention = owner, search, need_attention
        self.beam = min(search.beam, owner.vocabulary - 1)
        device = next(owner.models[0].parameters()).device
        self.lengths = [len(source) for source in sources]
        longest = max(self.lengths)
        self.sources = torch.tensor(
            [[owner.pad] * (longest - len(source)) + list(source) for source in sources],
            device=device,
        )
        self.limits = [
            min(int(search.max_len_a * length + search.max_len_b), owner.longest)
            for length in self.lengths
        ]
        self.finished: list[list[Hypothesis]] = [[] for _ in sources]
        self.sentences = list(range(len(sources)))  # those still translated
        self.device = device

    def run(self) -> list[list[Hypothesis]]:
        """Searches until every sentence has its hypotheses."""
        decoders = [_Decoder(model, self.sources, self.beam) for model in self.owner.models]
        rows = len(self.sentences) * self.beam
        self.tokens = torch.full((rows, 1), self.owner.eos, device=self.device)
        self.scores = torch.zeros(rows, 1, device=self.device)  # summed up to each token
        self.attention: list[Tensor] = []
        step = 0
        while True:
            scores, attention = self._decode(decoders)
            if attention is not None:
                self.attention.append(attention)
            order = self._choose(scores, step)
            if order is None:
                break
            for decoder in decoders:
                decoder.reorder(order)
            step += 1
        return [sorted(found, key=lambda hypothesis: -hypothesis.score) for found in self.finished]

    def _decode(self, decoders: list[_Decoder]) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities of the next token (rows, vocabulary), in float32, and attention."""
        results = [decoder.step(self.tokens) for decoder in decoders]
        scores = results[0][0]
        if len(results) > 1:
            stacked = torch.stack([scores for scores, _ in results])
            scores = stacked.logsumexp(dim=0) - math.log(len(results))
        maps = [attention for _, attention in results if attention is not None]
        if not self.need_attention or not maps:
            return scores, None
        return scores, torch.stack(maps).mean(dim=0)

    def _choose(self, scores: Tensor, step: int) -> Tensor | None:
        """Ends hypotheses and goes on with the best of the others.

        Returns:
            the old row of each new one, or None where all is done
        """
        owner, beam, search = self.owner, self.beam, self.search
        count = len(self.sentences)
        scores = scores.masked_fill(scores.isnan(), -math.inf)
        scores[:, owner.pad] = -math.inf
        scores[:, owner.unk] -= search.unkpen
        if step < search.min_len:
            scores[:, owner.eos] = -math.inf
        last = [i for i, sentence in enumerate(self.sentences) if step >= self.limits[sentence]]
        for i in last:
            rows = scores[i * beam : (i + 1) * beam]
            ending = rows[:, owner.eos].clone()
            rows.fill_(-math.inf)
            rows[:, owner.eos] = ending
        scores = scores.view(count, beam, -1)
        if step == 0:  # all hypotheses are equal
            scores = scores[:, :1]
        else:
            scores = scores + self.scores[:, -1].view(count, beam, 1)
        scores = scores.reshape(count, -1)
        # Twice as many as go on: half of them may end here.
        best, index = scores.topk(min(2 * beam, scores.size(1) - 1))
        token = index % owner.vocabulary
        row = index // owner.vocabulary + torch.arange(count, device=self.device)[:, None] * beam
        ends = token == owner.eos
        self._end(ends[:, :beam] & (best[:, :beam] > -math.inf), best, row, step, set(last))

        going = [i for i, s in enumerate(self.sentences) if not self._is_done(s, step)]
        if not going:
            return None
        if len(going) < count:
            kept = torch.tensor(going, device=self.device)
            best, token, row, ends = (x.index_select(0, kept) for x in (best, token, row, ends))
            self.sentences = [self.sentences[i] for i in going]
        # The best that do not end, in their order.
        rank = ends.long() * ends.size(1) + torch.arange(ends.size(1), device=self.device)
        active = rank.topk(beam, largest=False).indices
        best, token, row = (x.gather(1, active).view(-1) for x in (best, token, row))
        self.tokens = torch.cat([self.tokens.index_select(0, row), token[:, None]], dim=1)
        self.scores = torch.cat([self.scores.index_select(0, row), best[:, None]], dim=1)
        self.attention = [attention.index_select(0, row) for attention in self.attention]
        return row

    def _is_done(self, sentence: int, step: int) -> bool:
        return len(self.finished[sentence]) == self.beam or step >= self.limits[sentence]

    def _end(self, ends: Tensor, best: Tensor, row: Tensor, step: int, last: set[int]) -> None:
        """Keeps the hypotheses that end with this step.

        Args:
            ends: bool, (sentences, beam)
            best: scores of the candidates, (sentences, candidates)
            row: their rows
            step: tokens before this one
            last: places of the sentences that may go no further
        """
        for place, rank in ends.nonzero().tolist():
            found = self.finished[self.sentences[place]]
            if len(found) == self.beam:
                continue
            source = int(row[place, rank])
            total = float(best[place, rank])
            sums = [*self.scores[source].tolist(), total]
            length = 1.0 if self.search.unnormalized else (step + 1) ** self.search.lenpen
            attention = None
            if self.attention:
                width = self.lengths[self.sentences[place]]
                maps = [attention[source, -width:] for attention in self.attention]
                attention = torch.stack(maps).float().cpu()
            found.append(
                Hypothesis(
                    [*self.tokens[source, 1:].tolist(), self.owner.eos],
                    total / length,
                    [after - before for before, after in zip(sums, sums[1:], strict=False)],
                    attention,
                    cut=place in last,
                )
            )


class _Decoder:
    """One model's decoder step by step, over encoded sources."""

    def __init__(self, model: FairseqEncoderDecoderModel, sources: Tensor, beam: int):
        self.model = model
        padding = model.encoder.padding_idx if hasattr(model.encoder, "padding_idx") else 1
        lengths = sources.ne(padding).sum(dim=1)
        encoded = model.encoder(sources, src_lengths=lengths)
        order = torch.arange(len(sources), device=sources.device).repeat_interleave(beam)
        self.encoded = model.encoder.reorder_encoder_out(encoded, order)
        incremental = isinstance(model.decoder, FairseqIncrementalDecoder)
        self.state = {} if incremental else None

    def step(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities of the token after these, (rows, vocabulary), and attention (rows,
        src_len) or None."""
        if self.state is None:
            output = self.model.decoder(tokens, encoder_out=self.encoded)
        else:
            output = self.model.decoder(
                tokens, encoder_out=self.encoded, incremental_state=self.state
            )
        scores = self.model.get_normalized_probs(output, log_probs=True)[:, -1]
        attention = output[1].get("attn") if isinstance(output[1], dict) else output[1]
        if isinstance(attention, list):
            attention = attention[0]
        return scores.float(), None if attention is None else attention[:, -1]

    def reorder(self, order: Tensor) -> None:
        """Goes on with other rows."""
        if self.state is not None:
            self.model.decoder.reorder_incremental_state_scripting(self.state, order)
        self.encoded = self.model.encoder.reorder_encoder_out(self.encoded, order)
