"""Every function of kw_math.h against float64 (for float) and extended precision (for double), in units in the last place."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf

Array = np.ndarray
UNARY = [
    "floor",
    "ceil",
    "trunc",
    "round",
    "sqrt",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "atan",
    "asin",
    "acos",
    "sinh",
    "cosh",
    "tanh",
    "erf",
    "erfc",
    "sigmoid",
    "silu",
    "gelu_erf",
    "gelu_tanh",
    "rsqrt",
    "reciprocal",
    "softplus",
    "sign",
    "abs",
]
BINARY = ["atan2", "pow", "fmod", "remainder", "maximum", "minimum", "fmax_", "fmin_"]

SOURCE = (
    """
#include "kw_vector.h"
template <class T, class F> static void apply(const T* x, T* y, int64_t n, int vectors, F f) {
    constexpr int W = kw::native_lanes<T>;
    int64_t i = 0;
    if (vectors)
        for (; i + W <= n; i += W) kw::store(y + i, f(kw::load<W>(x + i)));
    for (; i < n; ++i) y[i] = f(x[i]);
}
template <class T, class F> static void apply2(const T* x, const T* z, T* y, int64_t n, int vectors, F f) {
    constexpr int W = kw::native_lanes<T>;
    int64_t i = 0;
    if (vectors)
        for (; i + W <= n; i += W) kw::store(y + i, f(kw::load<W>(x + i), kw::load<W>(z + i)));
    for (; i < n; ++i) y[i] = f(x[i], z[i]);
}
"""
    + "".join(
        f"""
extern "C" void {name}_{t}(const {t}* x, {t}* y, int64_t n, int vectors) {{
    apply(x, y, n, vectors, [](auto v) {{ return kw::{name}(v); }});
}}"""
        for name in UNARY
        for t in ("float", "double")
    )
    + "".join(
        f"""
extern "C" void {name}_{t}(const {t}* x, const {t}* z, {t}* y, int64_t n, int vectors) {{
    apply2(x, z, y, n, vectors, [](auto a, auto b) {{ return kw::{name}(a, b); }});
}}"""
        for name in BINARY
        for t in ("float", "double")
    )
)

# Largest error allowed, in ulp of the true value.
EXACT = dict.fromkeys(
    ("floor", "ceil", "trunc", "round", "sign", "abs", "maximum", "minimum", "fmax_", "fmin_", "fmod"), 0.0
)
FLOAT_ULP = EXACT | {
    "sqrt": 0.5001,
    "reciprocal": 0.5001,
    "remainder": 0.5001,
    "tan": 4.0,
    "erfc": 4.5,
    "gelu_erf": 6.0,
    "pow": 1.0,
}
DEFAULT_ULP = 3.0


def _levels() -> list[str]:
    if platform.machine() not in ("x86_64", "AMD64"):
        return ["native"]
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return ["native", "x86-64"] + (["x86-64-v3"] if " avx2 " in flags and " fma " in flags else [])


@pytest.fixture(scope="module", params=_levels())
def functions(request: pytest.FixtureRequest, compile_library: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    return compile_library(SOURCE, request.param)


def _run(library: ctypes.CDLL, name: str, *arrays: Array, vectors: bool = True) -> Array:
    arrays = tuple(np.ascontiguousarray(a) for a in arrays)
    out = np.empty_like(arrays[0])
    suffix = "float" if out.dtype == np.float32 else "double"
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
    getattr(library, f"{name}_{suffix}")(*pointers, ctypes.c_int64(out.size), ctypes.c_int(int(vectors)))
    return out


def _torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Array], Array]:
    return lambda a: function(torch.from_numpy(np.ascontiguousarray(a))).numpy()


def _gelu_tanh(a: Array) -> Array:
    u = np.sqrt(a.dtype.type(2) / a.dtype.type(np.pi)) * (a + a.dtype.type(0.044715) * a**3)
    return a / (1 + np.exp(-2 * u))


REFERENCE: dict[str, Callable[..., Array]] = {
    **{name: _torch(getattr(torch, name)) for name in UNARY if hasattr(torch, name)},
    "softplus": _torch(nnf.softplus),
    "silu": lambda a: a / (1 + np.exp(-a)),
    "gelu_erf": lambda a: a * 0.5 * torch.erfc(torch.from_numpy(-a * np.sqrt(0.5))).numpy(),
    "gelu_tanh": _gelu_tanh,
    "atan2": np.arctan2,
    "pow": np.power,
    "fmod": np.fmod,
    "remainder": lambda a, b: torch.remainder(torch.from_numpy(a), torch.from_numpy(b)).numpy(),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmax_": np.fmax,
    "fmin_": np.fmin,
}
EXTENDED: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "cosh": np.cosh,
    "sigmoid": lambda a: np.where(a < 0, np.exp(-abs(a)), 1) / (1 + np.exp(-abs(a))),
}

SPECIAL = np.array(
    [
        *(
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            1,
            -1,
            1e-45,
            -1e-45,
            1.17549435e-38,
            3.4e38,
            -3.4e38,
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
        ),
        *(
            2,
            3,
            -3,
            8388607.5,
            -8388607.5,
            4194303.5,
            88.72,
            88.73,
            89,
            -87.3,
            -88,
            -103.9,
            -104.1,
            150,
            -150,
            16777216,
        ),
        *(33554432, 1e10, 1e-10),
    ],
    dtype=np.float32,
)


def _samples(count: int) -> Array:
    """All exponents alike, the ranges where the functions bend, and special values, each of these filling a whole vector."""
    generator = np.random.default_rng(7)
    every = generator.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ranges = [generator.uniform(low, high, count // 4) for low, high in ((-10, 10), (-105, 105), (-1, 1), (0.6, 1.6))]
    return np.concatenate([np.repeat(SPECIAL, 16), every, *(part.astype(np.float32) for part in ranges)])


def _ulp_errors(got: Array, true: Array) -> Array:
    kind = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = true.astype(got.dtype)
        finite = np.isfinite(rounded)
        size = np.maximum(np.abs(np.where(finite, true, 1)), kind.tiny)
        unit = np.ldexp(np.ones_like(size), (np.floor(np.log2(size)) - kind.nmant).astype(int))
        error = np.abs(np.where(np.isfinite(got), got, 0).astype(true.dtype) - np.where(finite, true, 0)) / unit
        agree = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        disagree = (np.isnan(got) != np.isnan(rounded)) | ((np.isinf(got) | np.isinf(rounded)) & (got != rounded))
    error = np.where(agree & ~finite, 0, error)
    return np.where(disagree, np.inf, error)


def _check(name: str, got: Array, true: Array, limit: float, where: Array) -> None:
    errors = _ulp_errors(got, true)
    worst = int(np.argmax(errors))
    assert errors[worst] <= limit, (
        f"{name}({where[worst]!r}) = {got[worst]!r}, true {true[worst]!r}: {errors[worst]} ulp"
    )


LOW = {"silu": -87.0, "sigmoid": -87.0, "softplus": -87.0, "gelu_erf": -12.9, "gelu_tanh": -1.0}


def _meaningful(name: str, x: Array) -> Array:
    """Without the far negative tails of the activations: there a rounding of the argument alone is many ulp of the result, and
    the smallest results are zero."""
    low = LOW.get(name)
    return x if low is None else x[~(x < low)]


@pytest.mark.parametrize("name", LOW)
def test_tails_of_activations_vanish(functions: ctypes.CDLL, name: str) -> None:
    x = np.linspace(LOW[name], -200, 1 << 14).astype(np.float32)
    got = _run(functions, name, x)
    with np.errstate(all="ignore"):
        true = REFERENCE[name](x.astype(np.float64))
    assert np.all(np.abs(got - true) <= 1e-4 * np.abs(true) + 2e-36)
    assert np.all(got[x < -110] == 0)


@pytest.mark.parametrize("name", UNARY)
def test_float_functions_are_accurate(functions: ctypes.CDLL, name: str) -> None:
    x = _meaningful(name, _samples(1 << 18))
    with np.errstate(all="ignore"):
        true = REFERENCE[name](x.astype(np.float64))
    got = _run(functions, name, x)
    _check(name, got, true, FLOAT_ULP.get(name, DEFAULT_ULP), x)
    zeros = (got == 0) & (true == 0)
    assert not np.any(np.signbit(got[zeros]) != np.signbit(true[zeros])), "a zero has the wrong sign"


@pytest.mark.parametrize("name", UNARY)
def test_double_functions_are_accurate(functions: ctypes.CDLL, name: str) -> None:
    generator = np.random.default_rng(3)
    ranges = [generator.uniform(low, high, 20000) for low, high in ((-10, 10), (-700, 700), (-1, 1), (0.6, 1.6))]
    x = _meaningful(name, np.concatenate([np.repeat(SPECIAL.astype(np.float64), 8), *ranges]))
    with np.errstate(all="ignore"):
        reference = EXTENDED.get(name)
        true = reference(x.astype(np.longdouble)) if reference else REFERENCE[name](x).astype(np.longdouble)
    # Where the reference is itself a double, its own error counts too.
    _check(name, _run(functions, name, x), true, 4.0 if name in FLOAT_ULP and name in EXACT else 5.0, x)


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_arguments_are_accurate(functions: ctypes.CDLL, name: str) -> None:
    generator = np.random.default_rng(5)
    count = 1 << 16
    bits = generator.integers(0, 1 << 32, (2, count), dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = [generator.uniform(-10, 10, count), generator.uniform(-3, 3, count)]
    other = [generator.uniform(-10, 10, count), generator.integers(-20, 20, count)]
    x = np.concatenate([np.repeat(SPECIAL, SPECIAL.size), *(part.astype(np.float32) for part in near), bits[0]])
    y = np.concatenate([np.tile(SPECIAL, SPECIAL.size), *(part.astype(np.float32) for part in other), bits[1]])
    with np.errstate(all="ignore"):
        wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
        true = REFERENCE[name](wide_x, wide_y)
    pairs = np.stack([x, y], axis=1)
    _check(name, _run(functions, name, x, y), true, FLOAT_ULP.get(name, DEFAULT_ULP), pairs)
    _check(name, _run(functions, name, wide_x, wide_y), true.astype(np.longdouble), 2.0, pairs)


@pytest.mark.parametrize("name", UNARY)
def test_a_scalar_gets_what_a_lane_gets(functions: ctypes.CDLL, name: str) -> None:
    x = _samples(1 << 12)
    lanes, scalars = _run(functions, name, x), _run(functions, name, x, vectors=False)
    # The compiler may contract products and sums in other places.
    np.testing.assert_allclose(scalars, lanes, rtol=4e-7, atol=3e-45)
