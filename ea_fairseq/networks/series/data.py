"""Series as the field's libraries give them, checked and padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from ...errors import UserError


def as_series(x: Any, name: str = "X", new: bool = True) -> list[numpy.ndarray]:
    """Series as float32 arrays of (channels, time) each.

    Args:
        x: as aeon and scikit-learn give them: an array (series, channels, time) or, of one channel,
            (series, time); or a sequence of arrays (channels, time) of any lengths
        name: what messages call it
        new: whether a model is to be trained on them

    Raises:
        UserError: naming the first series that is no such array, has other channels than the first,
            no steps, masked values, or a value that is no finite number; of new ones, the channel
            whose changes are too small for float32 beside the values themselves
    """
    if isinstance(x, numpy.ndarray) and x.dtype != object:
        if x.ndim == 2:
            x = x[:, None, :]
        if x.ndim != 3:
            raise UserError(
                f"{name} must be an array (series, channels, time) or (series, time), or a list of "
                f"arrays (channels, time), not an array of {x.ndim} dimensions"
            )
    found, given = [], []
    for number, one in enumerate(x):
        series = numpy.asarray(one)
        if series.ndim != 2 or series.dtype.kind not in "fiub":
            raise UserError(
                f"series {number} of {name} must be numbers (channels, time), not {series.dtype} "
                f"of shape {series.shape}"
            )
        if found and len(series) != len(found[0]):
            raise UserError(
                f"series {number} of {name} has {len(series)} channels, series 0 has "
                f"{len(found[0])}: all need the same (an array is (channels, time))"
            )
        if 0 in series.shape:
            raise UserError(f"series {number} of {name} has no values: its shape is {series.shape}")
        if numpy.ma.is_masked(one):
            raise UserError(f"series {number} of {name} has masked values: fill them first")
        given.append(series)
        with numpy.errstate(over="ignore"):
            series = series.astype(numpy.float32)
        if not numpy.isfinite(series).all():
            channel, step = numpy.argwhere(~numpy.isfinite(series))[0]
            raise UserError(
                f"series {number} of {name} has {series[channel, step]} (NaN, or inf where it is "
                f"beyond float32) in channel {channel} at step {step}: fill gaps first, such as by "
                "interpolation, or leave the series out"
            )
        found.append(series)
    if not found:
        raise UserError(f"{name} has no series")
    if new:
        _check_changes_remain(given, found, name)
    return found


def _check_changes_remain(
    given: Sequence[numpy.ndarray], rounded: Sequence[numpy.ndarray], name: str
) -> None:
    """Raises UserError where rounding to float32 takes away more than a hundredth of a channel's
    changes; not where these are themselves no more than rounding."""
    for channel in range(len(given[0])):
        before, after = (
            numpy.concatenate([one[channel] for one in series]).astype(numpy.float64)
            for series in (given, rounded)
        )
        spread, size, lost = numpy.ptp(before), abs(before).max(), abs(before - after).max()
        if lost > spread / 100 and spread > 1e-12 * size:
            raise UserError(
                f"{name} changes by {spread:.3g} in channel {channel} beside values of {size:.3g}, "
                "too little for float32: subtract the training set's mean first"
            )


def padded(series: Sequence[numpy.ndarray], length: int = 0) -> tuple[Tensor, Tensor | None]:
    """Series of one batch, padded at the end.

    Args:
        series: arrays (channels, time)
        length: steps of the result; those of the longest series where it is longer

    Returns:
        float32 (series, time, channels), and bool (series, time), True where a step is padding;
        None where all are equally long
    """
    lengths = torch.tensor([one.shape[1] for one in series])
    longest = max(length, int(lengths.max()))
    x = torch.zeros(len(series), longest, len(series[0]))
    for row, one in zip(x, series, strict=True):
        row[: one.shape[1]] = torch.from_numpy(one.T)
    if bool((lengths == longest).all()):
        return x, None
    return x, torch.arange(longest) >= lengths[:, None]
