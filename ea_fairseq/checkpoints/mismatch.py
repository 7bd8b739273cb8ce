"""One line for the error of weights that do not fit a model."""

from __future__ import annotations

import re

# The lines of the error of torch's Module.load_state_dict.
_SIZE = re.compile(
    r"size mismatch for (\S+): copying a param with shape torch\.Size\(\[([^\]]*)\]\) from"
    r" checkpoint, the shape in current model is torch\.Size\(\[([^\]]*)\]\)"
)
# What has a row for each entry of a dictionary.
_BY_ENTRY = re.compile(r"(encoder|decoder)\.(embed_tokens|output_projection)\.weight")
_KEYS = re.compile(r"(Missing|Unexpected) key\(s\) in state_dict: (.*)")


def describe_mismatch(message: str) -> str | None:
    """One line for the error of ``load_state_dict``; None if it is no such error.

    The first parameter of another shape stands for all, or else the first one that only the
    checkpoint or only the model has. Embeddings that differ in their number of rows alone are
    those of another dictionary.
    """
    sizes = _SIZE.findall(message)
    keys = {kind: names.rstrip(". ").split(", ") for kind, names in _KEYS.findall(message)}
    count = len(sizes) + sum(len(names) for names in keys.values())
    if sizes:
        name, in_checkpoint, in_model = sizes[0]
        rows = [shape.split(", ") for shape in (in_checkpoint, in_model)]
        embedding = _BY_ENTRY.fullmatch(name)
        if embedding and rows[0][0] != rows[1][0] and rows[0][1:] == rows[1][1:]:
            side = "source" if embedding[1] == "encoder" else "target"
            return (
                f"the {side} dictionary of the data has {rows[1][0]} entries, that of the"
                f" checkpoint {rows[0][0]}; use the dict.*.txt that it was trained with"
            )
        first = f"{name} is ({in_checkpoint}) in the checkpoint and ({in_model}) in the model"
    elif "Missing" in keys:
        name = keys["Missing"][0].strip('"')
        first = f"the checkpoint lacks {name}"
    elif "Unexpected" in keys:
        name = keys["Unexpected"][0].strip('"')
        first = f"the model lacks {name}"
    else:
        return None
    return first + (f"; {count} parameters differ" if count > 1 else "")
