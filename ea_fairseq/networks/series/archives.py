"""Data sets of the UEA, UCR and Monash archives: those inside of aeon, or folders of .ts files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy

from ...errors import UserError, perhaps_meant
from .data import as_series


@dataclass(frozen=True)
class Part:
    """The training or the test set.

    Attributes:
        series: arrays (channels, time)
        targets: labels (text), or numbers of a regression; one for each series
    """

    series: list[numpy.ndarray]
    targets: numpy.ndarray


@dataclass(frozen=True)
class Dataset:
    """A data set as its archive splits it.

    Attributes:
        name: such as "JapaneseVowels"
        train, test: its parts
        classes: labels, sorted; None of a regression
    """

    name: str
    train: Part
    test: Part
    classes: list[str] | None

    @property
    def longest(self) -> int:
        """Steps of the longest series."""
        return max(one.shape[1] for one in self.train.series + self.test.series)


def load_dataset(where: str) -> Dataset:
    """Reads a data set; nothing is downloaded.

    Args:
        where: a folder with NAME_TRAIN.ts and NAME_TEST.ts, NAME being the folder's; or the name of
            a data set inside of aeon, such as "JapaneseVowels"

    Raises:
        UserError: there is no such data set, or its series cannot be used as they are
    """
    folder = Path(where)
    if not folder.is_dir():
        folder = embedded(where)
    name = folder.resolve().name
    train, is_regression = _read(folder / f"{name}_TRAIN.ts")
    test, other = _read(folder / f"{name}_TEST.ts")
    if is_regression != other:
        raise UserError(f"{folder}: one part has classes, the other numbers to predict")
    channels, others = (part.series[0].shape[0] for part in (train, test))
    if channels != others:
        raise UserError(f"{folder}: training series have {channels} channels, test series {others}")
    if is_regression:
        return Dataset(name, train, test, None)
    classes = sorted(set(train.targets.tolist()))
    if len(classes) < 2:
        raise UserError(f"{folder}: all training series are of class {classes[0]!r}")
    for number, label in enumerate(test.targets.tolist()):
        if label not in classes:
            raise UserError(
                f"{folder / f'{name}_TEST.ts'}: series {number} has class {label!r}, which no "
                f"training series has ({', '.join(classes)}): leave it out, or mend the split"
            )
    return Dataset(name, train, test, classes)


def embedded(name: str) -> Path:
    """The folder of a data set inside of aeon.

    Raises:
        UserError: aeon is not installed, or has no such data set; with the choices
    """
    folder = Path(_aeon().__file__).parent / "data"
    known = sorted(one.parent.name for one in folder.glob("*/*_TRAIN.ts"))
    known = [one for one in dict.fromkeys(known) if (folder / one / f"{one}_TEST.ts").is_file()]
    if name not in known:
        raise UserError(
            f"{name}: no folder, and no data set inside of aeon ({', '.join(known)})"
            f"{perhaps_meant(name, known)}; for another one, name a folder with its .ts files"
        )
    return folder / name


def _read(file: Path) -> tuple[Part, bool]:
    if not file.is_file():
        raise UserError(f"{file}: no such file; a data set is NAME/NAME_TRAIN.ts and _TEST.ts")
    try:
        series, targets, said = _aeon().load_from_ts_file(str(file), return_meta_data=True)
    except (OSError, ValueError, IndexError) as error:
        raise UserError(f"{file}: cannot be read: {error}") from error
    if not (said["classlabel"] or said["targetlabel"]):
        raise UserError(f"{file}: says neither @classLabel true nor @targetLabel true")
    regression = bool(said["targetlabel"])
    targets = numpy.asarray(targets, dtype=float if regression else str)
    if regression and not numpy.isfinite(targets).all():
        number = int(numpy.flatnonzero(~numpy.isfinite(targets))[0])
        raise UserError(f"{file}: the target of series {number} is {targets[number]}: leave it out")
    return Part(as_series(series, str(file)), targets), regression


def _aeon():
    try:
        from aeon import datasets
    except ImportError as error:
        raise UserError(
            f"series are read by aeon ({error}): pip install 'ea_fairseq[series]'"
        ) from error
    return datasets
