"""``fairseq-interactive`` answers every line, whatever bytes it contains.

Replaced in fairseq's ``interactive``:
- ``buffered_read``: a byte that is no UTF-8 ended the program, a carriage return inside a line made
  two lines of it, standard input was read in the encoding of the environment. Now each line is
  decoded by itself: U+FFFD, which no dictionary has, stands for what is no UTF-8, and a warning
  names the line. Answers are written as UTF-8, and at once, so that another program can wait for
  each of them.
- ``make_batches``: a line with more tokens than the model can read, or than ``--max-tokens``, ended
  the program; with ``--skip-invalid-size-inputs-valid-test`` its answer was missing. Now the answer
  is an empty line, and an error names the line and both numbers. fairseq's own symbols in a line
  are unknown words, and a warning names them (see `preprocess`).
- ``utils.import_user_module``: replaces the two where this module was imported before that command.
"""

from __future__ import annotations

import functools
import io
import logging
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

from fairseq import utils

from ..text import control_words
from ..text.lines import read_lines
from .around import around

logger = logging.getLogger(__name__)


class Lines(list[str]):
    """Lines of the input that are translated together.

    Args:
        lines: stripped lines.
        first: the number of the first of them in the input, from 1.
    """

    def __init__(self, lines: list[str], first: int):
        super().__init__(lines)
        self.first = first


def buffered_read(path: str, buffer_size: int) -> Iterator[Lines]:
    """Yield `buffer_size` lines at a time; of the last lines as many as there are."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)
    first, buffer = 1, []
    for line in read_lines(path):
        buffer.append(line)
        if len(buffer) == buffer_size:
            yield Lines(buffer, first)
            first, buffer = first + buffer_size, []
    if buffer:
        yield Lines(buffer, first)


def _make_batches(
    original: Any,
    lines: list[str],
    cfg: Any,
    task: Any,
    max_positions: Any,
    encode_fn: Callable[[str], str],
) -> Any:
    limits = [(math.inf, ""), (cfg.dataset.max_tokens or math.inf, "--max-tokens")]
    if max_positions is not None:
        most = max_positions[0] if isinstance(max_positions, tuple) else max_positions
        limits.append((most, "the model"))
    most, what = min(limits)
    constrained = cfg.generation.constraints
    sources = [line.split("\t")[0] if constrained else line for line in lines]
    pieces = functools.cache(encode_fn)  # the original encodes the lines again

    def encoded(text: str) -> str:
        return control_words.as_unknown(pieces(text))

    first = getattr(lines, "first", 1)
    _, lengths = task.get_interactive_tokens_and_lengths(sources, encoded)
    for row, (source, length) in enumerate(zip(sources, lengths, strict=True)):
        if words := control_words.found_in(pieces(source)):
            logger.warning("line %d of the input: %s", first + row, control_words.message(words))
        if length > most:
            logger.error(
                "line %d of the input has %d tokens, %s takes %d; its translation is left empty",
                *(first + row, length, what, most),
            )
            lines[row] = ""
    return original(lines, cfg, task, max_positions, encoded)


def _replace_in_interactive() -> None:
    for name in ("__main__", "fairseq_cli.interactive"):  # the first by ``python -m``
        module = sys.modules.get(name)
        if getattr(module, "buffered_read", buffered_read) is not buffered_read:
            module.buffered_read = buffered_read
            around(module, "make_batches")(_make_batches)


_replace_in_interactive()


@around(utils, "import_user_module")
def _import_user_module(original: Any, args: Any) -> None:
    original(args)
    _replace_in_interactive()
