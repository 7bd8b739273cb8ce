#!/usr/bin/env python3
"""What a model's attention maps are like over a corpus, layer by layer; two models side by side.

    python scripts/attention_statistics.py model --test test.de
    python scripts/attention_statistics.py baseline model --test test.de --plot statistics.png
    python scripts/attention_statistics.py work/runs/cldr.en/transformer_lm_lite/seed1 \\
        --test work/data/cldr.en/bpe/test.en

For each attention, of the maps that the model has while it translates FILE (a text a line); of a
language model, given by the folder of its run, while it reads FILE, tokens split into subwords as
its training text was, each line by itself or (--tokens-per-sample N) in blocks of N tokens:

    below      correlation of each head's map with the same head's one layer below
    best       the same with the head below that is most like it
    entropy    of a row, in bits: 0 where one token has all the weight
    CA, HA     weight of a token on itself, and on each earlier one (with standard deviation), as in
               Table 1 of "Bird-Eye Transformers for Text Generation Models"; ratio: CA / HA
    carry, added, other
               their shares of the logits, in percent: the carry, weighed by alpha; what a
               convolution adds, Z - A_in; "other": what a variant does besides
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ea_fairseq.inference.map_statistics import LayerStatistics

Statistics = dict[str, "list[LayerStatistics]"]

# Column -> what it shows, and with how many digits. Those of the picture come first.
_COLUMNS = {
    "below": ("similarity", 3),
    "best": ("similarity_best", 3),
    "entropy": ("entropy", 2),
    "ratio": ("ratio", 2),
    "carry": ("carry", 1),
    "added": ("added", 1),
    "other": ("other", 1),
    "CA": ("current", 4),
    "HA": ("earlier", 4),
    "HA dev.": ("earlier_deviation", 4),
}
_DRAWN = {
    "below": "correlation with\nthe layer below",
    "entropy": "entropy (bits)",
    "ratio": "weight on itself /\non an earlier token",
    "carry": "share of carry (%)",
    "added": "share of what a\nconvolution adds (%)",
}


def main(argv: list[str] | None = None) -> int:
    """Measure and print; the exit code is 0 unless something cannot be read."""
    args = make_parser().parse_args(argv)
    try:
        measure(args)
    except (ValueError, OSError) as error:
        print(f"attention_statistics.py: error: {error}", file=sys.stderr)
        return 1
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model",
        nargs="+",
        type=Path,
        help="model folder, or a language model's run; two are compared",
    )
    parser.add_argument("--test", type=Path, required=True, help="texts to translate, one a line")
    parser.add_argument(
        "--tokens-per-sample",
        type=int,
        metavar="N",
        help="of language models: read the text in blocks of N tokens, not line by line",
    )
    parser.add_argument("--plot", type=Path, help="a picture, too: .png, .pdf or .svg")
    parser.add_argument("--json", type=Path, help="the numbers, too, as a file")
    return parser


def measure(args: argparse.Namespace) -> None:
    """What the command line asks for."""
    from ea_fairseq.files import check_outputs, read_lines, write_json
    from ea_fairseq.inference.plots import check_picture

    if len(args.model) > 2:
        raise ValueError(f"MODEL: {len(args.model)} are given: one, or two to compare")
    names = [path.resolve().name for path in args.model]
    if len(set(names)) < len(names):
        names = [str(path) for path in args.model]
    if len(set(names)) < len(names):
        raise ValueError(f"MODEL: {names[0]} is given twice")
    if args.tokens_per_sample is not None and args.tokens_per_sample < 1:
        raise ValueError(f"--tokens-per-sample {args.tokens_per_sample}: choose at least 1")
    check_outputs({"--plot": args.plot, "--json": args.json}, [args.test])
    if args.plot:
        check_picture(args.plot)
    texts = read_lines(args.test)
    if not any(text.split() for text in texts):
        raise ValueError(f"{args.test}: no text in it")
    found = {}
    for name, path in zip(names, args.model, strict=True):
        found[name] = statistics(path, texts, args.tokens_per_sample)
        if not any(found[name].values()):  # as of control characters alone
            raise ValueError(f"{args.test}: no text in it")
    attentions = {tuple(statistics) for statistics in found.values()}
    if len(attentions) > 1:
        raise ValueError(f"MODEL: {' and '.join(names)}: one translates, the other one does not")
    print("\n\n".join(tables(found)))
    if args.json:
        write_json(args.json, {name: as_json(statistics) for name, statistics in found.items()})
    if args.plot:
        draw(found, args.plot)


def statistics(path: Path, texts: list[str], tokens_per_sample: int | None) -> Statistics:
    """Those of a model folder, or of the run of a language model."""
    from ea_fairseq.inference.map_statistics import map_statistics, statistics_of

    if is_run_of_language_model(path):
        from ea_fairseq.recipes.results.text_maps import maps_of_text

        return statistics_of(maps_of_text(path, texts, tokens_per_sample))
    for folder in path.absolute().parents[:2]:
        if is_run_of_language_model(folder):
            raise ValueError(
                f"{path}: is of a language model's run: give the run's folder, {folder}"
            )
    if tokens_per_sample is not None:
        raise ValueError(f"--tokens-per-sample: {path} is no run of a language model")
    from ea_fairseq.inference.model_folder import TRANSLATION, read_model_folder
    from ea_fairseq.inference.translator import Translator

    if read_model_folder(path).config.task != TRANSLATION:
        raise ValueError(
            f"{path}: holds a language model: give the folder of its run, with averaged.pt (or "
            "checkpoints/checkpoint_best.pt) and text/dict.txt"
        )
    return map_statistics(Translator(path), texts, progress=sys.stderr.isatty())


def is_run_of_language_model(path: Path) -> bool:
    """Whether a recipe's run of a language model lies there, see recipes/runs/text_copy.py."""
    return (path / "text" / "dict.txt").exists()


def value(layer: LayerStatistics, column: str) -> float:
    """What a column shows of a layer."""
    name = _COLUMNS[column][0]
    return 100 * layer.shares[name] if name in layer.shares else getattr(layer, name)


def tables(found: dict[str, Statistics]) -> list[str]:
    """A heading and a Markdown table for each attention; two models share a cell."""
    from ea_fairseq.recipes.results.tables import table

    results = []
    for attention in next(iter(found.values())):
        models = [statistics[attention] for statistics in found.values()]
        columns = [
            column
            for column in _COLUMNS
            if any(not math.isnan(value(layer, column)) for layers in models for layer in layers)
            and (column != "other" or any(layer.shares["other"] for m in models for layer in m))
        ]
        rows = []
        for number in range(max(map(len, models))):
            layers = [layers[number] if number < len(layers) else None for layers in models]
            rows.append(
                [str(number + 1)]
                + [" / ".join(shown(layer, column) for layer in layers) for column in columns]
            )
        heading = f"{attention}, {' / '.join(found)}"
        results.append(f"{heading}\n\n{table(['layer', *columns], rows)}")
    return results


def shown(layer: LayerStatistics | None, column: str) -> str:
    """A number of a table; "-" for what there is not."""
    if layer is None or math.isnan(value(layer, column)):
        return "-"
    return f"{value(layer, column):.{_COLUMNS[column][1]}f}"


def as_json(statistics: Statistics) -> dict[str, list[dict]]:
    """Without NaN, which JSON does not know."""

    def known(values: dict) -> dict:
        return {
            name: known(v) if isinstance(v, dict) else None if math.isnan(v) else v
            for name, v in values.items()
        }

    return {
        attention: [known({**dataclasses.asdict(layer), "ratio": layer.ratio}) for layer in layers]
        for attention, layers in statistics.items()
    }


def draw(found: dict[str, Statistics], output: Path) -> None:
    """A row for each measure, a column for each attention, a line for each model."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    from ea_fairseq.files import new_file
    from ea_fairseq.recipes.results.curve_pictures import named, without_formulas

    attentions = list(next(iter(found.values())))
    figure, axes = pyplot.subplots(
        len(_DRAWN),
        len(attentions),
        figsize=(8, 1.5 * len(_DRAWN)),
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    for row, (column, label) in zip(axes, _DRAWN.items(), strict=True):
        row[0].set_ylabel(label, fontsize=8)
        for axis, attention in zip(row, attentions, strict=True):
            axis.set_label(f"{attention} {column}")
            axis.grid(alpha=0.3)
            axis.tick_params(labelsize=7)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            # Blue and orange, which every eye tells apart, and marks of different shape.
            for name, mark, colour in zip(found, "os", ("C0", "C1"), strict=False):
                values = [value(layer, column) for layer in found[name][attention]]
                numbers = range(1, len(values) + 1)
                axis.plot(
                    numbers, values, color=colour, marker=mark, markersize=4, label=named(name)
                )
    for axis, attention in zip(axes[0], attentions, strict=True):
        axis.set_title(attention, fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("layer", fontsize=8)
    without_formulas(axes[0][0].legend(fontsize=7))
    figure.tight_layout()
    with new_file(output) as temporary:
        figure.savefig(temporary, format=output.suffix[1:], dpi=100)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
