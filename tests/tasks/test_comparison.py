"""The comparison against element-by-element brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.core.dtypes import DType
from kernelwright.tasks import comparison
from kernelwright.tasks.comparison import compare

VALUES = st.floats(allow_nan=True, allow_infinity=True, width=32)
ROWS = st.lists(
    st.tuples(VALUES, VALUES | st.just(None), st.floats(0, 1e6, width=32) | st.just(math.inf)), min_size=1, max_size=40
)


def brute_force(expected, allowed, got):
    """(mismatched, worst ratio) of float lists."""
    mismatched, worst = 0, 0.0
    for e, a, g in zip(expected, allowed, got, strict=True):
        if math.isinf(a):
            continue
        if math.isnan(e) or math.isnan(g):
            ratio = 0.0 if math.isnan(e) and math.isnan(g) else math.inf
        elif math.isinf(e) or math.isinf(g):
            ratio = 0.0 if e == g else math.inf
        elif e == g:
            ratio = 0.0
        else:
            ratio = abs(e - g) / a if a else math.inf
        mismatched += ratio > 1
        worst = max(worst, ratio)
    return mismatched, worst


@given(ROWS, st.integers(1, 7))
def test_agrees_with_brute_force_in_any_chunking(rows, chunk):
    expected = np.array([e for e, _, _ in rows], np.float64)
    got = np.array([e if g is None else g for e, g, _ in rows], np.float32)
    allowed = np.array([a for _, _, a in rows], np.float32)
    before = comparison._CHUNK
    comparison._CHUNK = chunk
    try:
        result = compare("y", expected, allowed, None, got, DType.FLOAT32)
    finally:
        comparison._CHUNK = before
    mismatched, worst = brute_force(expected.tolist(), allowed.tolist(), got.tolist())
    assert result.mismatched == mismatched
    assert result.worst_ratio == pytest.approx(worst)
    assert result.passed == (mismatched == 0)
    assert result.elements == len(rows)


def test_names_the_worst_element():
    expected = np.zeros((3, 5))
    got = np.zeros((3, 5), np.float32)
    got[1, 3], got[2, 0] = 0.5, -0.25
    result = compare("y", expected + 1.0, np.full((3, 5), 0.1), None, got + 1.0, DType.FLOAT32)
    assert (result.worst_index, result.mismatched) == ((1, 3), 2)
    assert (result.expected, result.got, result.max_abs_error) == (1.0, 1.5, 0.5)
    assert result.worst_ratio == pytest.approx(5.0)
    assert result.max_relative_error == pytest.approx(0.5)


def test_integers_are_exact_where_stable():
    expected = np.array([2**60 + 1, 5, 7])
    got = np.array([2**60, 5, 9])
    both = compare("i", expected, np.zeros(3, np.float32), None, got, DType.INT64)
    assert both.mismatched == 2
    one = compare("i", expected, np.zeros(3, np.float32), np.array([True, True, False]), got, DType.INT64)
    assert (one.mismatched, one.worst_index) == (1, (0,))


def test_bfloat16_storage_is_read_as_values():
    got = np.array([0x3F80, 0x7FC0, 0xFF80], np.uint16)
    expected = np.array([1.0, np.nan, -np.inf])
    assert compare("y", expected, np.zeros(3, np.float32), None, got, DType.BFLOAT16).passed


def test_empty_and_scalar_outputs():
    nothing = compare("y", np.zeros((0, 3)), np.zeros((0, 3)), None, np.zeros((0, 3), np.float32), DType.FLOAT32)
    assert nothing.passed
    assert nothing.elements == 0
    lone = compare("y", np.array(2.0), np.array(0.1), None, np.array(3.0, np.float32), DType.FLOAT32)
    assert (lone.mismatched, lone.worst_index) == (1, ())


def test_other_shapes_are_an_error():
    with pytest.raises(ValueError, match="expected shape"):
        compare("y", np.zeros((2, 3)), np.zeros((2, 3)), None, np.zeros((3, 2), np.float32), DType.FLOAT32)
