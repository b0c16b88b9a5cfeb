"""Dimension expressions against Python's own arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.core.dimensions import axis_names, evaluate_dim, evaluate_shape

NAMES = ("B", "N", "K")


def expressions() -> st.SearchStrategy[str]:
    leaves = st.sampled_from(NAMES) | st.integers(0, 99).map(str)

    def grow(inner):
        binary = st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        divided = st.tuples(inner, st.sampled_from(["//", "%"]), st.integers(1, 9)).map(
            lambda t: f"({t[0]}{t[1]}{t[2]})"
        )
        called = st.tuples(st.sampled_from(["max", "min"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})")
        return binary | divided | called | inner.map(lambda e: f"(-{e})")

    return st.recursive(leaves, grow, max_leaves=12)


@given(expressions(), st.tuples(*[st.integers(1, 10_000)] * 3))
def test_value_is_what_python_computes(expression, sizes):
    axes = dict(zip(NAMES, sizes, strict=True))
    assert evaluate_dim(expression, axes) == eval(expression, {"max": max, "min": min}, axes)
    assert axis_names(expression) == {n for n in NAMES if n in expression}


def test_integers_are_themselves_and_shapes_are_tuples():
    assert evaluate_dim(7, {}) == 7
    assert evaluate_shape((3, "2*N", "(H - 1)//2 + 1"), {"N": 5, "H": 8}) == (3, 10, 4)


@pytest.mark.parametrize("words", ["N +", "__import__('os')", "N.real", "[N]", "N if N else 1", "f(N)", "N / 2", "'a'"])
def test_anything_else_is_refused(words):
    with pytest.raises(ValueError, match="dimension expression"):
        evaluate_dim(words, {"N": 4})


def test_unbound_axis_is_a_key_error():
    with pytest.raises(KeyError):
        evaluate_dim("N + M", {"N": 4})
