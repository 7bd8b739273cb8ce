"""Lets torchvision's build for GPUs be imported beside a torch without them.

The package index has torchvision for GPUs alone. Its compiled operators do not load where torch was
built for the CPU, and then its import ends with "operator torchvision::nms does not exist", for it
describes two of them. Networks, transforms and data sets need none of these operators: it is enough
that the two have names.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_defined: list[torch.library.Library] = []  # an operator lives as long as its library


def name_missing_operators() -> None:
    """To be called before torchvision is imported; does nothing where its operators load."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations or _defined:
        return
    for library in Path(next(iter(spec.submodule_search_locations))).glob("_C*.so"):
        try:
            torch.ops.load_library(library)
        except (OSError, RuntimeError):  # of another torch, or one without a GPU
            continue
        return
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + _SIGNATURE)
    _defined.append(library)
