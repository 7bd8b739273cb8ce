"""Pictures of a model's attention maps, layer by layer."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..attention.options import ATTENTIONS
from ..errors import UserError, check_package
from ..files import check_folder_of, check_output, new_file
from .map_views import VIEWS, View, axis_tokens, layer_views, of_head, of_number
from .translator import Part, Translator

FORMATS = (".png", ".pdf", ".svg")

# One hue each, told apart by lightness, so that every eye reads them, and a grey print too; orange
# and purple are a pair that the colour-blind can tell. By whether a view is in logits.
_COLOURS = {False: "Blues", True: "Oranges"}
_SIGNED_COLOURS = "PuOr_r"
_HIDDEN = "0.93"

# Inches.
_CELL, _SMALLEST, _LETTER = 0.12, 1.35, 0.055
_GAP, _TITLE, _TOP = 0.12, 0.2, 0.5
_MOST_INCHES = 120  # of the longer side, beyond which pictures are unreadable and huge
_LABEL = 20  # characters of a token that are drawn


def translated_part(translator: Translator, text: str) -> Part:
    """A text and its best translation, for a picture.

    Raises:
        UserError: if it is not one piece of text, or the model cannot take it.
    """
    translation = translator.translate(text, long="whole", details=True, attention=False)
    if translation.problem and not translation.parts:
        raise UserError(translation.problem)
    if len(translation.parts) != 1:
        raise UserError(f"a picture shows one line of text, not {len(translation.parts)}: {text!r}")
    return translation.parts[0]


def check_picture(output: Path) -> None:
    """Refuse a name that no picture can have, before the work.

    Raises:
        UserError: naming it and the choices; or matplotlib is not installed.
    """
    if output.suffix not in FORMATS:
        raise UserError(f"{output}: choose a name in {', '.join(FORMATS)}")
    check_output(output)
    check_folder_of(output)
    check_package("matplotlib")


def plot_attention(
    translator: Translator,
    part: Part,
    output: Path,
    *,
    attentions: Sequence[str] = ATTENTIONS,
    layers: Sequence[int] | None = None,
    head: int | None = None,
    dpi: int = 120,
) -> None:
    """Draws the maps of a sentence and its translation: a row for each layer; for each attention
    its fresh map, what is added to it and the evolved map.

    Args:
        translator: of an ensemble, the first model is drawn
        part: the sentence and its translation
        output: the picture; written whole or not at all
        attentions: of "encoder", "decoder" and "encoder-decoder"
        layers: which, from 1; default: all
        head: which, from 1; default: the mean of all heads
        dpi: dots per inch of a .png

    Raises:
        UserError: naming what the model does not have, or the file that cannot be written.
    """
    check_picture(output)
    maps = translator.attention_maps(part)
    views = {}
    for attention in attentions:
        if attention not in ATTENTIONS:
            raise UserError(f"attention is {attention!r}: choose from {', '.join(ATTENTIONS)}")
        numbers = layers or range(1, len(maps[attention]) + 1)
        views[attention] = {
            number: layer_views(of_number(maps[attention], number, "layer")) for number in numbers
        }
    # Behind the checks: it takes a second to load.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = [
        _Group(name, found, maps[name][0].visible, part, head) for name, found in views.items()
    ]
    height = _TOP + max(group.height for group in groups)
    width = sum(group.width for group in groups) + _GAP
    if max(width, height) > _MOST_INCHES:
        raise UserError(
            f"the picture would be {max(width, height) * 2.54 / 100:.0f} metres long: choose fewer "
            "layers or attentions, or a shorter text"
        )
    figure = pyplot.figure(figsize=(width, height))
    title = f"{f'head {head}' if head else 'mean of all heads'}; rows attend to columns"
    figure.text(_GAP / width, 1 - 0.16 / height, title, va="center", fontsize=8)
    left = 0.0
    for group in groups:
        group.draw(figure, left)
        left += group.width
    try:
        with new_file(output) as temporary:
            _save(figure, temporary, output.suffix[1:], dpi)
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {error.strerror}") from error
    finally:
        pyplot.close(figure)


class _Group:
    """The pictures of one attention: a row for each layer, a column for each view.

    matplotlib's own layouts need ten times as long and leave less room for the maps.

    Args:
        attention: its name
        views: by layer
        visible: bool, (tgt_len, src_len), what could be attended to
        part: its tokens
        head: from 1, or None for the mean
    """

    def __init__(
        self,
        attention: str,
        views: dict[int, list[View]],
        visible: Tensor,
        part: Part,
        head: int | None,
    ):
        self.attention = attention
        self.maps = {
            number: {view.name: (view, of_head(view.values, head)) for view in found}
            for number, found in views.items()
        }
        # A layer with one map alone has it where the others have what their softmax gives.
        self.names = [name for name in VIEWS if any(name in row for row in self.maps.values())]
        if "evolved" in self.names:
            self.names = [name for name in self.names if name != "map"]
        rows, columns = (
            [_shortened(token) for token in side] for side in axis_tokens(part, attention)
        )
        self.rows, self.columns = rows, columns
        self.visible = visible
        self.map_size = max(_CELL * len(columns), _SMALLEST), max(_CELL * len(rows), _SMALLEST)
        self.margins = _GAP + _LETTER * max(map(len, rows)), _GAP + _LETTER * max(map(len, columns))
        # Fresh and evolved maps of all layers have one scale.
        probs = [values for row in self.maps.values() for view, values in row.values()
                 if not view.in_logits]  # fmt: skip
        self.largest = max(float(values.abs().max()) for values in probs)

    @property
    def width(self) -> float:
        """In inches."""
        return self.margins[0] + len(self.names) * (self.map_size[0] + _GAP)

    @property
    def height(self) -> float:
        """In inches."""
        return len(self.maps) * (_TITLE + self.map_size[1] + self.margins[1]) + _TITLE

    def draw(self, figure: Any, left: float) -> None:
        """Draws all of it, ``left`` inches from the left side."""
        width, height = figure.get_size_inches()
        top = height - _TOP
        figure.text((left + self.margins[0]) / width, top / height,
                    f"{self.attention}: darkest blue {self.largest:.2g}", fontsize=8)  # fmt: skip
        for number, row in self.maps.items():
            bottom = top - _TITLE - self.map_size[1]
            places = {name: self._place(name) for name in row}
            for name, place in places.items():
                x = left + self.margins[0] + place * (self.map_size[0] + _GAP)
                box = (
                    x / width,
                    bottom / height,
                    self.map_size[0] / width,
                    self.map_size[1] / height,
                )
                self._draw_map(
                    figure.add_axes(box), number, *row[name], labelled=place == min(places.values())
                )
            top = bottom - self.margins[1]

    def _place(self, name: str) -> int:
        """The column of a view."""
        return self.names.index(name if name in self.names else "evolved")

    def _draw_map(self, axis: Any, layer: int, view: View, values: Tensor, labelled: bool) -> None:
        largest = float(values.abs().max()) if view.in_logits else self.largest
        colours = _SIGNED_COLOURS if view.signed else _COLOURS[view.in_logits]
        low = -largest if view.signed else 0.0
        shown = values.masked_fill(~self.visible, torch.nan)
        axis.set_label(f"{self.attention} {layer} {view.name}")
        axis.set_facecolor(_HIDDEN)
        axis.imshow(shown.numpy(), cmap=colours, vmin=low, vmax=largest, aspect="auto",
                    interpolation="nearest")  # fmt: skip
        scale = f", darkest {_short(largest)}" if view.in_logits else ""
        axis.set_title(f"{layer} {view.name}{scale}", fontsize=6.5, pad=2, loc="left")
        # Text as it is: a dollar in it begins no formula.
        axis.set_xticks(range(len(self.columns)), self.columns, rotation=90, fontsize=6,
                        parse_math=False)  # fmt: skip
        axis.set_yticks(range(len(self.rows)), self.rows if labelled else [""] * len(self.rows),
                        fontsize=6, parse_math=False)  # fmt: skip
        axis.tick_params(length=1.5, pad=1)


def _short(number: float) -> str:
    """A number of at most seven characters: 0.012, 0.31, 4.2, 130, 1.3e+05."""
    return f"{number:.0f}" if 100 <= number < 1e5 else f"{number:.2g}"


def _shortened(token: str) -> str:
    return token if len(token) <= _LABEL else token[: _LABEL - 1] + "…"


def _save(figure: Any, path: Path, format_: str, dpi: int) -> None:
    """Saves, and says which characters no font here has, once."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        figure.savefig(path, format=format_, dpi=dpi)
    texts = [str(warning.message) for warning in found]
    missing = {chr(int(code[1])) for text in texts if (code := re.match(r"Glyph (\d+) ", text))}
    if missing:
        characters = " ".join(sorted(missing))
        print(f"warning: boxes stand for what no font here can draw: {characters}", file=sys.stderr)
