"""Tasks made once for all tests of this folder."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernelwright.core.dimensions import evaluate_dim
from kernelwright.tasks.arrays import storage_dtype, to_torch
from kernelwright.tasks.graph import Arg, Graph
from kernelwright.tasks.loading import Reference, describe, instantiate
from kernelwright.tasks.model import Task
from kernelwright.tasks.request import TaskRequest

FILES = Path(__file__).parent / "files"
NAMES = sorted(p.stem for p in FILES.glob("*.py") if p.stem != "neighbour")
WORKLOADS = {"annotated": ("B=16,N=700",)}


@cache
def described(name: str) -> tuple[Task, Reference]:
    task = describe(TaskRequest(target=str(FILES / f"{name}.py"), workloads=WORKLOADS.get(name, ())))
    return task, instantiate(task)


@pytest.fixture(params=NAMES)
def every_task(request) -> tuple[Task, Reference]:
    return described(request.param)


@pytest.fixture
def task_named():
    return described


@pytest.fixture
def task_of(tmp_path):
    """A task from the text of a file; workloads and inputs as on the command line."""

    def make(text: str, *, inputs=(), workloads=(), name="op.py") -> tuple[Task, Reference]:
        path = tmp_path / name
        path.write_text("import torch\nfrom torch import nn\nimport torch.nn.functional as F\n" + text)
        task = describe(TaskRequest(target=str(path), inputs=inputs, workloads=workloads))
        return task, instantiate(task)

    return make


_WORDS = {
    "strided": torch.strided,
    "contiguous_format": torch.contiguous_format,
    "preserve_format": torch.preserve_format,
}


def _run_graph(graph: Graph, tensors: Any, axes: dict[str, int]) -> list[torch.Tensor]:
    """Each node is the ATen operation that it names; shapes are checked on the way."""
    values = dict(zip((s.name for s in graph.inputs), tensors, strict=True))
    for constant in graph.constants:
        data = np.frombuffer(base64.b64decode(constant.data_base64), storage_dtype(constant.spec.dtype))
        values[constant.spec.name] = to_torch(data.reshape(constant.spec.dims), constant.spec.dtype)

    def argument(arg: Arg, name: str = "") -> Any:
        match arg.kind:
            case "value":
                return values[arg.name]
            case "dim":
                return evaluate_dim(arg.expression, axes)
            case "list":
                return [argument(item) for item in arg.items]
        if name == "dtype" and arg.value is not None:
            return getattr(torch, arg.value)
        return _WORDS.get(arg.value, arg.value) if isinstance(arg.value, str) else arg.value

    for node in graph.nodes:
        target = torch.ops
        for part in node.op.split("."):
            target = getattr(target, part)
        keywords = {k: argument(a, k) for k, a in node.kwargs.items()}
        result = target(*(argument(a) for a in node.args), **keywords)
        results = result if isinstance(result, list | tuple) else [result]
        for spec, value in zip(node.outputs, results, strict=True):
            values[spec.name] = value
            if spec.dims != (0,):
                shape = tuple(evaluate_dim(d, axes) for d in spec.dims)
                assert tuple(value.shape) == shape, f"{node.op}: {spec} has shape {tuple(value.shape)} under {axes}"
                assert str(value.dtype) == f"torch.{spec.dtype}"
    return [values[name] for name in graph.outputs]


@pytest.fixture
def run_graph():
    return _run_graph
