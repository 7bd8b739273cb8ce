"""A model of series: standardisation, an encoder, and heads for what is to be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from ...checkpoints.finite_weights import unusable_weight
from ...checkpoints.mismatch import describe_mismatch
from ...errors import UserError
from ...files import new_folder, read_json, read_json_or_none, shortened, write_json
from .encoders import build_encoder, read_out
from .layers import zero_padded
from .settings import MOST, MOST_BLOCKS, is_number, whole_number

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

    Raises:
        UserError: naming the setting, its value and what is expected
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

    def __post_init__(self) -> None:
        for name in ("channels", "max_len", "outputs", "embed_dim", "num_blocks"):
            most = MOST_BLOCKS if name == "num_blocks" else MOST
            object.__setattr__(self, name, whole_number(name, getattr(self, name), most=most))
        if not is_number(self.dropout) or not 0.0 <= self.dropout < 1.0:
            raise UserError(f"dropout must be in [0, 1), not {self.dropout!r}")
        object.__setattr__(self, "dropout", float(self.dropout))
        # numpy's numbers have no place in a file of settings.
        attention = {
            name: value.item() if isinstance(value, numpy.generic) else value
            for name, value in self.attention.items()
        }
        if "num_heads" in attention:
            whole_number("num_heads", attention["num_heads"])
        if not isinstance(attention.get("variant", ""), str):
            raise UserError(f"variant must be a name, not {attention['variant']!r}")
        object.__setattr__(self, "attention", attention)
        if self.classes is not None and not (
            len(self.classes) == len(set(self.classes)) == self.outputs
        ):
            raise UserError(
                f"classes must be {self.outputs} labels, one for each output and no two the same, "
                f"not {shortened(repr(list(self.classes)), 60)}"
            )


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
        if x.size(-1) != self.config.channels:
            raise UserError(
                f"series of {x.size(-1)} channels; the model has {self.config.channels}"
            )
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
            UserError: something else has the name, or lies beside an earlier model
        """
        from safetensors.torch import save

        path = Path(path)
        if (path.exists() or path.is_symlink()) and not _is_saved(path):
            raise UserError(
                f"{path}: is there already and is no model of series with nothing beside it; "
                "choose another name"
            )
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
        except OSError as error:
            raise UserError(f"{path / CONFIG}: cannot be read: {error.strerror}") from error
        if content.pop("format", None) != _FORMAT:
            raise UserError(f"{path / CONFIG}: is no model of series, whose format is {_FORMAT!r}")
        try:
            config = SeriesConfig(**content | {"classes": _classes(content["classes"])})
            with torch.device("meta"):  # takes no memory
                shapes = cls(config)
        except Exception as error:  # what a file says may fail anywhere
            reason = " ".join((str if isinstance(error, UserError) else repr)(error).split())
            raise UserError(f"{path / CONFIG}: settings do not fit: {reason}") from error
        try:
            weights = load_file(path / WEIGHTS)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path / WEIGHTS}: cannot be read: {error}") from error
        if bad := unusable_weight(weights):
            raise UserError(f"{path / WEIGHTS}: {bad}")
        try:
            shapes.load_state_dict(weights, assign=True)
        except RuntimeError as error:
            reason = describe_mismatch(str(error)) or " ".join(str(error).split())
            raise UserError(f"{path / WEIGHTS}: does not fit {CONFIG}: {reason}") from error
        model = cls(config)
        model.load_state_dict(weights)
        for name in ("deviation", "target_deviation"):
            if not (getattr(model, name) > 0).all():
                raise UserError(f"{path / WEIGHTS}: {name} has values that are not above 0")
        return model.eval()


def _is_saved(path: Path) -> bool:
    """Whether a folder holds what :meth:`SeriesModel.save` writes, and nothing else."""
    if path.is_symlink() or not (path / CONFIG).is_file():
        return False
    known = all(one.name in (CONFIG, WEIGHTS) and one.is_file() for one in path.iterdir())
    return known and (read_json_or_none(path / CONFIG) or {}).get("format") == _FORMAT


def _classes(content: Any) -> tuple[str | int | float | bool, ...] | None:
    """Labels of a file of settings."""
    if content is None:
        return None
    # NaN is unlike itself.
    if type(content) is not list or not all(
        isinstance(one, str | int | float) and one == one for one in content
    ):
        raise UserError(f"classes must be a list of labels, not {shortened(repr(content), 60)}")
    return tuple(content)


def _deviation(values: Tensor) -> Tensor:
    """Standard deviation over the first dimension; 1 where nothing varies."""
    deviation = values.std(0, correction=0)
    return torch.where(deviation > 0, deviation, torch.ones_like(deviation))
