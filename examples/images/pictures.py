"""Pictures to classify: scikit-learn's digits, and CIFAR and ImageNet from a local folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from ea_fairseq.errors import UserError
from ea_fairseq.networks.torchvision_operators import name_missing_operators

name_missing_operators()
from torchvision import datasets  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

DATA = "digits", "cifar10", "cifar100", "imagenet"

# Mean and deviation of each channel over the training pictures.
_CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_CIFAR100 = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Pictures:
    """A classification task.

    Attributes:
        name: of the data
        size: height and width of what a network is given
        channels: of it
        classes: their number
        train: pictures to train on, with augmentation, (picture, class)
        test: pictures to report on
    """

    name: str
    size: int
    channels: int
    classes: int
    train: Dataset[Any]
    test: Dataset[Any]


class _Transformed(Dataset[Any]):
    """Pictures and classes in memory, with what is done to a picture each time it is taken."""

    def __init__(self, pictures: Tensor, classes: Tensor, transform: Any):
        self.pictures, self.classes, self.transform = pictures, classes, transform

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.transform(self.pictures[index]), self.classes[index]


def load(name: str, folder: Path | None, validate: bool) -> Pictures:
    """The pictures of a name.

    Args:
        name: one of ``DATA``
        folder: where they lie; digits need none
        validate: whether to report on a tenth of the training pictures, which is then not trained
            on, in the place of the test pictures: for choices

    Raises:
        UserError: naming what is missing or does not fit
    """
    if (folder is None) != (name == "digits"):
        raise UserError(
            f"{name} needs --data FOLDER"
            if folder is None
            else f"--data {folder}: digits come with scikit-learn; leave it out"
        )
    if name == "digits":
        found = _digits()
    elif name == "imagenet":
        found = _imagenet(folder)
    else:
        found = _cifar(name, folder)
    size, channels, classes, train, plain, test = found
    if validate:
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0)).tolist()
        held = len(train) // 10
        train, test = Subset(train, order[held:]), Subset(plain, order[:held])
    return Pictures(name, size, channels, classes, train, test)


def _digits() -> tuple[Any, ...]:
    """1,437 to train on and 360 of the test, always the same ones."""
    from sklearn.datasets import load_digits

    pictures, classes = load_digits(return_X_y=True)
    pictures = torch.tensor(pictures, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    classes = torch.tensor(classes)
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(0))
    test, train = order[:360], order[360:]
    normal = v2.Normalize([pictures[train].mean().item()], [pictures[train].std().item()])
    augmented = v2.Compose([v2.RandomCrop(8, padding=1), normal])
    return (
        *(8, 1, 10),
        _Transformed(pictures[train], classes[train], augmented),
        _Transformed(pictures[train], classes[train], normal),
        _Transformed(pictures[test], classes[test], normal),
    )


def _cifar(name: str, folder: Path) -> tuple[Any, ...]:
    kind, classes, normal = {
        "cifar10": (datasets.CIFAR10, 10, _CIFAR10),
        "cifar100": (datasets.CIFAR100, 100, _CIFAR100),
    }[name]
    as_tensor = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*normal)]
    augmented = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), *as_tensor])
    plain = v2.Compose(as_tensor)
    try:
        parts = [
            kind(folder, train=train, transform=transform)
            for train, transform in ((True, augmented), (True, plain), (False, plain))
        ]
    except RuntimeError:  # missing, or another checksum
        raise UserError(
            f"--data {folder}: has no whole {kind.base_folder}, which is what {kind.filename} "
            "unpacks to"
        ) from None
    return 32, 3, classes, *parts


def _imagenet(folder: Path) -> tuple[Any, ...]:
    """Folders train and val, in each a folder for each class (Szegedy et al. 2016's crops)."""
    end = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*_IMAGENET)]
    augmented = v2.Compose(
        [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4, 0.4, 0.4), *end]
    )
    plain = v2.Compose([v2.Resize(256), v2.CenterCrop(224), *end])
    try:
        parts = [
            datasets.ImageFolder(folder / part, transform)
            for part, transform in (("train", augmented), ("train", plain), ("val", plain))
        ]
    except FileNotFoundError as error:
        raise UserError(
            f"--data {folder}: wants folders train and val, with a folder of pictures for each "
            f"class: {error}"
        ) from None
    train, _, test = parts
    if strange := sorted(set(test.classes) ^ set(train.classes)):
        where = "val" if strange[0] in test.classes else "train"
        raise UserError(f"--data {folder}: class {strange[0]} is in {where} alone")
    return 224, 3, len(train.classes), *parts
