"""The host that runs plans: sizes, steps, buffers, constants, library calls, errors. Real compiled kernels."""

from __future__ import annotations

import ast
import base64
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from kernelwright.platforms.candidates import KernelStep, LibraryStep, Plan  # noqa: E402
from kernelwright.platforms.languages.cpp import host  # noqa: E402
from kernelwright.platforms.languages.cpp.build import build  # noqa: E402
from kernelwright.tasks.graph import DimRef, ListArg, LiteralArg, ValueRef  # noqa: E402

SOURCE = """
#include "kernelwright.h"
static int64_t count(const kw_tensor& t) { int64_t n = 1; for (int i = 0; i < t.ndim; ++i) n *= t.shape[i]; return n; }
static int32_t scaled(const kw_tensor* in, kw_tensor* out, float factor) {
    const float* x = (const float*)in[0].data; float* y = (float*)out[0].data;
    for (int64_t i = 0; i < count(in[0]); ++i) y[i] = x[i] * factor;
    return KW_OK;
}
extern "C" int32_t kernelwright_run(const kw_tensor* in, int32_t inputs, kw_tensor* out, int32_t outputs,
                                    void*, int32_t threads) {
    if (inputs != 1 || outputs != 1) return 7;
    if (in[0].shape[0] == 13) return KW_UNSUPPORTED;
    if (in[0].shape[0] == 14) return -5;
    return scaled(in, out, (float)threads);
}
extern "C" int32_t twice(const kw_tensor* in, int32_t, kw_tensor* out, int32_t, void*, int32_t) { return scaled(in, out, 2.f); }
extern "C" int32_t added(const kw_tensor* in, int32_t, kw_tensor* out, int32_t, void* work, int32_t) {
    float* scratch = (float*)work;
    int64_t n = count(out[0]), c = in[1].shape[0];
    for (int64_t i = 0; i < n; ++i) scratch[i] = ((const float*)in[0].data)[i] + ((const float*)in[1].data)[i % c];
    for (int64_t i = 0; i < n; ++i) ((float*)out[0].data)[i] = scratch[i];
    return ((uintptr_t)work % 64) ? 9 : KW_OK;
}
extern "C" int64_t added_workspace_bytes(const kw_tensor*, int32_t, const kw_tensor* out, int32_t, int32_t) {
    return 4 * count(out[0]);
}
extern "C" int32_t described(const kw_tensor* in, int32_t, kw_tensor* out, int32_t, void*, int32_t) {
    int64_t* y = (int64_t*)out[0].data;
    y[0] = in[0].ndim; y[1] = in[0].dtype; y[2] = out[0].dtype; y[3] = in[0].strides[0]; y[4] = in[0].strides[1];
    return KW_OK;
}
"""
X = {"name": "x", "dtype": "float32", "dims": ["N", "C"]}
Y = {"name": "y", "dtype": "float32", "dims": ["N", "C"]}


@pytest.fixture(scope="module")
def library(device):
    result = build({"kernel.cpp": SOURCE}, device=device)
    assert result.kind == "built", result
    return str(result.path)


def compiled(library, steps=(), outputs=(Y,), threads=3, **plan):
    record = Plan(steps=tuple(steps), **plan).model_dump(mode="json")
    return host.CompiledPlan(library, record, [X], list(outputs), threads)


def test_an_empty_plan_is_one_call_with_everything(library):
    x = torch.randn(5, 4)
    (y,) = compiled(library)(x)
    assert torch.equal(y, x * 3)
    assert y.data_ptr() != x.data_ptr()
    strided = torch.randn(4, 5).t()
    assert torch.equal(compiled(library)(strided)[0], strided * 3)


def test_what_a_kernel_was_not_written_for_is_unsupported_and_other_codes_are_failures(library):
    plan = compiled(library)
    with pytest.raises(host.Unsupported, match="13"):
        plan(torch.randn(13, 2))
    with pytest.raises(host.KernelFailed, match="-5"):
        plan(torch.randn(14, 2))
    for wrong in ([torch.randn(5, 4).double()], [torch.randn(5)], [torch.randn(5, 4)] * 2, []):
        with pytest.raises(host.Unsupported):
            plan(*wrong)


def test_steps_buffers_constants_and_workspace_work_together(library):
    values = np.arange(4, dtype="<f4")
    plan = compiled(
        library,
        steps=[
            KernelStep(entry="twice", inputs=("x",), outputs=("b",)),
            LibraryStep(
                op="aten.sum.dim_IntList",
                args=(ValueRef(name="b"), ListArg(items=(LiteralArg(value=0),)), LiteralArg(value=True)),
                kwargs={"dtype": LiteralArg(value="float32")},
                outputs=("s",),
            ),
            LibraryStep(
                op="aten.expand.default",
                args=(ValueRef(name="s"), ListArg(items=(DimRef(expression="N"), DimRef(expression="C")))),
                outputs=("e",),
            ),
            KernelStep(entry="added", inputs=("e", "c"), outputs=("y",)),
        ],
        buffers=(
            {"name": "b", "dtype": "float32", "dims": ["N", "C"]},
            {"name": "e", "dtype": "float32", "dims": ["N", "C"]},
        ),
        constants=(
            {
                "spec": {"name": "c", "dtype": "float32", "dims": [4]},
                "data_base64": base64.b64encode(values.tobytes()).decode(),
            },
        ),
    )
    for rows in (3, 7):
        x = torch.randn(rows, 4)
        expected = (2 * x).sum(0, keepdim=True).expand(rows, 4) + torch.arange(4)
        assert torch.allclose(plan(x)[0], expected)


def test_a_library_view_of_an_input_becomes_memory_of_its_own(library):
    plan = compiled(
        library,
        steps=[LibraryStep(op="aten.t.default", args=(ValueRef(name="x"),), outputs=("y",))],
        outputs=({"name": "y", "dtype": "float32", "dims": ["C", "N"]},),
    )
    x = torch.randn(3, 5)
    (y,) = plan(x)
    assert y.is_contiguous()
    assert torch.equal(y, x.t())
    y.zero_()
    assert x.abs().sum() > 0


def test_descriptors_say_what_the_interface_says(library):
    plan = compiled(
        library,
        steps=[KernelStep(entry="described", inputs=("x",), outputs=("y",))],
        outputs=({"name": "y", "dtype": "int64", "dims": [5]},),
    )
    assert plan(torch.zeros(6, 9))[0].tolist() == [2, 1, 4, 9, 1]


def test_allocations_go_through_the_given_allocator(library):
    made = []

    def allocate(shape, dtype):
        made.append((shape, dtype))
        return torch.full(shape, 0, dtype=dtype)

    plan = host.CompiledPlan(library, {}, [X], [Y], 1, allocate)
    plan(torch.zeros(6, 9))
    assert made == [((6, 9), torch.float32)]


def test_an_entry_that_does_not_exist_is_said_when_the_plan_is_made(library):
    with pytest.raises(AttributeError, match="absent"):
        compiled(library, steps=[KernelStep(entry="absent", inputs=("x",), outputs=("y",))])


def test_calls_from_many_threads_do_not_mix(library):
    from concurrent.futures import ThreadPoolExecutor

    plan = compiled(library)
    inputs = [torch.full((64, 32), float(i)) for i in range(64)]
    with ThreadPoolExecutor(8) as pool:
        for x, (y,) in zip(inputs, pool.map(plan, inputs), strict=True):
            assert torch.equal(y, 3 * x)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 6))
def test_axes_are_found_from_sizes(a, b, k):
    dims = [["A", "B"], [f"{k}*A + 1"], ["max(A, B)", 3]]
    shapes = [(a, b), (k * a + 1,), (max(a, b), 3)]
    assert host.bind_axes(dims, shapes) == {"A": a, "B": b}
    assert host.bind_axes([[f"{k}*A"], ["A*B", "A"]], [(k * a,), (a * b, a)]) == {"A": a, "B": b}
    with pytest.raises(host.Unsupported):
        host.bind_axes(dims, [(a, b), (k * a + 2,), (max(a, b), 3)])


@given(st.lists(st.integers(0, 5), max_size=4))
def test_dense_strides_are_torchs(shape):
    assert host.dense_strides(shape) == torch.empty(shape).stride()


def test_the_file_stands_alone():
    imports = set()
    for node in ast.walk(ast.parse(Path(host.__file__).read_text())):
        if isinstance(node, ast.Import):
            imports |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imports.add((node.module or "").split(".")[0])
    assert imports - {"__future__", "torch"} <= set(sys.stdlib_module_names)
