"""Runs of several models with several seeds: each kept once it is done, then compared.

For the programs in examples/ that train small models by themselves. A folder holds
``results.json``, what every finished run came to, under the settings that all of them share; a
program that is started again does what is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .devices import usable_device
from .errors import UserError, one_line, perhaps_meant
from .files import locked, new_file, read_json, write_json
from .recipes.results.tables import table
from .recipes.runs.progress import Display, Status

RESULTS = "results.json"


@dataclass(frozen=True)
class Summary:
    """Several seeds' figures in one.

    Attributes:
        count: how many there are
        mean: of them
        deviation: standard deviation of one figure; 0 where there is one alone
        interval: Student's 95 % confidence interval of the mean; None where there is one alone
    """

    count: int
    mean: float
    deviation: float
    interval: tuple[float, float] | None

    def text(
        self, digits: int = 2, sign: bool = False, limits: tuple[float, float] | None = None
    ) -> str:
        """``97.11 ± 0.40 (96.61 to 97.61)``: mean, deviation, interval.

        Args:
            digits: behind the point
            sign: whether a plus is shown
            limits: what figures can be at all, 0 and 100 for per cent: the interval ends there
        """
        plus = "+" if sign else ""
        mean = f"{self.mean:{plus}.{digits}f}"
        if self.interval is None:
            return mean
        least, most = limits or (-math.inf, math.inf)
        ends = (min(max(end, least), most) for end in self.interval)
        low, high = (f"{end:{plus}.{digits}f}" for end in ends)
        return f"{mean} ± {self.deviation:.{digits}f} ({low} to {high})"


def summarise(values: Sequence[float]) -> Summary:
    """Mean, deviation and interval of figures that differ by their seeds.

    Raises:
        ValueError: there is none, or one is not finite
    """
    values = [float(value) for value in values]
    if not values or not all(map(math.isfinite, values)):
        raise ValueError(f"finite figures are wanted, not {values}")
    mean = statistics.fmean(values)
    if len(values) == 1:
        return Summary(1, mean, 0.0, None)
    from scipy.stats import t  # takes a second

    deviation = statistics.stdev(values)
    reach = float(t.ppf(0.975, len(values) - 1)) * deviation / math.sqrt(len(values))
    return Summary(len(values), mean, deviation, (mean - reach, mean + reach))


def difference(first: Mapping[Any, float], second: Mapping[Any, float]) -> Summary | None:
    """The second model's figures minus the first's, seed by seed; None where they share no seed.

    Paired: models of one seed had the same data, parted in the same way.
    """
    shared = [seed for seed in first if seed in second]
    return summarise([second[seed] - first[seed] for seed in shared]) if shared else None


def chosen_models(
    names: Sequence[str], known: Collection[str], groups: Mapping[str, list[str]]
) -> list[str]:
    """The models that --models names, by their own names or those of groups, each once.

    Raises:
        UserError: a name is unknown
    """
    chosen: dict[str, None] = {}
    for name in names:
        if name not in groups and name not in known:
            choices = [*groups, *known]
            raise UserError(
                f"--models {name}: choose among {', '.join(choices)}{perhaps_meant(name, choices)}"
            )
        chosen |= dict.fromkeys(groups.get(name, [name]))
    return list(chosen)


class Results:
    """What every finished run of a folder came to.

    Args:
        folder: made if it is not there
        settings: what all runs share, such as data and epochs; as JSON has it

    Raises:
        UserError: the folder's runs had other settings, or its file is damaged
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        self.path = folder / RESULTS
        settings = json.loads(json.dumps(settings))
        self.content: dict[str, Any] = {"settings": settings, "runs": {}}
        if not self.path.exists():
            return
        try:
            found = read_json(self.path)
            before = dict(found["settings"])
            runs = {model: dict(seeds) for model, seeds in found["runs"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{self.path}: is damaged ({error}); move it away") from None
        for name in sorted({*before, *settings}):
            if before.get(name) != settings.get(name):
                raise UserError(
                    f"{self.path}: its runs had {name} {before.get(name)}, not "
                    f"{settings.get(name)}: give the same, or another --out"
                )
        self.content["runs"] = runs

    def get(self, model: str, seed: int) -> dict[str, Any] | None:
        """A run's figures, or None where it is not done."""
        return self.content["runs"].get(model, {}).get(str(seed))

    def add(self, model: str, seed: int, figures: Mapping[str, Any]) -> None:
        """Keeps what a run came to."""
        self.content["runs"].setdefault(model, {})[str(seed)] = dict(figures)
        write_json(self.path, self.content)

    def of(self, model: str, figure: str, seeds: Sequence[int]) -> dict[int, float]:
        """One figure of a model, by seed."""
        found = {seed: self.get(model, seed) for seed in seeds}
        return {seed: run[figure] for seed, run in found.items() if run is not None}


def run_all(
    folder: Path,
    settings: Mapping[str, Any],
    models: Sequence[str],
    seeds: Sequence[int],
    train: Callable[[str, int, Display], Mapping[str, Any]],
) -> Results:
    """Trains every model with every seed, but for what is done already.

    Seeds are the outer loop: what is there when one stops early can be compared.

    Args:
        folder: of the results
        settings: see :class:`Results`
        models: their names
        seeds: of each
        train: (model, seed, display) to figures; ``display.show`` says how far it is,
            ``display.status.what`` what the finished run is reported with
    """
    with locked(folder):
        results = Results(folder, settings)
        for seed in seeds:
            for model in models:
                if results.get(model, seed) is not None:
                    continue
                display = Display(f"{model} {seed}", Status())
                try:
                    figures = train(model, seed, display)
                except BaseException:
                    display.close()
                    raise
                results.add(model, seed, figures)
                display.finish()
    return results


def comparison(
    results: Results,
    models: Sequence[str],
    seeds: Sequence[int],
    figures: Mapping[str, str],
    digits: int = 2,
    scale: float = 1.0,
) -> str:
    """A Markdown table: a row for each model, with its difference from the first by each figure.

    Args:
        results: of :func:`run_all`
        models: the first is what the others are compared with
        seeds: those that count
        figures: names in the results -> headings
        digits: of the numbers
        scale: what figures are multiplied by; those with 100 are parts in per cent
    """
    limits = (0.0, 100.0) if scale == 100 else None
    header = ["", "parameters", "seeds"]
    for heading in figures.values():
        header += [heading, f"against {models[0]}"]
    rows = []
    for model in models:
        of_model = [results.get(model, seed) for seed in seeds]
        parameters = {run["parameters"] for run in of_model if run is not None}
        row = [model, " / ".join(f"{number:,}" for number in sorted(parameters)), ""]
        for figure in figures:
            values = {s: scale * v for s, v in results.of(model, figure, seeds).items()}
            base = {s: scale * v for s, v in results.of(models[0], figure, seeds).items()}
            row[2] = str(len(values))
            apart = difference(base, values) if model != models[0] else None
            row.append(summarise(values.values()).text(digits, limits=limits))
            told = apart.text(digits, sign=True) if apart is not None else ""
            if apart is not None and apart.count < max(len(values), len(base)):
                told += f", of {apart.count} seeds"
            row.append(told)
        rows.append(row)
    return table(header, rows)


def save_weights(path: Path, weights: Mapping[str, Tensor], settings: Mapping[str, Any]) -> None:
    """Writes weights and the settings that build their model into one safetensors file."""
    _save(path, weights, {"settings": json.dumps(dict(settings))})


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What :func:`save_weights` wrote: weights and settings.

    Raises:
        UserError: naming the file, if it is missing, damaged, or has no settings
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    weights, settings = _load(path, "settings")
    if not isinstance(settings, dict):
        raise UserError(f"{path}: holds no settings; it was not written by this program")
    return weights, settings


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Writes what a training needs to go on, as safetensors.

    Args:
        path: the file
        state: tensors, numbers, text, None, and dictionaries and lists of these; tuples come back
            as lists
    """
    tensors: dict[str, Tensor] = {}
    structure = _without_tensors(dict(state), tensors)
    _save(path, tensors, {"state": json.dumps(structure)})


def load_state(path: Path) -> dict[str, Any] | None:
    """What :func:`save_state` wrote, or None where there is no such file.

    Raises:
        UserError: the file is damaged
    """
    if not path.exists():
        return None
    try:
        tensors, structure = _load(path, "state")
        return _with_tensors(structure, tensors)
    except (UserError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: is damaged ({error}); delete it to begin anew") from None


def _save(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    from safetensors.torch import save

    path.parent.mkdir(parents=True, exist_ok=True)
    # Copies: of tensors that share their memory, safetensors takes one alone.
    own = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }
    with new_file(path) as temporary:
        # Not save_file, whose file nobody else may read.
        temporary.write_bytes(save(own, metadata))


def _load(path: Path, entry: str) -> tuple[dict[str, Tensor], Any]:
    """Tensors, and one entry of the metadata, None where there is none."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            content = json.loads((file.metadata() or {}).get(entry, "null"))
            return {name: file.get_tensor(name) for name in file.keys()}, content
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


def _without_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    """As JSON, each container under its kind's name, tensors by number."""
    if isinstance(value, Tensor):
        tensors[str(len(tensors))] = value
        return {"tensor": str(len(tensors) - 1)}
    if isinstance(value, dict):
        return {"dict": [[key, _without_tensors(one, tensors)] for key, one in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_without_tensors(one, tensors) for one in value]}
    return value


def _with_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _with_tensors(one, tensors) for key, one in content}
    return [_with_tensors(one, tensors) for one in content]


def run_arguments(parser: argparse.ArgumentParser, seeds: int, out: str) -> None:
    """``--seeds``, ``--out``, ``--device`` and ``--threads``."""
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=list(range(1, seeds + 1)),
        metavar="SEED",
        help=f"(default: 1 to {seeds})",
    )
    parser.add_argument(
        "--out", type=Path, default=Path(out), help="folder of the results (default: %(default)s)"
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="of torch (default: its own choice)")


def chosen_device(args: argparse.Namespace) -> torch.device:
    """The device of ``--device``; sets ``--threads``.

    Raises:
        UserError: there is no such device, or a bad number of threads
    """
    if args.threads < 0:
        raise UserError(f"--threads must not be negative, not {args.threads}")
    if args.threads:
        torch.set_num_threads(args.threads)
    if len(set(args.seeds)) < len(args.seeds):
        raise UserError(f"--seeds {' '.join(map(str, args.seeds))}: one is given twice")
    return usable_device(args.device, "--device")


@contextlib.contextmanager
def errors_in_one_line(program: str) -> Iterator[None]:
    """Ends the program with status 1 and one line where the user can mend what is wrong."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\n{program}: stopped; the same command goes on", file=sys.stderr)
        raise SystemExit(130) from None
    except (UserError, OSError) as error:
        message = one_line(error)
        if message is None:
            raise
        print(f"{program}: error: {message}", file=sys.stderr)
        raise SystemExit(1) from None
