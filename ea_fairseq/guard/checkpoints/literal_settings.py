"""Reads a checkpoint's settings as literals, never as Python.

fairseq passes option strings such as ``--adam-betas "(0.9, 0.98)"`` or ``fconv``'s
``--encoder-layers "[(512, 3)] * 20"`` to ``eval``. A checkpoint carries such strings too, and
chooses the model whose options they are: without this module, a file made of nothing but strings
and tensors runs any code as soon as its model is built.

Replaced in fairseq: the name ``eval`` in every module of fairseq, by `literal` below.
"""

from __future__ import annotations

import ast
import importlib
import operator
import sys
from typing import Any

from ...errors import UserError

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
# What parsing and computing raise; the last two for what is nested too deeply.
_NO_VALUE = (ValueError, SyntaxError, TypeError, ArithmeticError, RecursionError, MemoryError)


def literal(text: str) -> Any:
    """The value of a Python literal, in which ``+ - * /`` may occur.

    Raises:
        UserError: for anything else, such as names, calls and attributes.
    """
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except _NO_VALUE as error:
        raise UserError(
            f"the setting {text!r} is no value (a number, string, list, tuple or dict, with"
            " + - * /) and was not executed"
        ) from error


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.List():
            return [_value(item) for item in node.elts]
        case ast.Tuple():
            return tuple(_value(item) for item in node.elts)
        case ast.Set():
            return {_value(item) for item in node.elts}
        case ast.Dict() if None not in node.keys:
            return {
                _value(key): _value(value)
                for key, value in zip(node.keys, node.values, strict=True)
            }
        case ast.UnaryOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](_value(node.operand))
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError(type(node).__name__)


def install() -> None:
    """Put `literal` in place of ``eval`` in fairseq's modules."""
    for package in ("criterions", "models", "optim", "tasks", "utils"):
        importlib.import_module(f"fairseq.{package}")  # these import every module below them
    for name, module in list(sys.modules.items()):
        if name.startswith("fairseq.") and module is not None and "eval" not in vars(module):
            module.eval = literal  # type: ignore[attr-defined]
