"""fairseq's label-smoothed loss, and one that points the decoder's self-attention at hints."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask
from torch import Tensor, nn

from ..errors import UserError
from ..models.recorded_maps import recorded_self_attention
from .hints import Hints

NAME = "syntax_guided_cross_entropy"


@dataclass
class SyntaxGuidedCriterionConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Options of the criterion."""

    syntax_hints: Optional[str] = field(  # noqa: UP045  (what fairseq's parser can read)
        default=None,
        metadata={
            "help": "hints for the training set, a line for each sentence, as "
            "scripts/syntax_hints.py writes them"
        },
    )
    syntax_lambda: float = field(
        default=0.1,
        metadata={"help": "weight of the loss that points at the hints; 0 leaves it out"},
    )


@register_criterion(NAME, dataclass=SyntaxGuidedCriterionConfig)
class SyntaxGuidedCriterion(LabelSmoothedCrossEntropyCriterion):
    """BET(SG) of "Bird-Eye Transformers for Text Generation Models", equation (5).

    loss + lambda * sum over decoder layers of mean over heads and positions of -log A[t, hint(t)]

    A are the probabilities of self-attention. Position t reads token t and predicts token t + 1;
    hint(t) is the nearest ancestor of token t + 1 that stands to its left, else t, as for the end
    of a sentence, which has no ancestors. The mean is over the batch's positions as fairseq's loss
    is over its tokens. In validation there is no such loss: it compares with other models' then.

    Differs from the paper: the minus, without which the loss would lead away from the hints.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int,
        report_accuracy: bool,
        syntax_hints: str | None,
        syntax_lambda: float,
    ):
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        if not isinstance(task, TranslationTask | LanguageModelingTask):
            raise UserError(
                f"--criterion {NAME} needs --task translation, whose target hints are for, or "
                "language_modeling"
            )
        mode = getattr(getattr(task, "args", None), "sample_break_mode", None)
        if isinstance(task, LanguageModelingTask) and mode != "eos":
            raise UserError(
                f"--criterion {NAME} needs --sample-break-mode eos with a language model, not "
                f"{mode}: hints are for lines"
            )
        if not 0 <= syntax_lambda < math.inf:
            raise UserError(f"--syntax-lambda must be a number from 0 up, not {syntax_lambda}")
        if syntax_lambda > 0 and not syntax_hints:
            raise UserError(
                f"--criterion {NAME} needs --syntax-hints FILE, or --syntax-lambda 0 without them"
            )
        options = getattr(task, "args", None) or getattr(task, "cfg", None)
        data, buckets = (getattr(options, name, None) for name in ("data", "num_batch_buckets"))
        if syntax_lambda > 0 and data and len(utils.split_paths(data)) > 1:
            raise UserError(
                f"--syntax-hints {syntax_hints}: is for the sentences of one folder, not of {data}"
            )
        if syntax_lambda > 0 and buckets:
            raise UserError(
                f"--num-batch-buckets {buckets} cannot be combined with --criterion {NAME}: it "
                "pads sentences before they are compared with their hints"
            )
        self.weight = syntax_lambda
        self.path = syntax_hints
        self.hints: Hints | None = None  # read when training begins: who only validates needs none
        self.checked = False

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """See fairseq's criterion; ``syntax_loss`` is the sum over layers and positions.

        Raises:
            UserError: the hints do not fit the data, or the model has no maps to point with
        """
        if not self.weight or not model.training:
            return super().forward(model, sample, reduce)
        columns, real = self._columns(sample)
        with recorded_self_attention(model.decoder) as maps:
            loss, sample_size, logging_output = super().forward(model, sample, reduce)
        self._check(maps, columns, real)
        # LayerDrop may have dropped all layers.
        pointed = sum((pointer_loss(probs, columns, real) for probs in maps), loss.new_zeros(()))
        loss = loss + self.weight * pointed * (sample_size / sample["ntokens"])
        logging_output |= {"loss": loss.data, "syntax_loss": pointed.data}
        return loss, sample_size, logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs fairseq's metrics and, in training, syntax_loss in bits for each position."""
        super().reduce_metrics(logging_outputs)
        if any("syntax_loss" in log for log in logging_outputs):
            total = sum(log.get("syntax_loss", 0) for log in logging_outputs)
            positions = sum(log.get("ntokens", 0) for log in logging_outputs)
            metrics.log_scalar("syntax_loss", total / positions / math.log(2), positions, round=3)

    def _columns(self, sample: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """The key that each query should look at, and which queries are no padding: (batch,
        tgt_len), long and bool."""
        if self.hints is None:
            self.hints = self._read()
        net_input = sample["net_input"]
        # A language model has no other input than what it predicts.
        tokens = net_input.get("prev_output_tokens", net_input["src_tokens"])
        real = tokens.ne(self.padding_idx)
        columns = torch.arange(tokens.size(1)).repeat(tokens.size(0), 1)
        begins, lengths = real.int().argmax(dim=1).tolist(), real.sum(dim=1).tolist()
        for row, sentence in enumerate(sample["id"].tolist()):
            if sentence >= len(self.hints):
                raise UserError(
                    f"--syntax-hints {self.path}: {len(self.hints)} lines, and none for sentence "
                    f"{sentence + 1} of the training set"
                )
            hints, begin = self.hints[sentence], begins[row]
            self._check_length(sentence, len(hints), lengths[row] - 1)
            # The last query predicts the end of the sentence, and looks at itself.
            columns[row, begin : begin + len(hints)] = begin + torch.from_numpy(hints)
        return columns.to(tokens.device), real

    def _read(self) -> Hints:
        """The hints, compared with the training set as far as it is known."""
        try:
            hints = Hints(Path(self.path))
        except ValueError as error:
            raise UserError(f"--syntax-hints {error}") from None
        sizes = self._training_sizes()
        if sizes is not None:
            if len(hints) != len(sizes):
                raise UserError(
                    f"--syntax-hints {self.path}: {len(hints)} lines for the {len(sizes)} "
                    "sentences of the training set"
                )
            for sentence in (hints.lengths() + 1 != sizes).nonzero()[0][:1].tolist():
                self._check_length(sentence, len(hints[sentence]), int(sizes[sentence]) - 1)
        return hints

    def _training_sizes(self) -> np.ndarray | None:
        """Tokens of each sentence of the training set, the ends included; None if not known."""
        if isinstance(self.task, LanguageModelingTask):
            return getattr(self.task.datasets.get("train"), "sizes", None)
        return getattr(self.task.datasets.get(self.task.cfg.train_subset), "tgt_sizes", None)

    def _check_length(self, sentence: int, hints: int, subwords: int) -> None:
        if hints != subwords:
            raise UserError(
                f"--syntax-hints {self.path}: line {sentence + 1} has {hints} hints for the "
                f"{subwords} subwords of that sentence of the training set"
            )

    def _check(self, maps: list[Tensor], columns: Tensor, real: Tensor) -> None:
        """Once: whether the model has maps that can learn to point at hints."""
        if self.checked or not maps:
            return
        self.checked = True
        if torch.is_grad_enabled() and not all(probs.requires_grad for probs in maps):
            raise UserError(
                f"--checkpoint-activations cannot be combined with --criterion {NAME}: its maps "
                "are not kept"
            )
        own = torch.arange(columns.size(1), device=columns.device)
        own_hints = (columns == own) & real & (real.cumsum(dim=1) > 1)
        diagonal = maps[0].diagonal(dim1=2, dim2=3)[:, own_hints]
        if diagonal.numel() and diagonal.eq(0).all():
            raise UserError(
                f"--criterion {NAME} points tokens without an ancestor at themselves, and this "
                "decoder hides them from themselves: choose another --ea-variant, or --ea-diagonal "
                "1"
            )


def pointer_loss(probs: Tensor, columns: Tensor, real: Tensor) -> Tensor:
    """Sum over positions of the mean over heads of -log A[t, hint(t)].

    Args:
        probs: (heads, batch, tgt_len, tgt_len)
        columns: long, (batch, tgt_len), hint(t)
        real: bool, (batch, tgt_len), False for padding
    """
    index = columns[None, :, :, None].expand(probs.size(0), -1, -1, -1)
    chosen = probs.gather(3, index).squeeze(3)
    # Not -inf where a probability is too small for its type.
    surprise = -chosen.clamp_min(torch.finfo(probs.dtype).tiny).log()
    return surprise.mean(dim=0).masked_fill(~real, 0.0).sum()
