"""Matrix products against float64: shapes, strides, batches, threads, types, schedules, prologues and epilogues."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.core.dtypes import DType
from kernelwright.platforms.device import Device
from kernelwright.platforms.languages.cpp.library import (
    MATMUL_INCLUDES,
    matmul_parameters,
    matmul_schedule,
    matmul_workspace,
)

Compile = Callable[..., ctypes.CDLL]

# The prologue on a is 2 v + row - k / 8 (element by element), on b it is v + 1 (in lanes); the epilogue adds a bias and
# counts its visits, so that a result written twice or not at all shows.
SOURCE = (
    "".join(f'#include "{name}"\n' for name in MATMUL_INCLUDES)
    + """
typedef SCHEDULE S;
typedef S::type T;
extern "C" int64_t workspace(int threads, int64_t batch, int64_t m, int64_t n, int64_t k) { return WORKSPACE; }
struct shifted {
    T operator()(T v, int64_t row, int64_t k) const { return T(2) * v + T(row) - T(k) / T(8); }
};
struct raised {
    static constexpr bool takes_lanes = true;
    template <class V> V operator()(V v, int64_t, int64_t) const { return v + T(1); }
};
extern "C" void product(int threads, int64_t batch, int64_t m, int64_t n, int64_t k, const ELEMENT* a, const int64_t* sa,
                        const ELEMENT* b, const int64_t* sb, const T* bias, T* out, int32_t* visits, void* scratch,
                        int prologue) {
    auto epilogue = [=](kw::vec<T, S::W> v, int64_t row, int64_t column, int lanes, int64_t index) {
        int64_t at = (index * m + row) * n + column;
        kw::store_partial(out + at, v + kw::load_partial<S::W>(bias + column, lanes), lanes);
        for (int i = 0; i < lanes; ++i) __atomic_fetch_add(visits + at + i, 1, __ATOMIC_RELAXED);
    };
    kw::matmul_shape shape{batch, m, n, k};
    kw::operand<ELEMENT> left{a, sa[1], sa[2], sa[0]}, right{b, sb[1], sb[2], sb[0]};
    auto ask = [=](int64_t row, int64_t column, int64_t index) { kw::prefetch(out + (index * m + row) * n + column); };
    if (prologue) kw::matmul<S>(threads, shape, left, right, shifted(), raised(), kw::with_prefetch(epilogue, ask), scratch);
    else kw::matmul<S>(threads, shape, left, right, kw::as_stored(), kw::as_stored(), epilogue, scratch);
}
"""
)
TORCH = {"float": torch.float32, "double": torch.float64, "kw_bfloat16": torch.bfloat16, "kw_float16": torch.float16}
GUARD = 64


@dataclass(frozen=True)
class Product:
    """One compiled schedule."""

    library: ctypes.CDLL
    element: torch.dtype
    compute: torch.dtype

    def __call__(
        self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, *, threads: int, prologue: bool = False
    ) -> torch.Tensor:
        """`a @ b + bias` for [batch, m, k] and [batch, k, n]; checks visits and that scratch memory was not overrun."""
        (batch, m, k), n = a.shape, b.shape[2]
        long = ctypes.c_int64
        size = (threads, long(batch), long(m), long(n), long(k))
        self.library.workspace.restype = long
        needed = self.library.workspace(*size)
        scratch = torch.full((needed + 64 + GUARD,), 0x5A, dtype=torch.uint8)
        start = -scratch.data_ptr() % 64
        out = torch.full((batch, m, n), float("nan"), dtype=self.compute)
        visits = torch.zeros(batch, m, n, dtype=torch.int32)
        pointer = ctypes.c_void_p
        strides = [(long * 3)(*t.stride()) for t in (a, b)]
        self.library.product(
            *size, pointer(a.data_ptr()), strides[0], pointer(b.data_ptr()), strides[1], pointer(bias.data_ptr()),
            pointer(out.data_ptr()), pointer(visits.data_ptr()), pointer(scratch.data_ptr() + start), int(prologue),
        )  # fmt: skip
        assert bool((visits == 1).all()), "each result is finished exactly once"
        assert bool((scratch[start + needed :] == 0x5A).all()) and bool((scratch[:start] == 0x5A).all())
        return out


def _compile(compile_library: Compile, schedule: str, element: str = "float") -> Product:
    workspace = matmul_workspace(schedule, batch="batch", rows="m", columns="n", depth="k")
    source = SOURCE.replace("SCHEDULE", schedule, 1).replace("WORKSPACE", workspace).replace("ELEMENT", element)
    compute = torch.float64 if "double" in schedule else torch.float32
    return Product(compile_library(source), TORCH[element], compute)


def _operand(batch: int, rows: int, columns: int, layout: str, dtype: torch.dtype) -> torch.Tensor:
    if layout == "transposed":
        return torch.randn(batch, columns, rows).to(dtype).transpose(1, 2)
    if layout == "strided":
        return torch.randn(batch, rows, 2 * columns + 1).to(dtype)[:, :, :-1:2]
    if layout == "shared":
        return torch.randn(1, rows, columns).to(dtype).expand(batch, rows, columns)
    return torch.randn(batch, rows, columns).to(dtype)


def _check(product: Product, a: torch.Tensor, b: torch.Tensor, threads: int, prologue: bool = False) -> None:
    bias = torch.randn(b.shape[2], dtype=product.compute)
    got = product(a, b, bias, threads=threads, prologue=prologue)
    left, right = a.double(), b.double()
    if prologue:
        rows, ks = torch.arange(a.shape[1], dtype=torch.float64), torch.arange(a.shape[2], dtype=torch.float64)
        left, right = 2 * left + rows[:, None] - ks[None, :] / 8, right + 1
    true = left @ right + bias.double()
    # Bound on rounding in any order of summation, plus the prologue's own rounding.
    size = left.abs() @ right.abs() + bias.double().abs()
    allowed = torch.finfo(product.compute).eps * (a.shape[2] ** 0.5 + 8) * size
    assert bool(((got.double() - true).abs() <= allowed).all()), (
        f"largest excess {((got.double() - true).abs() - allowed).max()}"
    )
    again = product(a, b, bias, threads=threads, prologue=prologue)
    assert torch.equal(got, again), "the same threads give the same bits"


@pytest.fixture(scope="module")
def default_product(compile_library: Compile) -> Product:
    return _compile(compile_library, "kw::matmul_schedule<float>")


LAYOUTS = ("dense", "transposed", "strided", "shared")
SIZES = st.one_of(st.integers(1, 20), st.integers(1, 90), st.sampled_from([255, 256, 257, 513]))


@settings(max_examples=80, deadline=None)
@given(
    batch=st.integers(1, 3), m=SIZES, n=SIZES, k=st.one_of(st.integers(0, 40), st.sampled_from([384, 385, 1000, 2500])),
    layouts=st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)), threads=st.integers(1, 3), prologue=st.booleans(),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_product_of_any_shape_and_layout(
    default_product: Product,
    batch: int,
    m: int,
    n: int,
    k: int,
    layouts: tuple[str, str],
    threads: int,
    prologue: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    a, b = _operand(batch, m, k, layouts[0], torch.float32), _operand(batch, k, n, layouts[1], torch.float32)
    _check(default_product, a, b, threads, prologue)


@pytest.mark.parametrize(
    "shape", [(8, 4096, 300), (300, 5, 4096), (16, 16, 60000), (1, 1, 100000), (3, 64, 70001), (700, 900, 800)]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_skinny_deep_and_large_products(
    default_product: Product, shape: tuple[int, int, int], transposed: bool
) -> None:
    torch.manual_seed(1)
    m, n, k = shape
    layout = "transposed" if transposed else "dense"
    _check(default_product, _operand(1, m, k, "dense", torch.float32), _operand(1, k, n, layout, torch.float32), 2)


@pytest.mark.parametrize(
    ("element", "dtype"), [("double", DType.FLOAT64), ("kw_bfloat16", DType.BFLOAT16), ("kw_float16", DType.FLOAT16)]
)
def test_other_types(compile_library: Compile, device: Device, element: str, dtype: DType) -> None:
    torch.manual_seed(2)
    parameters = matmul_parameters(device, dtype)
    product = _compile(
        compile_library, matmul_schedule({p.name: p.default for p in parameters}, parameters, dtype), element
    )
    for m, n, k in ((33, 70, 129), (4, 100, 50), (100, 3, 500), (130, 140, 900)):
        for layouts in (("dense", "dense"), ("transposed", "transposed"), ("strided", "dense")):
            _check(
                product,
                _operand(2, m, k, layouts[0], product.element),
                _operand(2, k, n, layouts[1], product.element),
                2,
            )


def _sampled_schedules(device: Device, count: int) -> list[str]:
    parameters = matmul_parameters(device)
    rng = random.Random(11)
    return [matmul_schedule({p.name: rng.choice(p.values) for p in parameters}, parameters) for _ in range(count)]


def _check_schedule(compile_library: Compile, schedule: str) -> None:
    torch.manual_seed(3)
    product = _compile(compile_library, schedule)
    for m, n, k in ((1, 1, 1), (31, 47, 50), (150, 333, 800), (8, 500, 300), (64, 64, 5000), (1100, 70, 30)):
        for layout in LAYOUTS[:2]:
            _check(
                product,
                _operand(1, m, k, "dense", torch.float32),
                _operand(1, k, n, layout, torch.float32),
                2,
                prologue=m == 31,
            )


def test_a_few_sampled_schedules(compile_library: Compile, device: Device) -> None:
    for schedule in _sampled_schedules(device, 2):
        _check_schedule(compile_library, schedule)


@pytest.mark.slow
def test_many_sampled_schedules(compile_library: Compile, device: Device) -> None:
    for schedule in _sampled_schedules(device, 16):
        _check_schedule(compile_library, schedule)


@pytest.mark.parametrize("march", ["x86-64", "x86-64-v3"])
def test_narrower_instruction_sets(compile_library: Compile, device: Device, march: str) -> None:
    if device.architecture != "x86_64" or (march == "x86-64-v3" and device.simd == "sse"):
        pytest.skip(f"this machine does not run {march}")
    schedule = "kw::matmul_schedule<float>"
    workspace = matmul_workspace(schedule, batch="batch", rows="m", columns="n", depth="k")
    source = SOURCE.replace("SCHEDULE", schedule, 1).replace("WORKSPACE", workspace).replace("ELEMENT", "float")
    product = Product(compile_library(source, march), torch.float32, torch.float32)
    torch.manual_seed(4)
    for m, n, k in ((5, 7, 9), (70, 90, 500), (6, 100, 33), (100, 6, 33)):
        for layouts in (("dense", "dense"), ("transposed", "transposed"), ("strided", "strided")):
            _check(
                product,
                _operand(1, m, k, layouts[0], torch.float32),
                _operand(1, k, n, layouts[1], torch.float32),
                2,
                prologue=True,
            )
