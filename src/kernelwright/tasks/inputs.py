"""Drawing inputs: pure numpy, so that the judge's trusted process can draw them without torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator

from kernelwright.core.dtypes import DType
from kernelwright.tasks.arrays import Array, from_float64, storage_dtype, to_float64
from kernelwright.tasks.model import Distribution, Task, TensorSpec

OWN = Distribution(family="own")
_FLOATING = (
    OWN,
    Distribution(family="normal"),
    Distribution(family="large"),
    Distribution(family="tiny"),
    Distribution(family="ties"),
    Distribution(family="uniform"),
    Distribution(family="positive"),
    Distribution(family="booleans"),
)
_DOMAINS = frozenset({"uniform", "positive", "ties", "zeros", "tiny"})
"""Declared families that say where the values live; `normal` and `large` leave the whole line open."""

_CORNER = 64
"""Structure is looked for in a corner first, so that large tensors without any cost nothing."""
_SYMMETRY = 1e-5
"""Relative difference up to which a matrix that was computed counts as symmetric."""

LARGE = {DType.FLOAT16: 32.0}
"""Scale of the `large` family; squares and long sums of it still fit the type. 1000 where not listed."""
TINY = {DType.FLOAT16: 2.0**-10}
"""Scale of the `tiny` family; 2**-20 where not listed."""


def distributions_for(task: Task) -> tuple[Distribution, ...]:
    """The families to verify a task on: its own, then signed, large, tiny, tied, bounded, positive values, zeros and ones.

    Some of them may lie outside the operation's domain; the oracle says so when it meets one (`oracle.Illegal`).
    A task without floating inputs has its own and a uniform draw from the range that its own inputs show.
    """
    if not any(spec.dtype.is_floating for spec in task.kernel_inputs):
        return OWN, Distribution(family="integers")
    return (*_FLOATING, Distribution(family="special")) if task.special_values else _FLOATING


def draw(
    spec: TensorSpec, shape: tuple[int, ...], distribution: Distribution, generator: Generator, own: Array | None
) -> Array:
    """Storage of `spec.dtype` with values of a family, keeping what the reference may rely on.

    Args:
        own: what the task's own generator gives for this shape. Integers and flags stay inside its range; parameters
            and placeholder buffers are varied around it, other buffers (tables, masks) stay as they are.
    """
    if distribution.family == "own" and own is not None:
        return own.reshape(shape)
    if not spec.dtype.is_floating:
        return _keep_structure(_exact(spec, shape, distribution, generator, own), spec)
    if spec.role in {"parameter", "buffer"} and own is not None:
        return _state(spec, own, generator).reshape(shape)
    domain = spec.distribution if spec.distribution and spec.distribution.family in _DOMAINS else None
    if domain is None:
        values = _family(distribution, shape, generator, spec.dtype)
    else:
        values = _inside(domain, distribution.family, shape, generator, spec.dtype)
    return _keep_structure(from_float64(values, spec.dtype), spec)


def draw_declared(
    spec: TensorSpec, shape: tuple[int, ...], axes: dict[str, int], generator: Generator, limit: int
) -> Array:
    """A declared input's own values; integers without a declaration are at least 0 and below `limit`, so that they
    index whatever they may index."""
    declared = spec.distribution
    if spec.dtype is DType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if not spec.dtype.is_floating:
        low, high = (int(declared.low), int(declared.high)) if declared else (0, limit)
        if declared and declared.high_axis:
            high = axes[declared.high_axis]
        top = int(np.iinfo(storage_dtype(spec.dtype)).max)
        return generator.integers(low, max(low + 1, min(high, top)), shape).astype(storage_dtype(spec.dtype))
    family = declared if declared and declared.family != "own" else Distribution(family="normal")
    return from_float64(_family(family, shape, generator, spec.dtype), spec.dtype)


def _family(distribution: Distribution, shape: tuple[int, ...], generator: Generator, dtype: DType) -> Array:
    wide: Any = np.float64 if dtype is DType.FLOAT64 else np.float32

    def normal() -> Array:
        return np.asarray(generator.standard_normal(shape, dtype=wide))

    def uniform() -> Array:
        low, high = distribution.low, distribution.high
        drawn: Array = generator.random(shape, dtype=wide)
        return np.asarray(drawn * (high - low) + low, dtype=wide)

    families: dict[str, Callable[[], Array]] = {
        "own": normal,
        "normal": normal,
        "uniform": uniform,
        "large": lambda: np.asarray(normal() * wide(LARGE.get(dtype, 1000.0))),
        "tiny": lambda: np.asarray(normal() * wide(TINY.get(dtype, 2.0**-20))),
        "ties": lambda: np.asarray(generator.integers(-2, 3, shape).astype(wide) * wide(0.5)),
        "positive": lambda: np.asarray(np.abs(normal()) + wide(0.0625)),
        "zeros": lambda: np.zeros(shape, wide),
        "integers": lambda: generator.integers(int(distribution.low), int(distribution.high), shape).astype(wide),
        "booleans": lambda: generator.integers(0, 2, shape).astype(wide),
        "special": lambda: _special(normal(), generator, dtype),
    }
    return families[distribution.family]()


def _special(values: Array, generator: Generator, dtype: DType) -> Array:
    """About one value in sixteen is NaN, infinite, a signed zero or denormal."""
    tiny = {DType.FLOAT64: 5e-320, DType.FLOAT16: 6e-8}.get(dtype, 1e-40)
    kinds = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, tiny, -tiny], dtype=values.dtype)
    chosen = generator.random(values.shape) < 1 / 16
    return np.where(chosen, kinds[generator.integers(0, len(kinds), values.shape)], values)


def _inside(domain: Distribution, family: str, shape: tuple[int, ...], generator: Generator, dtype: DType) -> Array:
    """Values of the declared domain that keep the family's character where the domain leaves room for it."""
    if domain.family != "uniform":
        return _family(domain, shape, generator, dtype)
    low, span = domain.low, domain.high - domain.low
    share = generator.random(shape)
    if family == "ties":
        share = np.floor(share * 4) / 4
    elif family == "tiny":
        share = share * 2.0**-10
    elif family == "large":
        share = 1 - (share + 2.0**-30) * 2.0**-10
    return low + span * share


def _exact(
    spec: TensorSpec, shape: tuple[int, ...], distribution: Distribution, generator: Generator, own: Array | None
) -> Array:
    if own is not None and (own.size == 0 or spec.role == "buffer"):
        return own.reshape(shape)
    if spec.dtype is DType.BOOL:
        share = 0.5 if own is None else float(own.mean())
        return generator.random(shape) < share
    low, high = (int(distribution.low), int(distribution.high) - 1) if own is None else (int(own.min()), int(own.max()))
    return generator.integers(low, max(low, high), shape, dtype=np.int64, endpoint=True).astype(
        storage_dtype(spec.dtype)
    )


def _state(spec: TensorSpec, own: Array, generator: Generator) -> Array:
    """Trained-looking state: parameters scaled and shifted at random; placeholder buffers (running statistics) likewise."""
    values = to_float64(own, spec.dtype)
    if own.size == 0 or not np.isfinite(values).all():
        return own
    constant = bool((values == values.flat[0]).all())
    if spec.role == "buffer" and not constant:
        return own
    scaled = values * generator.uniform(0.5, 1.5, values.shape)
    if spec.role == "buffer" and values.flat[0] > 0:
        return from_float64(scaled, spec.dtype)
    size = float(np.sqrt(np.mean(values**2))) or 1.0
    return from_float64(scaled + 0.25 * size * generator.standard_normal(values.shape), spec.dtype)


def _keep_structure(array: Array, spec: TensorSpec) -> Array:
    match spec.structure:
        case "symmetric":
            lower = np.tril(array)
            return np.asarray(lower + np.swapaxes(np.tril(array, -1), -1, -2)).astype(array.dtype)
        case "lower_triangular":
            return np.tril(array)
        case "upper_triangular":
            return np.triu(array)
        case "sorted":
            if spec.dtype is not DType.BFLOAT16:
                return np.sort(array, axis=-1)
            return from_float64(np.sort(to_float64(array, spec.dtype), axis=-1), spec.dtype)
    return array


def structure_of(array: Array, dtype: DType) -> str:
    """The property of the values that a reference may rely on: a `TensorSpec.structure`.

    A constant tensor has none, and neither has one that is too small to tell.
    """
    if array.ndim == 0 or array.size < 8 or bool((array == array.flat[0]).all()):
        return "general"
    if array.ndim >= 2 and array.shape[-1] == array.shape[-2] and array.shape[-1] > 2:
        matrices = array.reshape(-1, *array.shape[-2:])[:4]
        found = _structure_of_matrices(matrices[:, :_CORNER, :_CORNER], dtype)
        if found != "general" and _structure_of_matrices(matrices, dtype) == found:
            return found
    rows = array.reshape(-1, array.shape[-1])
    if rows.shape[-1] >= 8 and _is_sorted(rows[:_CORNER], dtype) and _is_sorted(rows, dtype):
        return "sorted"
    return "general"


def _structure_of_matrices(matrices: Array, dtype: DType) -> str:
    if not np.triu(matrices, 1).any():
        return "lower_triangular"
    if not np.tril(matrices, -1).any():
        return "upper_triangular"
    values = to_float64(matrices, dtype)
    limit = _SYMMETRY * float(np.abs(values).max())
    return "symmetric" if np.allclose(values, np.swapaxes(values, -1, -2), rtol=_SYMMETRY, atol=limit) else "general"


def _is_sorted(rows: Array, dtype: DType) -> bool:
    """No step down, and steps up in most rows: rows of one value each say nothing."""
    steps = np.diff(to_float64(rows, dtype), axis=-1)
    return bool((steps >= 0).all()) and float(np.mean((steps > 0).any(axis=-1))) > 0.5
