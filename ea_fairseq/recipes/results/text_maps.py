"""A run's language model, and its maps while it reads a text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fairseq.checkpoint_utils import load_model_ensemble_and_task

from ...inference.attention_maps import LayerMaps, language_model_maps
from ..runs.export_run import checkpoint_of_run


def maps_of_text(
    run: Path, lines: list[str], tokens_per_sample: int | None = None
) -> Iterator[dict[str, list[LayerMaps]]]:
    """The maps of each line, or of each block of so many tokens, lines joined.

    Args:
        run: the folder of a run, see recipes/runs/folders.py
        lines: tokens with spaces between, in subwords where the training text was
        tokens_per_sample: of a block; None for a line each

    Raises:
        ValueError: the run has no model, or a block is longer than it can read
    """
    checkpoint = str(checkpoint_of_run(run))
    (model,), _, task = load_model_ensemble_and_task([checkpoint], {"data": str(run / "text")})
    model.eval()
    words = task.source_dictionary
    texts = [
        words.encode_line(line, add_if_not_exist=False, append_eos=True).tolist() for line in lines
    ]
    before = [words.eos()] * len(texts)
    if tokens_per_sample is not None:
        joined = [token for text in texts for token in text]
        starts = range(0, len(joined), tokens_per_sample)
        texts = [joined[start : start + tokens_per_sample] for start in starts]
        before = [joined[start - 1] for start in starts]  # of the first, the end of the last line
    longest, most = max(map(len, texts), default=0), model.max_positions()
    if longest > most:
        raise ValueError(
            f"{run}: reads {most} tokens, and the text has a line or block of {longest}: give "
            f"--tokens-per-sample {most} or less"
        )
    for text, token in zip(texts, before, strict=True):
        yield language_model_maps(model, text, token)
