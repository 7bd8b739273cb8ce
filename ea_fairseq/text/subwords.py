"""Applying subwords: subword-nmt's BPE, or sentencepiece."""

import contextlib
import io
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

from subword_nmt.apply_bpe import BPE

# Words a process remembers the pieces of; subword-nmt would remember every word it ever saw.
CACHE = 500_000


def apply(kind: str, path: Path, lines: list[str]) -> list[str]:
    """Splits each line of tokenised text into subwords, separated by spaces, of the kind "bpe" or
    "sentencepiece" that `learn` wrote to the path."""
    return _loaded_once(kind, path, path.stat().st_mtime_ns)(lines)


@lru_cache(maxsize=1)
def _loaded_once(kind: str, path: Path, modified: int) -> Callable[[list[str]], list[str]]:
    """Loaded once in each process, and again if the file changes."""
    return loaded(kind, path)


def loaded(kind: str, path: Path) -> Callable[[list[str]], list[str]]:
    """What splits lines into subwords; see `apply`.

    Raises:
        ValueError: naming the file, if it holds no such subwords.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            return _load(kind, path)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    # subword-nmt ends the program for a line that is no merge.
    except (OSError, RuntimeError, ValueError, SystemExit) as error:
        said = printed.getvalue() if isinstance(error, SystemExit) else str(error)
        reason = " ".join(said.split())
        raise ValueError(f"{path}: cannot be used for subwords ({kind}): {reason}") from error


def _load(kind: str, path: Path) -> Callable[[list[str]], list[str]]:
    if kind == "sentencepiece":
        import sentencepiece

        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        return lambda lines: [" ".join(model.encode(line, out_type=str)) for line in lines]
    with open(path, encoding="utf-8", newline="\n") as codes:
        return partial(_apply_bpe, BPE(codes))


def _apply_bpe(bpe: BPE, lines: list[str]) -> list[str]:
    if len(bpe.cache) > CACHE:
        bpe.cache = {}  # another thread may be about to read what it found in the old one
    return [bpe.segment(line) for line in lines]
