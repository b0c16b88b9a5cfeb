"""From torch's symbolic sizes (sympy) to the expressions of `core.dimensions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelwright.core.dimensions import Dim


class NotExpressible(Exception):
    """The size is not an expression over the axes."""


def dim_expression(expression: Any, symbols: Mapping[Any, str]) -> Dim:
    """`expression` in terms of axis words.

    Raises:
        NotExpressible: a symbol is no axis, or a function is not known.
    """
    if expression.is_Integer:
        return int(expression)
    return _words(expression, symbols)


def _words(node: Any, symbols: Mapping[Any, str]) -> str:
    if node.is_Integer:
        return str(int(node)) if int(node) >= 0 else f"({int(node)})"
    if node.is_Symbol:
        if node not in symbols:
            raise NotExpressible(str(node))
        return symbols[node]
    if node.is_Add:
        return _fraction(node, symbols) or _sum([_words(a, symbols) for a in _ordered(node, symbols)])
    if node.is_Mul:
        return _fraction(node, symbols) or "*".join(_grouped(a, symbols) for a in _ordered(node, symbols))
    if node.is_Pow and node.exp.is_Integer and int(node.exp) > 0:
        return f"{_grouped(node.base, symbols)}**{int(node.exp)}"
    return _call(node, symbols)


def _call(node: Any, symbols: Mapping[Any, str]) -> str:
    name = type(node).__name__
    parts = [_grouped(a, symbols) for a in node.args]
    if name in {"FloorDiv", "CleanDiv", "IntTrueDiv"} and len(parts) == 2:
        return f"({parts[0]}//{parts[1]})"
    if name in {"Mod", "PythonMod"} and len(parts) == 2:
        return f"({parts[0]}%{parts[1]})"
    if name in {"CeilToInt", "ToFloat", "TruncToInt"} and len(parts) == 1 and node.args[0].is_integer:
        return parts[0]
    if name == "CeilDiv":
        return f"(-((-{parts[0]})//{parts[1]}))"
    if name in {"Max", "Min"}:
        return f"{name.lower()}({', '.join(_words(a, symbols) for a in node.args)})"
    if name in {"floor", "Floor"} and len(node.args) == 1:
        top, bottom = node.args[0].as_numer_denom()
        return f"({_grouped(top, symbols)}//{_grouped(bottom, symbols)})"
    raise NotExpressible(f"{name} in {node}")


def _fraction(node: Any, symbols: Mapping[Any, str]) -> str:
    """A quotient that is known to be an integer; empty where there is no denominator."""
    top, bottom = node.as_numer_denom()
    return "" if bottom == 1 else f"({_grouped(top, symbols)}//{_grouped(bottom, symbols)})"


def _sum(terms: list[str]) -> str:
    words = terms[0]
    for term in terms[1:]:
        bare = term.removeprefix("(-").removesuffix(")")
        words += f" - {bare}" if term.startswith("(-") and bare.isdigit() else f" + {term}"
    return words


def _ordered(node: Any, symbols: Mapping[Any, str]) -> list[Any]:
    """In the order of the axes; numbers last in sums (`N + 1`), first in products (`2*N`)."""
    numbers = [a for a in node.args if a.is_Integer]
    places = {symbol: index for index, symbol in enumerate(symbols)}
    others = [a for a in node.args if not a.is_Integer]
    others.sort(key=lambda a: (min((places.get(s, len(places)) for s in a.free_symbols), default=0), str(a)))
    return others + numbers if node.is_Add else numbers + others


def _grouped(node: Any, symbols: Mapping[Any, str]) -> str:
    words = _words(node, symbols)
    return f"({words})" if node.is_Add and not _enclosed(words) else words


def _enclosed(words: str) -> bool:
    """Whether the first parenthesis closes at the very end, as in `(N + 1)` but not in `(2*D) + 1`."""
    depth = 0
    for place, letter in enumerate(words):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return letter == ")" and place == len(words) - 1
    return False
