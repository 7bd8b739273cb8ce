"""The mean of several checkpoints' weights, and which checkpoints of a folder to take."""

from __future__ import annotations

import os
import re
import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..errors import UserError
from .reading import read_checkpoint, setting
from .text_identity import KEY, identity_of_checkpoint

_EPOCH = re.compile(r"checkpoint(\d+)\.pt")
_UPDATE = re.compile(r"checkpoint_\d+_(\d+)\.pt")
_BEST = re.compile(r"checkpoint\.best_(.+)_(-?\d+(?:\.\d+)?)\.pt")
#: Settings that change what equal weights compute, and no parameter's shape.
_COMPUTES = re.compile("^ea_|attention_heads$|normalize_before$|activation_fn$")


def average_checkpoints(inputs: Sequence[str]) -> dict[str, Any]:
    """Average the parameters of checkpoints.

    Half-precision parameters are summed in, and returned as, float32. Integers are divided
    rounding down. Parameters that share their memory in every input share it in the result.

    Args:
        inputs: the files; each counts once.

    Returns:
        The content of the first checkpoint, with the averaged parameters as ``"model"``, and
        what any of them knows about languages and dictionaries. A warning says where two are of
        different trainings.

    Raises:
        UserError: naming the files, if one cannot be read, or their parameters, languages or
            dictionaries differ.
    """
    if not inputs:
        raise UserError("no checkpoints to average")
    average: dict[str, Any] = {}
    names: list[str] = []
    sums: dict[str, Tensor] = {}
    shared: dict[str, str] = {}
    text: tuple[str, dict[str, Any]] | None = None
    for path in inputs:
        state = read_checkpoint(path)
        model = state["model"]
        if (identity := identity_of_checkpoint(state)) is not None:
            text = text or (path, identity)
            _check_same_text(*text, path, identity)
        if not average:
            average, names, shared = state, list(model), _shared(model)
            sums = {name: _summand(model[name]).clone() for name in names}
            continue
        _check_same_parameters(inputs[0], sums, path, model)
        _warn_of_another_training(inputs[0], average, path, state)
        here = _shared(model)
        shared = {name: first for name, first in shared.items() if here.get(name) == first}
        for name, total in sums.items():
            total += _summand(model[name])

    means: OrderedDict[str, Tensor] = OrderedDict()
    for name in names:
        if name in shared:
            means[name] = means[shared[name]]
            continue
        total = sums[name]
        if total.is_floating_point():
            means[name] = total.div_(len(inputs))
        else:
            original = average["model"][name].dtype
            means[name] = total.div_(len(inputs), rounding_mode="floor").to(original)
    average["model"] = means
    if text is not None:
        average.setdefault("extra_state", {})[KEY] = text[1]
    return average


def _summand(value: Tensor) -> Tensor:
    """The form in which a parameter is summed: wide enough for any number of checkpoints."""
    if not value.is_floating_point():
        return value.long()
    return value.float() if value.element_size() < 4 else value


def _shared(model: dict[str, Tensor]) -> dict[str, str]:
    """For each parameter that is another name of an earlier one: that earlier name."""
    earlier: dict[tuple[Any, ...], str] = {}
    shared = {}
    for name, value in model.items():
        memory = (value.data_ptr(), value.dtype, value.shape, value.stride())
        if value.numel() > 0 and earlier.setdefault(memory, name) != name:
            shared[name] = earlier[memory]
    return shared


def _check_same_text(
    first_path: str, first: dict[str, Any], path: str, identity: dict[str, Any]
) -> None:
    """Refuse to average models of other languages or dictionaries."""
    if identity == first:
        return
    for side, known in first.items():
        if identity[side].get("language") != known.get("language"):
            what = f"{side} languages: {known.get('language')}, {identity[side].get('language')}"
            break
        if identity[side] != known:
            what = f"{side} dictionaries"
            break
    else:
        what = "dictionaries"
    raise UserError(f"cannot average: {first_path} and {path} were trained with other {what}")


def _check_same_parameters(
    first_path: str, first: dict[str, Tensor], path: str, model: dict[str, Tensor]
) -> None:
    """Refuse to average parameters of different names, shapes or kinds of numbers."""
    for here, there, having, lacking in (
        (first, model, first_path, path),
        (model, first, path, first_path),
    ):
        extra = [name for name in here if name not in there]
        if extra:
            raise UserError(
                f"cannot average: {having} has the parameter {extra[0]}, {lacking} has not"
            )
    for name, value in first.items():
        other = model[name]
        if other.shape != value.shape:
            raise UserError(
                f"cannot average: {name} has shape {tuple(value.shape)} in {first_path}"
                f" and {tuple(other.shape)} in {path}"
            )
        if other.is_floating_point() != value.is_floating_point():
            raise UserError(
                f"cannot average: {name} holds integers in one of {first_path} and {path},"
                " and real numbers in the other"
            )


def _warn_of_another_training(
    first_path: str, first: dict[str, Any], path: str, state: dict[str, Any]
) -> None:
    """Say that weights which never were of one model have a mean that is none either."""
    places = [("checkpoint", "save_dir"), ("common", "seed")]
    places += [("model", name) for name in _model_settings(first) if _COMPUTES.search(name)]
    for section, name in places:
        one, other = setting(first, section, name), setting(state, section, name)
        if one != other and None not in (one, other):
            print(
                f"warning: {first_path} and {path} are of two trainings (--{name.replace('_', '-')}"
                f" {one} and {other}): the mean of their weights may translate nothing",
                file=sys.stderr,
            )
            return


def _model_settings(state: dict[str, Any]) -> list[str]:
    """Names of the settings that a checkpoint keeps of its model."""
    cfg = state.get("cfg")
    settings = state.get("args") if cfg is None else cfg.get("model")
    return sorted(settings if isinstance(settings, dict) else getattr(settings, "__dict__", {}))


def last_n_checkpoints(
    paths: Sequence[str],
    n: int,
    update_based: bool,
    upper_bound: int | None = None,
    allow_fewer: bool = False,
) -> list[str]:
    """The last checkpoints of a folder, the newest first.

    Args:
        paths: one folder.
        n: how many.
        update_based: False takes ``checkpoint<epoch>.pt``, True ``checkpoint_<epoch>_<update>.pt``.
        upper_bound: the last epoch or update that counts.
        allow_fewer: take what is there, with a warning; and without an upper bound the weights of
            the last update (``checkpoint_last.pt``) too, where no checkpoint ended with them.

    Raises:
        UserError: if the folder does not hold that many; other files never make up for them.
    """
    pattern = _UPDATE if update_based else _EPOCH
    found = []
    for path in _files_in(paths):
        match = pattern.fullmatch(os.path.basename(path))
        if match and (upper_bound is None or int(match[1]) <= upper_bound):
            found.append((int(match[1]), path))
    kind = "checkpoint_<epoch>_<update>.pt" if update_based else "checkpoint<epoch>.pt"
    if upper_bound is not None:
        kind += f" up to {upper_bound}"
    ordered = [path for _, path in sorted(found, reverse=True)]
    if allow_fewer and upper_bound is None:
        ordered = _with_last_update(paths[0], ordered)
    return _first_n(ordered, n, kind, paths, allow_fewer)


def _with_last_update(folder: str, newest_first: list[str]) -> list[str]:
    """The checkpoints, and checkpoint_last.pt before them where it is of a later update."""
    last = os.path.join(folder, "checkpoint_last.pt")
    if not os.path.exists(last):
        return newest_first
    if newest_first and _updates(last) <= _updates(newest_first[0]):
        return newest_first
    return [last, *newest_first]


def _updates(path: str) -> int:
    """The number of updates that a checkpoint was saved after."""
    history = read_checkpoint(path).get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)


def best_n_checkpoints(
    paths: Sequence[str], n: int, maximize: bool = False, allow_fewer: bool = False
) -> list[str]:
    """The best of the checkpoints kept by ``--keep-best-checkpoints``, the best first.

    fairseq names them ``checkpoint.best_<metric>_<value>.pt``.

    Args:
        paths: one folder, or the files to choose from.
        n: how many.
        maximize: True if a higher value of the metric is better; as in fairseq's script, a lower
            one is unless told otherwise.
        allow_fewer: take what is there, with a warning.

    Raises:
        UserError: if there are not that many, or they are the best by different metrics.
    """
    found = []
    metrics = set()
    for path in _files_in(paths) if len(paths) == 1 and os.path.isdir(paths[0]) else paths:
        match = _BEST.fullmatch(os.path.basename(path))
        if match:
            metrics.add(match[1])
            found.append((float(match[2]), path))
    if len(metrics) > 1:
        raise UserError(
            f"--inputs {' '.join(paths)} has the best checkpoints by {', '.join(sorted(metrics))};"
            " give the files of one metric"
        )
    ordered = [path for _, path in sorted(found, reverse=maximize)]
    return _first_n(ordered, n, "checkpoint.best_<metric>_<value>.pt", paths, allow_fewer)


def _files_in(paths: Sequence[str]) -> list[str]:
    if len(paths) != 1 or not os.path.isdir(paths[0]):
        raise UserError(f"--inputs {' '.join(paths)}: give one folder to choose checkpoints from")
    return [os.path.join(paths[0], name) for name in os.listdir(paths[0])]


def _first_n(
    found: list[str], n: int, kind: str, paths: Sequence[str], allow_fewer: bool
) -> list[str]:
    if found and len(found) < n and allow_fewer:
        print(
            f"warning: {n} checkpoints asked for, {len(found)} there: the average is of"
            f" {len(found)}",
            file=sys.stderr,
        )
    elif len(found) < n:
        names = ", ".join(os.path.basename(path) for path in found) or "none"
        raise UserError(
            f"--inputs {' '.join(paths)}: {n} checkpoints {kind} asked for, {len(found)} there: "
            + names
            + ("; --allow-fewer averages them" if found else "")
        )
    return found[:n]
