"""Symbolic sizes in words, evaluated and compared with sympy's own value."""

from __future__ import annotations

import pytest

from kernelwright.core.dimensions import evaluate_dim
from kernelwright.tasks.expressions import dim_expression

sympy = pytest.importorskip("sympy")
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("word", ["N", "(2*D)", "(A + 1)"])
@pytest.mark.parametrize("value", [3, 8, 64])
def test_an_axis_that_is_itself_an_expression_keeps_its_grouping(word: str, value: int) -> None:
    from torch.utils._sympy.functions import FloorDiv

    s = sympy.Symbol("s0", integer=True, positive=True)
    axes = {"N": value, "D": value, "A": value}
    size = evaluate_dim(word, axes)
    for expression in (FloorDiv(s + 1, 2), s - FloorDiv(s + 1, 2), (s + 1) * 3, FloorDiv(s - 3, 2) + 1, (s + 1) ** 2):
        expected = int(expression.subs(s, size))
        assert evaluate_dim(dim_expression(expression, {s: word}), axes) == expected
