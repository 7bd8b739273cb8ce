"""A model of series: standardisation, an encoder, and heads for what is to be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UserError
from ...files import new_folder, read_json, write_json
from .encoders import build_encoder, read_out
from .layers import zero_padded

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_FORMAT = "ea_fairseq.networks.series 1"


@dataclass(frozen=True)
class SeriesConfig:
    """All that a model is built from.

    Attributes:
        channels: of the series
        max_len: steps of the longest series that it takes
        outputs: classes, or 1 for regression
        encoder: "dc", "lstm", "gru" or "resnet"
        embed_dim: d
        num_blocks: n
        dropout: in training
        attention: of "dc": num_heads, p, variant and the variant's options
        classes: labels in the order of the outputs; None for regression
    """

    channels: int
    max_len: int
    outputs: int
    encoder: str = "dc"
    embed_dim: int = 64
    num_blocks: int = 2
    dropout: float = 0.1
    attention: Mapping[str, Any] = field(default_factory=dict)
    classes: tuple[str | int | float | bool, ...] | None = None


class SeriesModel(nn.Module):
    """An encoder of series with a classifier or regressor (arXiv 2212.08330, equations 7 to 10).

    Channels are standardised by what :meth:`standardise_by` has measured, targets of a regression
    likewise: outputs are in units of their deviation.

    Args:
        config: see :class:`SeriesConfig`

    Raises:
        UserError: naming the setting, its value and the choices
    """

    def __init__(self, config: SeriesConfig):
        super().__init__()
        if not 0.0 <= config.dropout < 1.0:
            raise UserError(f"dropout must be in [0, 1), not {config.dropout}")
        self.config = config
        self.encoder = build_encoder(
            config.encoder,
            *(config.channels, config.max_len, config.embed_dim, config.num_blocks),
            config.dropout,
            **config.attention,
        )
        width = self.encoder.width
        self.readout = self.encoder.readout
        self.reconstruction = nn.Linear(width, config.channels)
        steps = config.max_len if self.readout == "flatten" else 1
        self.head = nn.Linear(steps * width, config.outputs)
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("mean", torch.zeros(config.channels))
        self.register_buffer("deviation", torch.ones(config.channels))
        self.register_buffer("target_mean", torch.zeros(()))
        self.register_buffer("target_deviation", torch.ones(()))

    @torch.no_grad()
    def standardise_by(
        self, x: Tensor, padding: Tensor | None, targets: Tensor | None = None
    ) -> None:
        """Measures mean and deviation of each channel, and of a regression's targets.

        The classifier's weights of steps that none of these series has become 0: no training will
        ever reach them.

        Args:
            x: (series, time, channels), the training set
            padding: bool, (series, time), or None
            targets: (series,), of a regression
        """
        values = x.flatten(0, 1) if padding is None else x[~padding]
        values = values.double()
        self.mean.copy_(values.mean(0))
        self.deviation.copy_(_deviation(values))
        if targets is not None:
            self.target_mean.copy_(targets.double().mean())
            self.target_deviation.copy_(_deviation(targets.double()))
        if self.readout == "flatten":
            by_step = self.head.weight.view(-1, self.config.max_len, self.encoder.width)
            by_step[:, x.size(1) :] = 0.0

    def standardised(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """The series as the encoder takes them, padded steps 0."""
        return zero_padded((x - self.mean) / self.deviation, padding)

    def representation(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """Z, what the head reads: (batch, features). Args: see :meth:`forward`."""
        states = self.encoder(self.standardised(x, padding), padding)
        return read_out(states, padding, self.readout, self.config.max_len)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """Logits of classes, or standardised targets (equations 9 and 10).

        Args:
            x: (batch, time, channels); time is at most max_len
            padding: bool, (batch, time), True where a step is padding, at the end; or None

        Returns:
            (batch, outputs)
        """
        return self.head(self.dropout(self.representation(x, padding)))

    def reconstruction_loss(self, x: Tensor, padding: Tensor | None, masked: Tensor) -> Tensor:
        """Mean squared error over masked values alone (equations 7 and 8).

        Args:
            x, padding: see :meth:`forward`
            masked: bool, (batch, time, channels), True where a value is hidden from the encoder;
                at padded steps it counts for nothing

        Returns:
            a scalar, in units of the channels' deviations; 0 where nothing is masked
        """
        if padding is not None:
            masked = masked & ~padding[..., None]
        values = self.standardised(x, padding)
        rebuilt = self.reconstruction(self.encoder(values.masked_fill(masked, 0.0), padding))
        squares = (rebuilt - values).square().masked_fill(~masked, 0.0)
        return squares.sum() / masked.sum().clamp(min=1)

    def save(self, path: str | Path) -> None:
        """Writes a folder with the settings (JSON) and the weights (safetensors).

        An earlier model there is replaced; anything else is not.

        Raises:
            UserError: something else has the name
        """
        from safetensors.torch import save

        path = Path(path)
        if path.exists() and not (path / CONFIG).is_file():
            raise UserError(f"{path}: is there already and is no model; choose another name")
        with new_folder(path) as folder:
            (folder / WEIGHTS).write_bytes(save(self.state_dict()))
            settings = {item.name: getattr(self.config, item.name) for item in fields(self.config)}
            write_json(folder / CONFIG, {"format": _FORMAT, **settings})

    @classmethod
    def load(cls, path: str | Path) -> SeriesModel:
        """Reads what :meth:`save` has written; in evaluation mode.

        Raises:
            UserError: naming the file, if it is missing, damaged or of another format
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = Path(path)
        try:
            content = read_json(path / CONFIG)
        except ValueError as error:
            raise UserError(str(error)) from error
        if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
            raise UserError(f"{path / CONFIG}: is no model of series, whose format is {_FORMAT!r}")
        try:
            classes = content.pop("classes")
            model = cls(SeriesConfig(**content, classes=classes and tuple(classes)))
        except (TypeError, KeyError) as error:
            raise UserError(f"{path / CONFIG}: settings do not fit: {error}") from error
        try:
            model.load_state_dict(load_file(path / WEIGHTS))
        except (SafetensorError, OSError, RuntimeError) as error:
            raise UserError(f"{path / WEIGHTS}: cannot be read: {error}") from error
        return model.eval()


def _deviation(values: Tensor) -> Tensor:
    """Standard deviation over the first dimension; 1 where nothing varies."""
    deviation = values.std(0, correction=0)
    return torch.where(deviation > 0, deviation, torch.ones_like(deviation))
