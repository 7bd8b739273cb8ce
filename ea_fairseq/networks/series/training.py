"""Pre-training by masked values, and fine-tuning (arXiv 2212.08330, section 3.3.2)."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor

from ...checkpoints.finite_weights import unusable_weight
from ...errors import UserError
from .data import padded
from .models import SeriesModel
from .settings import is_number, whole_number

#: Called after each epoch with "pre-training" or "training", the epoch from 1, and its mean loss.
Told = Callable[[str, int, float], None]


@dataclass(frozen=True)
class Schedule:
    """How a model is trained.

    Attributes:
        pretrain_epochs: of reconstructing masked values, before
        epochs: of classification or regression
        batch_size: series a batch
        learning_rate: of RAdam, whose betas are 0.9 and 0.99
        masked: part of the values that are masked, r
        compiled: whether to go through ``torch.compile``
    """

    pretrain_epochs: int = 20
    epochs: int = 50
    batch_size: int = 32
    learning_rate: float = 1e-3
    masked: float = 0.15
    compiled: bool = False

    def __post_init__(self) -> None:
        for name, least in (("pretrain_epochs", 0), ("epochs", 1), ("batch_size", 1)):
            value = whole_number(name, getattr(self, name), least, sys.maxsize)
            object.__setattr__(self, name, value)
        for name, most in (("learning_rate", math.inf), ("masked", 1.0)):
            value = getattr(self, name)
            if not is_number(value) or not 0.0 < value < most:
                raise UserError(f"{name} must be a number between 0 and {most}, not {value!r}")
            object.__setattr__(self, name, float(value))
        if not isinstance(self.compiled, bool | numpy.bool_):
            raise UserError(f"compiled must be True or False, not {self.compiled!r}")


def fit(
    model: SeriesModel,
    series: Sequence[numpy.ndarray],
    targets: Tensor,
    schedule: Schedule,
    seed: int,
    told: Told | None = None,
) -> None:
    """Standardises, pre-trains and trains a model; it ends in evaluation mode.

    Args:
        model: new, on its device
        series: arrays (channels, time), the training set
        targets: long (series,), classes; or float (series,), of a regression
        schedule: see :class:`Schedule`
        seed: of the order of series and of what is masked. Dropout draws from torch's own generator
        told: see :data:`Told`

    Raises:
        UserError: the loss, or a weight in the end, is no longer a finite number; targets of
            another number than series, or of the other kind than the model's outputs
    """
    regression = targets.is_floating_point()
    if targets.shape != (len(series),):
        raise UserError(f"targets: {tuple(targets.shape)} for {len(series)} series")
    if regression != (model.config.outputs == 1):
        kind = "numbers (float)" if regression else "classes (long)"
        raise UserError(f"targets: are {kind}, and the model has {model.config.outputs} outputs")
    device = model.mean.device
    x, padding = padded(series)
    model.standardise_by(
        x.to(device),
        None if padding is None else padding.to(device),
        targets.to(device) if regression else None,
    )
    generator = torch.Generator().manual_seed(seed)

    def reconstruct(batch: Tensor) -> Tensor:
        x, padding = batch_of(series, batch, device)
        drawn = torch.rand(x.shape, generator=generator)
        return reconstruction(x, padding, (drawn < schedule.masked).to(device))

    def answer(batch: Tensor) -> Tensor:
        output = outputs(*batch_of(series, batch, device))
        wanted = targets[batch].to(device)
        if not regression:
            return F.cross_entropy(output, wanted)
        wanted = (wanted - model.target_mean) / model.target_deviation
        return F.mse_loss(output[:, 0], wanted.to(output.dtype))

    reconstruction, outputs = model.reconstruction_loss, model
    if schedule.compiled:
        reconstruction = torch.compile(model.reconstruction_loss, dynamic=True)
        outputs = torch.compile(model, dynamic=True)
    model.train()
    phases = [("pre-training", schedule.pretrain_epochs, reconstruct)]
    phases.append(("training", schedule.epochs, answer))
    for name, epochs, loss_of in phases:
        # Each phase has its own: a head's state would else be counted from before its first update.
        optimizer = torch.optim.RAdam(
            model.parameters(), schedule.learning_rate, (0.9, 0.99), foreach=True
        )
        for epoch in range(1, epochs + 1):
            losses = []
            for batch in _batches(len(series), schedule.batch_size, generator):
                loss = loss_of(batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            mean = float(torch.stack(losses).mean())
            if not numpy.isfinite(mean):
                raise UserError(
                    f"{name}: the loss of epoch {epoch} is {mean}: choose a learning_rate below "
                    f"{schedule.learning_rate}"
                )
            if told is not None:
                told(name, epoch, mean)
    if bad := unusable_weight(model.state_dict(), model.mean.dtype):  # after the last update
        raise UserError(f"training: {bad}: choose a learning_rate below {schedule.learning_rate}")
    model.eval()


@torch.no_grad()
def outputs_of(
    model: SeriesModel,
    series: Sequence[numpy.ndarray],
    batch_size: int = 64,
    function: Callable[[Tensor, Tensor | None], Tensor] | None = None,
) -> Tensor:
    """What a model says of series, (series, outputs), on the CPU.

    Args:
        model: in evaluation mode
        series: arrays (channels, time)
        batch_size: series a batch; it changes nothing but time and memory
        function: another one of the model's, such as ``model.representation``

    Raises:
        UserError: naming the first series of which the model says no finite numbers
    """
    device = model.mean.device
    numbers = torch.arange(len(series)).split(batch_size)
    function = model if function is None else function
    result = torch.cat([function(*batch_of(series, batch, device)).cpu() for batch in numbers])
    finite = result.isfinite().flatten(1).all(1)
    if not finite.all():
        number = int(finite.logical_not().nonzero()[0])
        raise UserError(
            f"series {number} of X gives no finite result: its values, up to "
            f"{abs(series[number]).max():.3g}, may be far beyond those of training"
        )
    return result


def batch_of(
    series: Sequence[numpy.ndarray], batch: Tensor, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Some of the series, padded, on a device."""
    x, padding = padded([series[number] for number in batch.tolist()])
    return x.to(device), None if padding is None else padding.to(device)


def _batches(series: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """All series in a new order. None stands alone at the end: batch norm could not measure it."""
    order = torch.randperm(series, generator=generator)
    batches = list(order.split(size))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    yield from batches
