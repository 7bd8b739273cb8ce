"""One model's decoder, step by step, for a search: fairseq's on torch, or compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from fairseq.models import (
    FairseqEncoderDecoderModel,
    FairseqIncrementalDecoder,
    FairseqLanguageModel,
)
from fairseq.models.lstm import LSTMEncoder
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..kernels.fused_decoder import FusedDecoder, Rules


class TorchDecoder:
    """A decoder of fairseq's, any of them.

    Args:
        model: whose it is
        encoded: its encoder's output; None of a language model
        temperature: logits are divided by it
    """

    def __init__(
        self,
        model: FairseqEncoderDecoderModel | FairseqLanguageModel,
        encoded: Any,
        temperature: float = 1.0,
    ):
        self.model, self.encoded, self.temperature = model, encoded, temperature
        incremental = isinstance(model.decoder, FairseqIncrementalDecoder)
        self.state = {} if incremental else None
        # An adaptive softmax has no scores but log-probabilities.
        self.normalized = getattr(model.decoder, "adaptive_softmax", None) is not None
        self.reordered = False
        modules = model.decoder.modules()
        self.with_state = [m for m in modules if hasattr(m, "reorder_incremental_state")]

    def step(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Scores of the token after these, (rows, vocabulary), and attention (rows, src_len) or
        None. The scores are logits, or where `normalized` log-probabilities."""
        steps = {} if self.state is None else {"incremental_state": self.state}
        output = self.model.decoder(tokens, encoder_out=self.encoded, **steps)
        if self.normalized:
            scores = self.model.get_normalized_probs(output, log_probs=True)
        else:
            scores = output[0]
        scores = scores[:, -1].float()
        if self.temperature != 1:
            scores = scores / self.temperature
            scores = scores.log_softmax(dim=1) if self.normalized else scores
        attention = output[1].get("attn") if isinstance(output[1], dict) else output[1]
        if isinstance(attention, list):
            attention = attention[0]
        return scores, None if attention is None else self._padded_left(attention[:, -1])

    def _padded_left(self, attention: Tensor) -> Tensor:
        """Attention (rows, src_len) to sources padded on the left, as they were given: fairseq's
        LSTM moves the padding to the right."""
        if not isinstance(getattr(self.model, "encoder", None), LSTMEncoder):
            return attention
        *_, padding = self.encoded  # (src_len, rows)
        columns = torch.arange(len(padding), device=attention.device)
        return attention.gather(1, (columns - padding.sum(dim=0)[:, None]) % len(padding))

    def reorder(self, order: Tensor) -> None:
        """Goes on with other rows."""
        if self.state is not None:
            if not self.reordered:
                self._move_keys(order)
                self.reordered = True
            for module in self.with_state:
                kept = module.reorder_incremental_state(self.state, order)
                self.state = self.state if kept is None else kept
        if self.encoded is not None:
            self.encoded = self.model.encoder.reorder_encoder_out(self.encoded, order)

    def _move_keys(self, order: Tensor) -> None:
        """Moves the keys of sources that fairseq would leave: as many rows are the same ones to it,
        while after the first step some sources may have ended and the others more rows."""
        for module in self.with_state:
            if type(module) is MultiheadAttention and module.encoder_decoder_attention:
                kept = module._get_input_buffer(self.state)
                for name, rows in kept.items():
                    if rows is not None and len(rows) == len(order):
                        kept[name] = rows.index_select(0, order)
                self.state = module._set_input_buffer(self.state, kept)


class CompiledDecoder:
    """A decoder that chooses tokens itself, over encoded sources.

    Args:
        decoder: of a `CompiledModel`
        encoded: (positions, embed_dim), one sentence after the other
        lengths: of the sentences
        rules: which tokens may be chosen
    """

    def __init__(
        self, decoder: FusedDecoder, encoded: Tensor, lengths: Sequence[int], rules: Rules
    ):
        self._decoding = decoder.begin(encoded, lengths)
        self._rules = rules
        self._parents: Tensor | None = None

    def best(
        self, tokens: Tensor, sentences: Tensor, most: int, no_end: bool, last: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities (rows, most) of each row's best next tokens, and these.

        Args:
            tokens: (rows, length) so far, of which the last is new
            sentences: long, (rows), whose they are
            most: how many
            no_end: whether no row may end
            last: bool, (rows), which rows must end
        """
        newest, parents = tokens[:, -1], self._parents
        self._parents = torch.arange(len(tokens))
        return self._decoding.step(newest, sentences, parents, most, self._rules, no_end, last)

    def reorder(self, order: Tensor) -> None:
        """Goes on with other rows."""
        self._parents = order
