"""The fp64 oracle and how far from it a result may lie.

For each floating output element, with o the oracle's value and m its local magnitude:

    allowed = ((rounding + sqrt(length)) * eps(computation) + [eps(dtype) if 16 bits wide]) * |o|
            + reference_error * max(e, rms(e) / rms(m) * m)
            + conditioning * (1 + sqrt(length) / 3) * max(c, rms(c) / rms(m) * m)
            + 64 * eps(float64) * typical(o)

- e: error of the reference itself at the task's dtype. Noisy (zero by luck at some elements), hence the smoothed floor.
- c: change of the oracle when every floating input moves by one rounding of the computation's precision (float32 for
  16-bit types: they are storage types, products and sums belong into float32), with random signs; twice, for inputs of
  less than four million elements.
- 64 * eps(float64) * typical(o): the oracle's own rounding, where terms cancel: 1 + erf(x) is 0 in float64 below x = -5.9,
  and a kernel that uses erfc knows better.
- rms: root mean square over the whole output, and over the element's row (the last dimension), whichever gives more.
- m: product over dimensions of the root mean square along all others, normalised: it follows rows and columns of
  different scale, so that one large row does not excuse a wrong small one.
- length: how many input elements one output element depends on, measured by changing a random share of the inputs. It
  pays for the plainest honest kernel, one running sum of n terms: with terms of both signs its error is sqrt(n) / 5
  times c (each partial sum rounds at its own size: n * u / 2 against sqrt(n) * u); with terms of one sign it is
  sqrt(n) * u / 3 of the result itself. A tree of sums stays far below both, and computation in half precision lies two
  to three orders of magnitude above.

Elements where the reference itself overflows are not judged. Integer and boolean outputs must agree exactly where they
are stable: where neither moving the inputs by one rounding, nor the reference's own precision, nor other roundings of
the results on the way (`roundings`) change them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelwright.core.dtypes import DType
from kernelwright.core.errors import TaskError
from kernelwright.tasks.arrays import Array, from_torch, to_float64
from kernelwright.tasks.failures import place, task_error
from kernelwright.tasks.model import Task, TensorSpec, Tolerance
from kernelwright.tasks.precision import everything_in_double
from kernelwright.tasks.reference import Reference
from kernelwright.tasks.roundings import rounded_otherwise, signs_of_values

if TYPE_CHECKING:
    import torch

Float64 = NDArray[np.float64]

LARGEST = {
    DType.FLOAT64: float(np.finfo(np.float64).max),
    DType.FLOAT32: float(np.finfo(np.float32).max),
    DType.FLOAT16: 65504.0,
    DType.BFLOAT16: 3.3895313892515355e38,
}
SMALLEST = {DType.FLOAT64: 2.0**-126, DType.FLOAT32: 2.0**-126, DType.FLOAT16: 2.0**-23, DType.BFLOAT16: 2.0**-126}
"""Differences below this are never held against anybody (denormals; twice the smallest one for float16; allowances are
kept in float32)."""
NOT_IN_DOUBLE = "the reference does not run in float64; its own result, with a wider allowance, is the oracle"
_LONGEST = 65536.0
"""Longer sums are not granted more: nobody runs a single float32 accumulator over millions of elements and is right."""
_SHORTEST_ROW = 8
_MANY_ELEMENTS = 1 << 22
"""From here on one draw of signs is enough for the smoothed change."""
_ROUNDING_DRAWS = 12
"""Two near values part or swap in about one draw of four."""
_ROUNDINGS = 4.0
"""Roundings by which each result on the way is moved: what a vectorised exp or tanh may be off."""
_OWN_PRECISION_FACTOR = 4.0
"""How much wider the rounding term is where the reference cannot run in float64 and its own result is the oracle."""
_UNJUDGED = 0.5
"""A distribution is outside the domain where the reference overflows on more than this share of an output."""


@dataclass(frozen=True)
class OutputOracle:
    """What one output should be."""

    name: str
    dtype: DType
    expected: Array
    """float64 for floating outputs (infinite where the dtype cannot hold it), else the exact integers or flags."""
    allowed: NDArray[np.float32]
    """Allowance per element; infinite where the element is not judged; zeros for exact outputs."""
    stable: NDArray[np.bool_] | None
    """For integer and boolean outputs: where the value must agree exactly."""


@dataclass(frozen=True)
class OracleArrays:
    """The oracle on one set of inputs."""

    outputs: tuple[OutputOracle, ...]
    in_double: bool
    """False where the reference cannot run in float64 and its own result, with a wider allowance, is the oracle."""
    note: str = ""


@dataclass(frozen=True)
class Illegal:
    """These inputs are outside the operation's domain."""

    reason: str


def compute(
    reference: Reference, tensors: Sequence[torch.Tensor], task: Task, *, seed: int = 0
) -> OracleArrays | Illegal:
    """Oracle and allowance for kernel inputs.

    Raises:
        TaskError: the reference cannot run at all for want of memory, or returns another number of outputs.
    """
    try:
        own = [_storage(t) for t in reference.call(tensors)]
    except Exception as error:  # noqa: BLE001 - user code may raise anything for inputs outside its domain
        return _refused(error, reference)
    double = _in_double(reference, tensors, own)
    exact = double if double is not None else [_as_values(a, s.dtype) for a, s in zip(own, task.outputs, strict=True)]
    illegal = _outside_domain(reference, tensors, exact)
    if illegal:
        return Illegal(illegal)
    moved = _moved(reference, tensors, exact, in_double=double is not None, seed=seed)
    length = _length(reference, tensors, exact, seed=seed) if double is not None else 4096.0
    rounded = _rounded(reference, tensors, exact, seed=seed) if double is not None else []
    outputs = []
    for index, spec in enumerate(task.outputs):
        changes = [m[index] for m in moved if m is not None]
        own_values = own[index] if spec.dtype is DType.FLOAT32 else _as_values(own[index], spec.dtype)
        if spec.dtype.is_floating:
            allowed, unjudged = _allowance(
                exact[index],
                own_values,
                changes,
                spec=spec,
                tolerance=task.tolerance,
                length=length,
                in_double=double is not None,
            )
            if unjudged > _UNJUDGED:
                return Illegal(f"the reference overflows {spec.dtype} on {unjudged:.0%} of `{spec.name}`")
            expected = _representable(exact[index], spec.dtype)
            outputs.append(OutputOracle(spec.name, spec.dtype, expected, allowed, None))
        else:
            stable = np.logical_and.reduce(
                [own_values == exact[index], *(c == exact[index] for c in (*changes, *(r[index] for r in rounded)))]
            )
            zeros = np.zeros(exact[index].shape, np.float32)
            outputs.append(OutputOracle(spec.name, spec.dtype, exact[index], zeros, np.asarray(stable)))
    note = (
        ""
        if double is not None
        else "the reference does not run in float64; its own result, with a wider allowance, is the oracle"
    )
    return OracleArrays(tuple(outputs), double is not None, note)


def _refused(error: Exception, reference: Reference) -> Illegal:
    typed = task_error(
        error, path=reference.program.source.path, doing="in the reference", otherwise="reference_raises"
    )
    if typed.reason in {"out_of_memory", "unsupported_output"}:
        raise typed from error
    return Illegal(
        f"the reference raises {type(error).__name__}: {error} ({place(error, reference.program.source.path)})"
    )


def _storage(tensor: torch.Tensor) -> Array:
    return from_torch(tensor)


def _as_values(array: Array, dtype: DType) -> Array:
    return to_float64(array, dtype) if dtype.is_floating else array


def _in_double(reference: Reference, tensors: Sequence[torch.Tensor], own: Sequence[Array]) -> list[Array] | None:
    """The outputs in float64, or None where the reference does not run (through) in float64."""
    result = double_call(reference, tensors)
    if result is None or [r.shape for r in result] != [o.shape for o in own]:
        return None
    return result


def double_call(reference: Reference, tensors: Sequence[torch.Tensor]) -> list[Array] | None:
    """Outputs with every floating input widened to float64; None where the user's code refuses or narrows again."""
    import torch

    wide = [t.double() if t.is_floating_point() else t for t in tensors]
    try:
        with everything_in_double():
            result = reference.call_in_double(wide)
    except TaskError:
        raise
    except Exception:  # noqa: BLE001 - user code that insists on its dtype may raise anything
        return None
    if any(r.is_floating_point() and r.dtype is not torch.float64 for r in result):
        return None
    return [_storage(r) for r in result]


def _outside_domain(reference: Reference, tensors: Sequence[torch.Tensor], exact: Sequence[Array]) -> str:
    """Why these inputs are outside the domain: NaN out of finite inputs, where the task's own inputs give none."""
    import torch

    made_nan = any(a.dtype.kind == "f" and bool(np.isnan(a).any()) for a in exact)
    if not made_nan or not all(bool(torch.isfinite(t).all()) for t in tensors if t.is_floating_point()):
        return ""
    if reference.own_gives_nan():
        return ""
    return "the reference gives NaN for finite inputs of this kind"


def _moved(
    reference: Reference, tensors: Sequence[torch.Tensor], exact: Sequence[Array], *, in_double: bool, seed: int
) -> list[list[Array] | None]:
    """The outputs after moving each floating input by one rounding, for one or two draws of signs."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    results: list[list[Array] | None] = []
    keep_ties = any(a.dtype.kind != "f" for a in exact)
    draws = 2 if sum(t.numel() for t in tensors) < _MANY_ELEMENTS else 1
    for _ in range(draws):
        salt = int(torch.randint(1, 2**31 - 1, (), generator=generator))
        shifted = [_shift(t, generator, salt if keep_ties else None, in_double=in_double) for t in tensors]
        if in_double:
            results.append(double_call(reference, shifted))
        else:
            try:
                results.append([_as_float(t) for t in reference.call(shifted)])
            except Exception:  # noqa: BLE001 - a value just outside the domain
                results.append(None)
    return [r for r in results if r is not None and [a.shape for a in r] == [a.shape for a in exact]]


def _rounded(
    reference: Reference, tensors: Sequence[torch.Tensor], exact: Sequence[Array], *, seed: int
) -> list[list[Array]]:
    """The outputs under other roundings on the way; empty where all outputs are floating."""
    import torch

    if all(a.dtype.kind == "f" for a in exact):
        return []
    generator = torch.Generator().manual_seed(seed + 2)
    wide = all(t.dtype is torch.float64 for t in tensors if t.is_floating_point())
    size = _ROUNDINGS * (DType.FLOAT64 if wide else DType.FLOAT32).epsilon
    draws = _ROUNDING_DRAWS if sum(t.numel() for t in tensors) < _MANY_ELEMENTS else _ROUNDING_DRAWS // 3
    results = []
    for _ in range(draws):
        with rounded_otherwise(int(torch.randint(1, 2**31 - 1, (), generator=generator)), size):
            results.append(double_call(reference, tensors))
    return [r for r in results if r is not None and [a.shape for a in r] == [a.shape for a in exact]]


def _as_float(tensor: torch.Tensor) -> Array:
    return _storage(tensor.double()) if tensor.is_floating_point() else _storage(tensor)


def _shift(tensor: torch.Tensor, generator: torch.Generator, salt: int | None, *, in_double: bool) -> torch.Tensor:
    """x * (1 ± eps). With `salt` the sign is a function of the value, so that equal values stay equal (ties)."""
    import torch

    if not tensor.is_floating_point():
        return tensor
    eps = 2.0**-52 if tensor.dtype is torch.float64 else 2.0**-23
    wide = tensor.double()
    if salt is None:
        signs = torch.randint(0, 2, wide.shape, generator=generator, dtype=torch.int8).double() * 2 - 1
    else:
        signs = signs_of_values(wide, salt)
    moved = wide * (1 + eps * signs)
    return moved if in_double else moved.to(tensor.dtype)


def _length(reference: Reference, tensors: Sequence[torch.Tensor], exact: Sequence[Array], *, seed: int) -> float:
    """Estimated number of floating input elements that an output element depends on.

    With a share p of the inputs changed, a share q = 1 - (1 - p)**length of the outputs changes. Measured once for
    each set of shapes.
    """
    import torch

    key = tuple(tuple(t.shape) for t in tensors)
    if key in reference.lengths:
        return reference.lengths[key]
    generator = torch.Generator().manual_seed(seed + 1)
    total = float(sum(t.numel() for t in tensors if t.is_floating_point())) or 1.0
    length = total
    for share in (1 / 256, 1 / 16384):
        changed = [_some_changed(t, share, generator) for t in tensors]
        result = double_call(reference, changed)
        pairs = [
            (a, b) for a, b in zip(result or [], exact, strict=False) if a.dtype.kind == "f" and a.shape == b.shape
        ]
        count = sum(a.size for a, _ in pairs)
        if count < 64:
            break
        differing = sum(int(np.count_nonzero((a != b) & np.isfinite(a))) for a, b in pairs) / count
        if differing < 0.98:
            length = max(1.0, math.log1p(-differing) / math.log1p(-share))
            break
    length = min(length, total, _LONGEST)
    reference.lengths[key] = length
    return length


def _some_changed(tensor: torch.Tensor, share: float, generator: torch.Generator) -> torch.Tensor:
    import torch

    if not tensor.is_floating_point():
        return tensor
    wide = tensor.double()
    return torch.where(torch.rand(wide.shape, generator=generator) < share, wide * (1 + 2.0**-20), wide)


_ORACLE_ROUNDING = 64 * DType.FLOAT64.epsilon


def _allowance(
    exact: Float64,
    own: Array,
    changes: Sequence[Float64],
    *,
    spec: TensorSpec,
    tolerance: Tolerance,
    length: float,
    in_double: bool,
) -> tuple[NDArray[np.float32], float]:
    """Allowance per element, and the share of elements that are not judged."""
    if exact.ndim == 0:
        lone, unjudged = _allowance(
            exact.reshape(1),
            own.reshape(1),
            [c.reshape(1) for c in changes],
            spec=spec,
            tolerance=tolerance,
            length=length,
            in_double=in_double,
        )
        return lone.reshape(()), unjudged
    wide = spec.dtype is DType.FLOAT64
    kind: Any = np.float64 if wide else np.float32
    computation = spec.dtype.epsilon if wide else DType.FLOAT32.epsilon
    storage = spec.dtype.epsilon if spec.dtype.itemsize == 2 else 0.0
    scale = magnitude(_representable(exact, spec.dtype), kind)
    rounding = (tolerance.rounding + math.sqrt(length)) * computation * (1.0 if in_double else _OWN_PRECISION_FACTOR)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        size = np.abs(exact).astype(kind)
        allowed = size * kind(rounding + storage)
        allowed += kind(tolerance.reference_error) * _smoothed(np.abs(own - exact).astype(kind), scale)
        if not in_double:
            allowed += kind(rounding + 2 * storage) * scale
        if changes:
            change = _root_mean_square([c - exact for c in changes]).astype(kind)
            allowed += kind(tolerance.conditioning * (1 + math.sqrt(length) / 3)) * _smoothed(change, scale)
        allowed += kind(SMALLEST[spec.dtype] + _ORACLE_ROUNDING * _typical(exact))
        if tolerance.rtol is not None or tolerance.atol is not None:
            allowed = np.maximum(allowed, kind(tolerance.rtol or 0.0) * size + kind(tolerance.atol or 0.0))
        finite = np.isfinite(exact)
        edge = finite & (~np.isfinite(own) | (size > LARGEST[spec.dtype] * (1 - 2.0**-8)))
        allowed[edge | np.isnan(allowed)] = np.inf
        if not finite.all():
            allowed[~finite] = np.where(np.isfinite(own[~finite]), np.inf, 0.0)
        return allowed.astype(np.float32), float(np.count_nonzero(edge)) / max(1, exact.size)


def _root_mean_square(parts: Sequence[Float64]) -> Float64:
    total = np.square(parts[0])
    for part in parts[1:]:
        total += np.square(part)
    total /= len(parts)
    return np.sqrt(total, out=total)


def _typical(values: Float64) -> float:
    """Upper quartile of the finite magnitudes, from at most about 65,000 elements: one huge element excuses nothing."""
    sample = np.abs(values.reshape(-1)[:: max(1, values.size >> 16)])
    sample = sample[np.isfinite(sample)]
    return float(np.quantile(sample, 0.75)) if sample.size else 0.0


def _smoothed(error: Array, scale: Array) -> Array:
    """The error, but at least `scale` times the ratio of the two in the element's row and in the whole output.

    The ratio is root mean square over root mean square, so that elements which the model of magnitudes overestimates or
    misses count little. `error` may be changed.
    """
    error[~np.isfinite(error)] = 0.0
    totals = [(_squares(error), _squares(scale))]
    if error.ndim >= 1 and error.shape[-1] >= _SHORTEST_ROW:
        totals.append((_squares(error, row=True), _squares(scale, row=True)))
    for own, other in totals:
        ratio = np.sqrt(np.divide(own, other, out=np.zeros_like(own), where=other > 0)).astype(error.dtype)
        np.maximum(error, ratio * scale, out=error)
    return error


def _squares(values: Array, *, row: bool = False) -> Float64:
    flat = values if row else values.reshape(-1)
    return np.asarray(np.einsum("...i,...i->...", flat, flat, dtype=np.float64))[..., np.newaxis]


def magnitude(values: Float64, kind: Any = np.float64) -> Array:
    """Local magnitude: rank-one model of |values| from root mean squares along each dimension (finite elements only)."""
    finite = np.isfinite(values)
    usable = values if finite.all() else np.where(finite, values, 0.0)
    peak = max(float(usable.max(initial=0.0)), -float(usable.min(initial=0.0)))
    if peak == 0.0 or values.ndim == 0:
        return np.full(values.shape, peak, kind)
    squares = usable / peak
    np.square(squares, out=squares)
    overall = float(np.mean(squares))
    if overall == 0.0:
        return np.zeros(values.shape, kind)
    model = np.full((1,) * values.ndim, peak * math.sqrt(overall))
    for dim in range(values.ndim):
        others = tuple(d for d in range(values.ndim) if d != dim)
        model = model * np.sqrt(squares.mean(axis=others, keepdims=True) / overall)
    return np.array(np.broadcast_to(model, values.shape), dtype=kind)


def _representable(exact: Float64, dtype: DType) -> Float64:
    beyond = np.abs(exact) > LARGEST[dtype] * (1 + dtype.epsilon / 4)
    result: Any = np.where(beyond & np.isfinite(exact), np.copysign(np.inf, exact), exact)
    return np.asarray(result, dtype=np.float64)
