"""The walk over the graph: each node through the table, or left to the library."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.agents.drafter.index import size
from kernelwright.agents.drafter.lowering import (  # noqa: F401  (each fills the table)
    contractions,
    creation,
    gathering,
    losses,
    normalization,
    pointwise,
    pooling,
    reductions,
    views,
)
from kernelwright.agents.drafter.lowering.registry import TABLE, Builder, Unsupported, materialised
from kernelwright.agents.drafter.values import LibraryCall, Program, Stored, Tensor, whole
from kernelwright.tasks.graph import Arg, Graph, ListArg, Node, ValueRef, ValueSpec

__all__ = ["Unsupported", "lower"]


def lower(graph: Graph) -> Program:
    """The tensor expressions of a graph."""
    inputs = {spec.name: _stored(spec) for spec in graph.inputs}
    constants = {c.spec.name: _stored(c.spec) for c in graph.constants}
    builder = Builder({name: whole(value) for name, value in {**inputs, **constants}.items()})
    program = Program(inputs, constants, [])
    for node in graph.nodes:
        builder.prefix = node.outputs[0].name if node.outputs else "node"
        results = _lowered(builder, node, program)
        for spec, result in zip(node.outputs, results, strict=False):
            if result is not None:
                builder.env[spec.name] = result
    program.outputs = [(name, builder.env[name]) for name in graph.outputs]
    return program


def _stored(spec: ValueSpec) -> Stored:
    return Stored(spec.name, spec.dtype, tuple(size(d) for d in spec.dims))


def _lowered(builder: Builder, node: Node, program: Program) -> Sequence[Tensor | None]:
    lowering = TABLE.get(node.op)
    if lowering is not None:
        try:
            result = lowering(builder, node)
        except Unsupported as reason:
            program.left.append(f"{node.op}: {reason}")
            return _library(builder, node)
        program.covered.append(node.op)
        return [result] if isinstance(result, Tensor) else result
    program.left.append(f"{node.op}: no kernel covers it")
    return _library(builder, node)


def _library(builder: Builder, node: Node) -> Sequence[Tensor | None]:
    arguments = tuple(materialised(builder, builder.env[name]).access for name in dict.fromkeys(_values(node)))
    return [
        whole(LibraryCall(spec.name, spec.dtype, tuple(size(d) for d in spec.dims), node, position, arguments))
        for position, spec in enumerate(node.outputs)
    ]


def _values(node: Node) -> list[str]:
    found: list[str] = []

    def visit(arg: Arg) -> None:
        if isinstance(arg, ValueRef):
            found.append(arg.name)
        elif isinstance(arg, ListArg):
            for item in arg.items:
                visit(item)

    for arg in (*node.args, *node.kwargs.values()):
        visit(arg)
    return found
