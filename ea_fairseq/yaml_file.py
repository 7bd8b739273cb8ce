"""YAML files of settings: read by PyYAML's safe loader, checked to hold nothing but settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

LIMIT = 1_000_000  # characters of a file, what it repeats by references (*name) counted each time


def read(path: Path) -> Any:
    """The content of a YAML file.

    Raises:
        ValueError: in one line that names the file: it cannot be read, is no YAML, or holds what
            `parse` refuses.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # reading could wait for ever
            raise ValueError(f"{path}: is no file but a pipe, a socket or a device")
        text = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    return parse(text, str(path))


def parse(text: str | bytes, name: str) -> Any:
    """The content of a YAML text: mappings with names as keys, lists, strings, numbers, null.

    Args:
        text: the YAML.
        name: what messages call it.

    Raises:
        ValueError: in one line that begins with the name.
    """
    try:
        content = _construct(text)
        _check(content)
    except ValueError as error:
        raise ValueError(f"{name}: {_one_line(error)}") from error
    except RecursionError:
        raise ValueError(f"{name}: nested too deeply, or a part of it holds itself") from None
    except Exception as error:  # KeyError for `!!bool x`, AttributeError for `!!timestamp x`, ...
        raise ValueError(f"{name}: not valid YAML: {_one_line(error)}") from error
    return content


def _construct(text: str | bytes) -> Any:
    """What ``yaml.safe_load`` gives, of a text that is not too large with its references."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > LIMIT:
            raise ValueError(f"too large: more than {LIMIT:,} characters with what it repeats")
        return loader.construct_document(node)
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """Gives a key that is a reference (*name) a node of its own, with the line that it is in."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        """As PyYAML calls it; of a key the index is None."""
        event = self.peek_event()
        node = super().compose_node(parent, index)
        is_key = isinstance(parent, yaml.MappingNode) and index is None
        if is_key and isinstance(event, yaml.AliasEvent) and isinstance(node, yaml.ScalarNode):
            return yaml.ScalarNode(node.tag, node.value, event.start_mark, event.end_mark)
        return node


def _size(node: yaml.Node, sizes: dict[yaml.Node, int]) -> int:
    """Characters and values of a node, what it refers to counted each time, looked at once."""
    if node not in sizes:
        sizes[node] = 1
        match node:
            case yaml.MappingNode():
                _check_keys(node)
                parts = [part for pair in node.value for part in pair]
            case yaml.SequenceNode():
                parts = node.value
            case _:
                parts = []
                sizes[node] += len(node.value)
                _check_number(node)
        sizes[node] += sum(_size(part, sizes) for part in parts)
    return sizes[node]


def _check_number(node: yaml.Node) -> None:
    """Refuse numbers that YAML 1.1 reads otherwise than they look: 010 is 8, 1:30 is 90."""
    number = node.tag.endswith((":int", ":float"))
    if number and (":" in node.value or re.fullmatch(r"[-+]?0[0-9_]+", node.value)):
        raise ValueError(f"{node.value} would be read as another number: write it without 0 or :")


def _check_keys(node: yaml.MappingNode) -> None:
    """Refuse a key that is given twice, of which PyYAML takes the last."""
    seen: dict[str, yaml.Node] = {}
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and seen.setdefault(key.value, key) is not key:
            lines = [found.start_mark.line + 1 for found in (seen[key.value], key)]
            raise ValueError(f"{key.value} is given in line {lines[0]} and in line {lines[1]}")


def _check(content: Any) -> None:
    match content:
        case dict():
            for key, value in content.items():
                if not isinstance(key, str):
                    raise ValueError(f"the key {key!r} is no text: put it in quotation marks")
                _check(value)
        case list():
            for value in content:
                _check(value)
        case int() if content.bit_length() > 63:
            raise ValueError(f"a number of {content.bit_length()} bits: expected 63 at most")
        case str() | int() | float() | None:
            pass
        case _:
            kind = type(content).__name__
            raise ValueError(f"{content!r} is read as {kind}: put it in quotation marks")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
