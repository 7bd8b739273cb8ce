"""Beam search with the result of fairseq's ``SequenceGenerator``, and sampling by its steps.

What translates reads sources and begins each hypothesis with nothing; a language model reads
nothing, and begins with a prefix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoderDecoderModel, FairseqLanguageModel
from torch import Tensor, nn

from ..errors import UserError
from ..kernels.fused_decoder import Rules
from ..kernels.fused_encoder import FusedEncoder
from .compiled_models import CompiledModel, compiled_model, is_available_for
from .decoders import CompiledDecoder, TorchDecoder
from .model_folder import Search
from .sampling import Sampling


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a source, or one text that begins with a prefix.

    Attributes:
        tokens: numbers, the prefix among them, the end of sentence last
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
    """Translates batches of sources, or goes on with batches of prefixes; keeps nothing between
    calls, so that threads may share it.

    Weights that change in ways that torch counts (load_state_dict, an optimizer, operations under
    no_grad) are seen: what is compiled is compiled anew. Through ``.data`` or numpy they change
    unseen.

    Args:
        models: that decide together, by the mean of their probabilities; all of them translate, or
            all are language models
        dictionary: of the target
        int8: whether what is compiled multiplies bytes instead of float32
    """

    def __init__(
        self,
        models: Sequence[FairseqEncoderDecoderModel | FairseqLanguageModel],
        dictionary: Dictionary,
        int8: bool = False,
    ):
        self.models = list(models)
        self.pad, self.eos, self.unk = dictionary.pad(), dictionary.eos(), dictionary.unk()
        self.vocabulary = len(dictionary)
        self.longest = min(model.max_decoder_positions() for model in models) - 1
        self.int8 = int8
        self._compile()

    def _compile(self) -> None:
        self._compiled_of = _weights(self.models[0])
        self.compiled = compiled_model(self.models[0], self.int8) if len(self.models) == 1 else None

    def usable(self) -> CompiledModel | None:
        """What is compiled, where it computes what the model would now."""
        model = self.models[0]
        if self.compiled is None or not is_available_for(model):
            return None
        if self._compiled_of != _weights(model):
            self._compile()
        return self.compiled

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"compiled": None}  # of no use in a copy

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._compile()

    @torch.inference_mode()
    def __call__(
        self,
        sources: Sequence[Sequence[int]],
        search: Search,
        need_attention: bool = False,
        n_best: int | None = None,
    ) -> list[list[Hypothesis]]:
        """Translates a batch.

        Args:
            sources: numbers of each sentence's tokens, the end of sentence last
            search: the settings; the limit of the length goes by each sentence's own
            need_attention: whether hypotheses have their attention, the mean of the last layer's
                heads
            n_best: hypotheses of each source that are wanted; default: ``search.beam``

        Returns:
            for each source up to so many hypotheses, the best first
        """
        limits = [int(search.max_len_a * len(source) + search.max_len_b) for source in sources]
        prefixes = [[] for _ in sources]
        return _Batch(self, sources, prefixes, limits, search, n_best, need_attention).run()

    @torch.inference_mode()
    def go_on(
        self,
        prefixes: Sequence[Sequence[int]],
        search: Search,
        sampling: Sampling | None = None,
        streams: Sequence[Random] | None = None,
        n_best: int | None = None,
    ) -> list[list[Hypothesis]]:
        """Goes on with a batch of prefixes, by language models.

        A prefix's own tokens are part of each hypothesis and of its score, and so they are of the
        limits of the length. As with fairseq-interactive, ``max_len_a`` counts the end of another
        text, behind which the prefix is read, as one more.

        Args:
            prefixes: numbers of each one's tokens, without an end; it may be empty
            search: the settings; with sampling ``beam`` is 1
            sampling: how tokens are drawn; None: beam search
            streams: with sampling, each prefix's random numbers
            n_best: hypotheses of each prefix that are wanted; default: ``search.beam``

        Returns:
            for each prefix up to so many hypotheses, the best first
        """
        limits = [
            max(int(search.max_len_a * (len(prefix) + 1) + search.max_len_b), len(prefix))
            for prefix in prefixes
        ]
        batch = _Batch(self, None, prefixes, limits, search, n_best, False, sampling, streams)
        return batch.run()


def _weights(model: nn.Module) -> list[tuple[int, int]]:
    """What tells whether a model's weights are still those that they were: where each lies, and how
    often it was changed, as far as torch counts that."""
    return [
        (weight.data_ptr(), 0 if weight.is_inference() else weight._version)
        for weight in model.parameters()
    ]


class _Batch:
    """The state of one search. Rows are hypotheses, ``beam`` neighbours for each sentence."""

    def __init__(
        self,
        owner: BeamSearch,
        sources: Sequence[Sequence[int]] | None,
        prefixes: Sequence[Sequence[int]],
        limits: Sequence[int],
        search: Search,
        n_best: int | None,
        need_attention: bool,
        sampling: Sampling | None = None,
        streams: Sequence[Random] | None = None,
    ):
        self.owner, self.search, self.need_attention = owner, search, need_attention
        self.n_best = n_best
        self.beam = min(search.beam, owner.vocabulary - 1)
        # Twice as many as go on, as half of them may end; what is drawn is one of all.
        self.most = min(2 * self.beam, owner.vocabulary) if sampling is None else owner.vocabulary
        self.device = next(owner.models[0].parameters()).device
        self.source_lists, self.prefixes = sources, prefixes
        self.sampling, self.streams = sampling, streams
        if search.min_len > owner.longest:
            raise UserError(
                f"min_len is {search.min_len}: the model writes {owner.longest} tokens at most"
            )
        self.limits = [min(max(limit, search.min_len), owner.longest) for limit in limits]
        self.finished: list[list[Hypothesis]] = [[] for _ in prefixes]
        self.sentences = list(range(len(prefixes)))  # those that are still written
        if sources is None:
            return
        self.lengths = [len(source) for source in sources]
        self.has_padding_inside = any(owner.pad in source for source in sources)
        longest = max(self.lengths)
        self.sources = torch.tensor(
            [[owner.pad] * (longest - len(source)) + list(source) for source in sources],
            device=self.device,
        )

    def run(self) -> list[list[Hypothesis]]:
        """Searches until every sentence has its hypotheses."""
        self._encode()
        self.width = 1  # rows of a sentence: up to its first choice all hypotheses would be equal
        rows = len(self.sentences)
        self.tokens = torch.full((rows, 1), self.owner.eos, device=self.device)
        self.scores = torch.zeros(rows, 1, device=self.device)  # summed up to each token
        self.attention: list[Tensor] = []
        step = 0
        while True:
            forced = self._forced(step)
            best, token = self._compiled_best(forced, step) or self._best(forced, step)
            if self.sampling is not None:
                streams = [self.streams[s] for s in self.sentences]
                best, token = self.sampling.draw(best, token, streams)
            order = self._choose(best, token, step, forced)
            if order is None:
                break
            same = len(order) == rows and torch.equal(order, torch.arange(rows, device=self.device))
            rows, self.width = len(order), len(order) // len(self.sentences)
            if not same:
                # Attentions share what they work out of a tensor whose changes are counted.
                with torch.inference_mode(False):
                    order = order.clone()
                for decoder in self.decoders:
                    decoder.reorder(order)
            step += 1
        self.finished = [
            sorted(found, key=lambda hypothesis: -hypothesis.score)[: self.n_best]
            for found in self.finished
        ]
        if self.compiled is not None and self.need_attention:
            self._attend()
        return self.finished

    def _forced(self, step: int) -> dict[int, int]:
        """Place of a sentence -> its next token, where there is no choice: of its prefix, or the
        end, where its length has come to the limit."""
        forced = {}
        for place, sentence in enumerate(self.sentences):
            prefix = self.prefixes[sentence]
            if step < len(prefix):
                forced[place] = prefix[step]
            elif step >= self.limits[sentence]:
                forced[place] = self.owner.eos
        return forced

    def _encode(self) -> None:
        owner = self.owner
        self.compiled = None
        if self.source_lists is None:
            temperature = 1.0 if self.sampling is None else self.sampling.temperature
            self.decoders = [TorchDecoder(model, None, temperature) for model in owner.models]
            return
        usable = owner.usable()
        if usable is not None and not self.has_padding_inside:
            rules = Rules(owner.pad, owner.eos, owner.unk, self.search.unkpen)
            encoded = self._encoded_rows(usable.encoder)
            self.compiled = CompiledDecoder(usable.decoder, encoded, self.lengths, rules)
            self.decoders = [self.compiled]
        else:
            self.decoders = [TorchDecoder(m, self._encoded(m)) for m in owner.models]

    def _encoded(self, model: FairseqEncoderDecoderModel) -> Any:
        padding = model.encoder.padding_idx if hasattr(model.encoder, "padding_idx") else 1
        lengths = self.sources.ne(padding).sum(dim=1)
        return model.encoder(self.sources, src_lengths=lengths)

    def _encoded_rows(self, encoder: FusedEncoder | None) -> Tensor:
        """(positions, embed_dim) of the one model, one sentence after the other."""
        if encoder is not None and max(self.lengths) <= encoder.longest:
            return encoder(self.source_lists)
        encoded = self._encoded(self.owner.models[0])["encoder_out"][0]
        return encoded.transpose(0, 1)[self.sources.ne(self.owner.pad)]

    def _attend(self) -> None:
        """Gives the hypotheses of a compiled search their attention, from one pass over them."""
        model, owner = self.owner.models[0], self.owner
        rows = [(place, i) for place, found in enumerate(self.finished) for i in range(len(found))]
        if not rows:
            return
        order = torch.tensor([place for place, _ in rows])
        encoded = model.encoder.reorder_encoder_out(self._encoded(model), order)
        written = [self.finished[place][i].tokens for place, i in rows]
        longest = max(map(len, written))
        read = [[owner.eos, *w[:-1], *[owner.pad] * (longest - len(w))] for w in written]
        output = model.decoder(torch.tensor(read), encoder_out=encoded, features_only=True)
        for (place, i), maps in zip(rows, output[1]["attn"][0], strict=True):
            found, width = self.finished[place], self.lengths[place]
            attention = maps[: len(found[i].tokens), -width:].clone()
            found[i] = replace(found[i], attention=attention)

    def _compiled_best(self, forced: dict[int, int], step: int) -> tuple[Tensor, Tensor] | None:
        """As `_best`, where the decoder is compiled; else None."""
        if self.compiled is None:
            return None
        sentences = torch.tensor(self.sentences).repeat_interleave(self.width)
        ending = torch.zeros(len(self.sentences), self.width, dtype=torch.bool)
        ending[list(forced)] = True
        no_end = step < self.search.min_len
        return self.compiled.best(self.tokens, sentences, self.most, no_end, ending.flatten())

    def _decode(self) -> tuple[Tensor, Tensor | None]:
        """Scores of the next token (rows, vocabulary), in float32, and what to subtract from each
        row of them to have log-probabilities, (rows, 1), or None where they are that."""
        results = [decoder.step(self.tokens) for decoder in self.decoders]
        if self.need_attention and all(attention is not None for _, attention in results):
            maps = torch.stack([attention for _, attention in results])
            self.attention.append(maps.mean(dim=0))
        scores = results[0][0]
        if len(results) == 1:
            if self.decoders[0].normalized:
                return scores, None
            return scores, scores.logsumexp(dim=1, keepdim=True)
        stacked = torch.stack(
            [
                scores if decoder.normalized else scores.log_softmax(dim=1)
                for decoder, (scores, _) in zip(self.decoders, results, strict=True)
            ]
        )
        return stacked.logsumexp(dim=0) - math.log(len(results)), None

    def _best(self, forced: dict[int, int], step: int) -> tuple[Tensor, Tensor]:
        """Log-probabilities (rows, most) of the best next tokens of each row, and these.

        Args:
            forced: see `_forced`
            step: tokens so far
        """
        owner, width = self.owner, self.width
        logits, totals = self._decode()
        # What is no number is impossible.
        if totals is None:
            logits = logits.nan_to_num(nan=-math.inf, neginf=-math.inf)
        elif totals.isnan().any():
            logits, totals = (logits - totals).nan_to_num(nan=-math.inf, neginf=-math.inf), None
        logits[:, owner.pad] = -math.inf
        if self.search.unkpen:
            logits[:, owner.unk] -= self.search.unkpen
        if step < self.search.min_len:
            logits[:, owner.eos] = -math.inf
        for i, only in forced.items():
            rows = logits[i * width : (i + 1) * width]
            kept = rows[:, only].clone()
            rows.fill_(-math.inf)
            rows[:, only] = kept
        # The best of a sentence are among the best of its rows: all others are never looked at
        # again, nor are their log-probabilities computed.
        best, token = logits.topk(self.most)
        return best if totals is None else best - totals, token

    def _choose(
        self, best: Tensor, token: Tensor, step: int, forced: dict[int, int]
    ) -> Tensor | None:
        """Ends hypotheses and goes on with the best of the others.

        Args:
            best: log-probabilities of each row's best next tokens, (rows, most)
            token: these tokens
            step: tokens so far
            forced: see `_forced`

        Returns:
            the old row of each new one, or None where all is done
        """
        owner, beam, width, most = self.owner, self.beam, self.width, best.size(1)
        count = len(self.sentences)
        best = best.view(count, width, most) + self.scores[:, -1].view(count, width, 1)
        wanted = min(2 * beam, owner.vocabulary * width - 1, width * most)
        best, index = best.flatten(1).topk(wanted)
        token = token.view(count, -1).gather(1, index)
        first = torch.arange(count, device=self.device)[:, None] * width
        row = index.div(most, rounding_mode="floor") + first
        ends = token == owner.eos
        self._end(ends[:, :beam] & (best[:, :beam] > -math.inf), best, row, step, forced)

        going = [i for i, s in enumerate(self.sentences) if not self._is_done(s, step)]
        if not going:
            return None
        if len(going) < count:
            kept = torch.tensor(going, device=self.device)
            best, token, row, ends = (x.index_select(0, kept) for x in (best, token, row, ends))
            self.sentences = [self.sentences[i] for i in going]
        # The best that do not end, in their order; within all prefixes one is all there are.
        rank = ends.long() * ends.size(1) + torch.arange(ends.size(1), device=self.device)
        within = all(step < len(self.prefixes[sentence]) for sentence in self.sentences)
        active = rank.topk(1 if within else beam, largest=False).indices
        best = best.masked_fill(ends, -math.inf)  # where there is nothing else to go on with
        best, token, row = (x.gather(1, active).view(-1) for x in (best, token, row))
        self.tokens = torch.cat([self.tokens.index_select(0, row), token[:, None]], dim=1)
        self.scores = torch.cat([self.scores.index_select(0, row), best[:, None]], dim=1)
        self.attention = [attention.index_select(0, row) for attention in self.attention]
        return row

    def _is_done(self, sentence: int, step: int) -> bool:
        return len(self.finished[sentence]) == self.beam or step >= self.limits[sentence]

    def _end(
        self, ends: Tensor, best: Tensor, row: Tensor, step: int, forced: dict[int, int]
    ) -> None:
        """Keeps the hypotheses that end with this step.

        Args:
            ends: bool, (sentences, beam)
            best: scores of the candidates, (sentences, candidates)
            row: their rows
            step: tokens before this one
            forced: see `_forced`
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
                    cut=place in forced,
                )
            )
