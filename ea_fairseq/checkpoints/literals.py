"""Reads a checkpoint's settings as values, in the place of Python's ``eval``."""

from __future__ import annotations

import ast
import operator
from typing import Any

from ..errors import UserError

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
