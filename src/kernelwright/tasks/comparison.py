"""Comparing a candidate's output with the oracle: pure numpy, in chunks, so that memory stays flat."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelwright.core.dtypes import DType
from kernelwright.tasks.arrays import Array, to_float64

_CHUNK = 1 << 13


@dataclass(frozen=True)
class TensorErrorData:
    """How far one output is off: the fields of `judge.evaluation.TensorError`."""

    output: str
    max_abs_error: float
    max_relative_error: float
    """Largest |got - expected| / max(|expected|, rms(expected))."""
    worst_ratio: float
    """Largest error over allowance; infinite where NaN, infinity or an exact value disagrees."""
    mismatched: int
    elements: int
    worst_index: tuple[int, ...] = ()
    expected: float = 0.0
    got: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every judged element is within its allowance."""
        return self.mismatched == 0


def compare(  # noqa: PLR0917 - the order in which one says it: expected, within, got
    name: str,
    expected: Array,
    allowed: NDArray[Any],
    stable: NDArray[np.bool_] | None,
    got: Array,
    dtype: DType,
) -> TensorErrorData:
    """Judge `got` (storage of `dtype`) against the oracle.

    NaN must meet NaN and an infinity the same infinity; an element whose allowance is infinite is not judged. Integers
    and flags must be equal where `stable` says so (everywhere if it is None).

    Raises:
        ValueError: the shapes differ.
    """
    if got.shape != expected.shape:
        raise ValueError(f"`{name}`: expected shape {expected.shape}, got {got.shape}")
    flat = _Flat(expected, allowed, stable, got, dtype)
    rms = flat.rms()
    worst, where, mismatched, largest, relative = -1.0, 0, 0, 0.0, 0.0
    for start in range(0, expected.size, _CHUNK):
        error, ratio, size = flat.chunk(start)
        mismatched += int(np.count_nonzero(ratio > 1))
        peak = int(np.argmax(ratio))
        if float(ratio[peak]) > worst:
            worst, where = float(ratio[peak]), start + peak
        largest = max(largest, float(np.max(error)))
        scale = np.maximum(size, rms)
        fraction = np.divide(error, scale, out=np.where(error > 0, np.inf, 0.0), where=scale > 0)
        relative = max(relative, float(np.max(fraction)))
    index = tuple(int(i) for i in np.unravel_index(where, expected.shape)) if expected.size else ()
    return TensorErrorData(
        output=name,
        max_abs_error=largest,
        max_relative_error=relative,
        worst_ratio=max(worst, 0.0),
        mismatched=mismatched,
        elements=int(expected.size),
        worst_index=index,
        expected=flat.expected_at(where) if expected.size else 0.0,
        got=flat.got_at(where) if expected.size else 0.0,
    )


class _Flat:
    """Flat views over the four arrays, read one chunk at a time."""

    def __init__(
        self, expected: Array, allowed: NDArray[Any], stable: NDArray[np.bool_] | None, got: Array, dtype: DType
    ) -> None:
        self._expected, self._allowed = expected.reshape(-1), allowed.reshape(-1)
        self._stable = None if stable is None else stable.reshape(-1)
        self._got, self._dtype = got.reshape(-1), dtype

    def rms(self) -> float:
        """Root mean square of the finite expected values."""
        total, count = 0.0, 0
        for start in range(0, self._expected.size, _CHUNK):
            part = self._expected[start : start + _CHUNK].astype(np.float64)
            finite = part[np.isfinite(part)]
            peak = float(np.max(np.abs(finite), initial=0.0))
            if peak > 1e150:
                return peak
            total += float(np.dot(finite, finite))
            count += finite.size
        return math.sqrt(total / count) if count else 0.0

    def chunk(self, start: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Absolute error, error over allowance, and |expected| of one chunk; unjudged elements have error 0."""
        part = slice(start, start + _CHUNK)
        if self._dtype.is_floating:
            return self._floating(part)
        expected, got = self._expected[part], self._got[part]
        differs = expected != got
        if self._stable is not None:
            differs &= self._stable[part]
        error = np.where(differs, np.abs(expected.astype(np.float64) - got.astype(np.float64)), 0.0)
        return error, np.where(differs, np.inf, 0.0), np.abs(expected.astype(np.float64))

    def _floating(self, part: slice) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        expected = self._expected[part]
        got = to_float64(self._got[part], self._dtype)
        allowed = self._allowed[part].astype(np.float64)
        both = np.isfinite(expected) & np.isfinite(got)
        same = both | (np.isnan(expected) & np.isnan(got)) | (expected == got)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            error = np.where(both, np.abs(got - expected), np.where(same, 0.0, np.inf))
            ratio = np.where(error == 0, 0.0, error / allowed)
        judged = ~np.isinf(allowed)
        ratio = np.where(judged, np.where(same, ratio, np.inf), 0.0)
        size = np.where(np.isfinite(expected), np.abs(expected), 0.0)
        return np.where(judged, error, 0.0), ratio, size

    def expected_at(self, index: int) -> float:
        return float(self._expected[index])

    def got_at(self, index: int) -> float:
        return float(to_float64(self._got[index : index + 1], self._dtype)[0])
