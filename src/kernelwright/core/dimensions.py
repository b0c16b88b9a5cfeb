"""Sizes of tensors as integers or as expressions over named axes, evaluated without `eval`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

Dim = int | str
"""One dimension: a size, or an expression over axes such as `"2*N"`, `"(H - 1)//2 + 1"`, `"max(M, N)"`."""

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_CALLS: dict[str, Callable[..., int]] = {"max": max, "min": min}


@lru_cache(maxsize=4096)
def _parsed(expression: str) -> ast.expr:
    try:
        return ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ValueError(f"not a dimension expression: {expression!r}") from error


def evaluate_dim(dim: Dim, axes: Mapping[str, int]) -> int:
    """The size that `dim` has under the binding `axes`.

    Raises:
        ValueError: not an expression of `+ - * // % **`, `max`, `min`, integers and names.
        KeyError: an axis is not bound.
    """
    return dim if isinstance(dim, int) else _evaluate(_parsed(dim), axes)


def evaluate_shape(dims: tuple[Dim, ...], axes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape that `dims` has under the binding `axes`; raises as `evaluate_dim` does."""
    return tuple(evaluate_dim(dim, axes) for dim in dims)


def axis_names(dim: Dim) -> frozenset[str]:
    """The axis names that a dimension mentions."""
    if isinstance(dim, int):
        return frozenset()
    return frozenset(n.id for n in ast.walk(_parsed(dim)) if isinstance(n, ast.Name)) - _CALLS.keys()


def _evaluate(node: ast.expr, axes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return axes[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, axes)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_evaluate(left, axes), _evaluate(right, axes))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
            return _CALLS[name](*(_evaluate(arg, axes) for arg in args))
    raise ValueError(f"not allowed in a dimension expression: {ast.unparse(node)}")
