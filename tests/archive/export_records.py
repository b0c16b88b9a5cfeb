"""Tasks with hand-written kernels, verified on paper, for the tests of the export."""

from __future__ import annotations

import textwrap
from pathlib import Path

from kernelwright.core.dtypes import DType
from kernelwright.judge.evaluation import Check, Passed, Speed, WorkloadTiming
from kernelwright.platforms.candidates import BufferSpec, Candidate, KernelStep, LibraryStep, Plan
from kernelwright.platforms.detect import detect_device
from kernelwright.tasks.graph import ValueRef
from kernelwright.tasks.model import Axis, ScalarSpec, Task, TaskSource, TensorSpec, Workload

F32 = DType.FLOAT32
FUNCTION = """
import torch
from kernelwright.tasks import operation

@operation(x="float32[B, N]", y="float32[N]", workloads=[{"B": 8, "N": 16}])
def scaled(x, y, factor=2.0):
    return x * factor + y
"""
MODULE = """
import torch

class Model(torch.nn.Module):
    def __init__(self, features, offset=0.0):
        super().__init__()
        self.norm = torch.nn.Module()
        self.norm.weight = torch.nn.Parameter(torch.randn(features))
        self.register_buffer("shift", torch.randn(features))
        self.offset = offset

    def forward(self, x):
        return x * self.norm.weight + self.shift + self.offset

def get_inputs():
    return [torch.randn(8, 16)]

def get_init_inputs():
    return [16]
"""
PRODUCT = """
import torch

def product(a, b):
    return torch.relu(a @ b), (a @ b).sum()
"""
ELEMENTWISE = """
#include "kernelwright.h"
extern "C" int32_t kernelwright_run(const kw_tensor* in, int32_t, kw_tensor* out, int32_t, void*, int32_t threads) {{
    const int64_t rows = in[0].shape[0], columns = in[0].shape[1];
    if (columns > 4096) return KW_UNSUPPORTED;
    const float* x = (const float*)in[0].data;
    float* to = (float*)out[0].data;
#pragma omp parallel for num_threads(threads)
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) to[r * columns + c] = {formula};
    return KW_OK;
}}
"""


def source(path: Path, attribute: str, text: str, kind: str) -> TaskSource:
    """A task's file in a folder."""
    return TaskSource(kind=kind, path=str(path), attribute=attribute, text=textwrap.dedent(text))


def axes(*names: str) -> tuple[Axis, ...]:
    """Declared axes, 8, 16, … by default."""
    return tuple(Axis(name=n, origin="declared", default=8 * (i + 1)) for i, n in enumerate(names))


def passed(task: Task, candidate: Candidate, *bindings: dict[str, int], specialised: bool = False) -> Passed:
    """A verdict with one check for each binding, and one on a hidden size."""
    checks = [Check(workload=f"w{i}", axes=b, distribution="own", passed=True) for i, b in enumerate(bindings)]
    hidden = [Check(workload="h", axes={}, distribution="own", hidden=True, passed=True)] if not specialised else []
    timing = WorkloadTiming(
        workload="w0",
        axes=bindings[0],
        baseline="eager",
        candidate_us=(1.0, 1.1, 1.2),
        baseline_us=(2.0, 2.2, 2.4),
        speedup=2.0,
        speedup_ci=(1.9, 2.1),
        roofline_us=0.5,
        roofline_fraction=0.45,
        bound="memory",
        moved_bytes=1024,
        operations=256,
    )
    speed = Speed(
        verdict="faster",
        speedup=2.0,
        speedup_ci=(1.9, 2.1),
        roofline_fraction=0.45,
        workloads=(timing,),
        clock="perf_counter_ns, warm heap",
    )
    return Passed(
        candidate=candidate.id,
        task=task.id,
        device=detect_device(measure=False).id,
        speed=speed,
        checks=(*checks, *hidden),
        specialised=specialised,
    )


def function_task(folder: Path) -> Task:
    """scaled(x, y, factor) = x * factor + y over float32[B, N]."""
    return Task(
        name="scaled",
        source=source(folder / "scaled.py", "scaled", FUNCTION, "function"),
        arguments=(
            TensorSpec(name="x", dtype=F32, dims=("B", "N")),
            TensorSpec(name="y", dtype=F32, dims=("N",)),
            ScalarSpec(name="factor", value=2.0),
        ),
        outputs=(TensorSpec(name="out", dtype=F32, dims=("B", "N"), role="output"),),
        axes=axes("B", "N"),
        workloads=(Workload(name="w0", axes={"B": 8, "N": 16}, timed=True),),
    )


def function_kernel() -> Candidate:
    """A right kernel for `function_task`."""
    formula = "x[r * columns + c] * 2.0f + ((const float*)in[1].data)[c]"
    return Candidate(language="cpp", sources={"kernel.cpp": ELEMENTWISE.format(formula=formula)})


def module_task(folder: Path) -> Task:
    """x * norm.weight + shift over float32[B, 16]; the features are fixed by the constructor."""
    return Task(
        name="affine",
        source=source(folder / "affine.py", "Model", MODULE, "kernelbench"),
        arguments=(TensorSpec(name="x", dtype=F32, dims=("B", 16)),),
        state=(
            TensorSpec(name="norm.weight", dtype=F32, dims=(16,), role="parameter"),
            TensorSpec(name="shift", dtype=F32, dims=(16,), role="buffer"),
        ),
        outputs=(TensorSpec(name="out", dtype=F32, dims=("B", 16), role="output"),),
        axes=axes("B"),
        workloads=(Workload(name="w0", axes={"B": 8}, timed=True),),
    )


def module_kernel() -> Candidate:
    """A right kernel for `module_task`."""
    formula = "x[r * columns + c] * ((const float*)in[1].data)[c] + ((const float*)in[2].data)[c]"
    return Candidate(language="cpp", sources={"kernel.cpp": ELEMENTWISE.format(formula=formula)})


def product_task(folder: Path) -> Task:
    """(relu(a @ b), sum(a @ b)) over float32[M, K] and float32[K, N]."""
    return Task(
        name="product",
        source=source(folder / "product.py", "product", PRODUCT, "callable"),
        arguments=(
            TensorSpec(name="a", dtype=F32, dims=("M", "K")),
            TensorSpec(name="b", dtype=F32, dims=("K", "N")),
        ),
        outputs=(
            TensorSpec(name="out0", dtype=F32, dims=("M", "N"), role="output"),
            TensorSpec(name="out1", dtype=F32, dims=(), role="output"),
        ),
        returns_tuple=True,
        axes=axes("M", "K", "N"),
        workloads=(Workload(name="w0", axes={"M": 8, "K": 16, "N": 24}, timed=True),),
    )


def product_kernel() -> Candidate:
    """The product and the sum left to the library, the rest a kernel on its result."""
    formula = "x[r * columns + c] > 0 ? x[r * columns + c] : 0"
    plan = Plan(
        buffers=(BufferSpec(name="mm", dtype=F32, dims=("M", "N")),),
        steps=(
            LibraryStep(op="aten.mm.default", args=(ValueRef(name="a"), ValueRef(name="b")), outputs=("mm",)),
            KernelStep(entry="kernelwright_run", inputs=("mm",), outputs=("out0",)),
            LibraryStep(op="aten.sum.default", args=(ValueRef(name="mm"),), outputs=("out1",)),
        ),
    )
    return Candidate(language="cpp", sources={"kernel.cpp": ELEMENTWISE.format(formula=formula)}, plan=plan)


PYTHON_KERNEL = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, features, offset=0.0):
        super().__init__()
        self.norm = torch.nn.Module()
        self.norm.weight = torch.nn.Parameter(torch.zeros(features))
        self.register_buffer("shift", torch.zeros(features))

    def forward(self, x):
        return torch.addcmul(self.shift, x, self.norm.weight)
"""


def python_kernel() -> Candidate:
    """A right kernel for `module_task` written in Python."""
    return Candidate(language="python", sources={"kernel.py": PYTHON_KERNEL}, entry="kernel.py")
