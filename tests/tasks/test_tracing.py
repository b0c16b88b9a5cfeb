"""Graphs, run node by node at sizes that the trace never saw, against the reference itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernelwright.tasks.graph import DimRef, Graph, ListArg, LiteralArg
from kernelwright.tasks.hidden import hidden_workloads
from kernelwright.tasks.tracing import trace


def traced(task, reference) -> Graph:
    graph = trace(task, reference)
    assert isinstance(graph, Graph), graph
    return graph


def test_graph_computes_what_the_reference_does_at_unseen_sizes(every_task, run_graph):
    task, reference = every_task
    graph = traced(task, reference)
    assert graph.static_axes == ()
    assert [(s.name, s.dtype, s.dims) for s in graph.inputs] == [(s.name, s.dtype, s.dims) for s in task.kernel_inputs]
    assert Graph.from_json(graph.to_json()) == graph
    for workload in (*task.workloads, *hidden_workloads(task, np.random.default_rng(5))):
        inputs = reference.own_inputs(workload.axes)
        expected = reference.call(inputs)
        for ours, theirs in zip(run_graph(graph, [t.clone() for t in inputs], workload.axes), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5 if theirs.dtype is torch.float32 else 2e-2, atol=1e-5)


CASES = {
    "losses": "def f(x, y):\n    return F.mse_loss(x, y) + F.smooth_l1_loss(x, y) + F.huber_loss(x, y) + F.l1_loss(x, y)",
    "norms": "def f(x, y):\n    return F.layer_norm(x, x.shape[1:]) + F.rms_norm(y, (y.shape[1],))",
    "index": "def f(x, y):\n    return torch.where(x > 0, x, y).roll(1, 0), torch.argmax(x, 1), torch.topk(y, 3, 1).values",
    "pads": "def f(x, y):\n    return F.pad(x, (1, 2)), torch.stack([x, y], -1).flatten(1), x.T @ y",
    "scans": "def f(x, y):\n    return x.cumsum(1), x.logcumsumexp(0), torch.logsumexp(y, 0), x.var(1), torch.flip(y, (0,))",
    "masks": "def f(x, y):\n"
    "    m = torch.ones(x.shape[1], y.shape[1]).tril()\n    return (x.T @ y).masked_fill(m == 0, -9).softmax(1)",
    "halves": "def f(x, y):\n    a, b = torch.cat([x, y], 1).chunk(2, 1)\n    return F.silu(a) * b",
    "sizes": "def f(x, y):\n    return (x.sum(0) / x.shape[0]) * y.shape[1] + torch.arange(x.shape[1])",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_many_operations(name, task_of, run_graph):
    inputs = "\ndef get_inputs():\n    return [torch.randn(24, 40), torch.randn(24, 40)]\n"
    task, reference = task_of(CASES[name] + inputs)
    graph = traced(task, reference)
    for axes in ({a.name: a.default for a in task.axes}, {a.name: 11 + 2 * i for i, a in enumerate(task.axes)}):
        if graph.static_axes and any(
            axes[a] != next(x.default for x in task.axes if x.name == a) for a in graph.static_axes
        ):
            continue
        tensors = reference.own_inputs(axes)
        for ours, theirs in zip(run_graph(graph, tensors, axes), reference.call(tensors), strict=True):
            torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_operations_that_kernels_are_written_for_stay_whole(task_of):
    task, reference = task_of(
        "class Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.a, self.b, self.c = nn.LayerNorm(32), nn.GroupNorm(4, 8), nn.BatchNorm1d(8)\n"
        "    def forward(self, x):\n"
        "        h = self.c(self.b(self.a(x)))\n"
        "        return F.log_softmax(F.gelu(F.scaled_dot_product_attention(h, h, h).softmax(-1)), -1)\n"
        "def get_inputs():\n    return [torch.randn(5, 8, 32)]\n"
    )
    ops = [node.op for node in traced(task, reference).nodes]
    for whole in (
        "aten.native_layer_norm.default",
        "aten.native_group_norm.default",
        "aten._native_batch_norm_legit_no_training.default",
        "aten.scaled_dot_product_attention.default",
        "aten._softmax.default",
        "aten.gelu.default",
        "aten._log_softmax.default",
    ):
        assert whole in ops


def test_arguments_are_typed(task_of):
    task, reference = task_of(
        "def f(x, alpha):\n"
        "    low = torch.full((x.shape[0], 3), float('-inf'), dtype=x.dtype)\n"
        "    return torch.cat([x, low], 1) + alpha\n"
        "def get_inputs():\n    return [torch.randn(6, 20), 0.25]\n"
    )
    graph = Graph.from_json(traced(task, reference).to_json())
    full = next(n for n in graph.nodes if n.op.startswith("aten.full."))
    assert full.args == (ListArg(items=(DimRef(expression="M"), LiteralArg(value=3))), LiteralArg(value=float("-inf")))
    assert full.kwargs["dtype"] == LiteralArg(value="float32")
    assert any(LiteralArg(value=0.25) in n.args for n in graph.nodes)


def test_sizes_that_the_trace_fixes_are_listed(task_of):
    task, reference = task_of(
        "def f(x):\n    y = x\n    for _ in range(x.shape[0]):\n        y = y + 1\n    return y\n"
        "def get_inputs():\n    return [torch.randn(5, 64)]\n"
    )
    graph = traced(task, reference)
    assert graph.static_axes == ("M",)
    assert graph.inputs[0].dims == (5, "N")


def test_what_cannot_be_traced_says_why(task_of):
    task, reference = task_of(
        "def f(x):\n    return x * 2 if x.sum().item() > 0 else x - 1\ndef get_inputs():\n    return [torch.rand(4, 8)]\n"
    )
    reason = trace(task, reference)
    assert isinstance(reason, str)
    assert "data" in reason.lower()


def test_large_constants_are_not_carried(task_of):
    task, reference = task_of(
        "table = torch.randn(1024, 512)\ndef f(x):\n    return x @ table\ndef get_inputs():\n    return [torch.randn(4, 1024)]\n"
    )
    assert "constant tensor of 2097152 bytes" in str(trace(task, reference))
