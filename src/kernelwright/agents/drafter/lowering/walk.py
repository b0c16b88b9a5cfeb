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


def lower(graph: Graph, output_names: Sequence[str] = ()) -> Program:
    """The tensor expressions of a graph; its outputs are called `output_names` where given, else as in the graph."""
    inputs = {spec.name: _stored(spec) for spec in graph.inputs}
    constants = {c.spec.name: _stored(c.spec) for c in graph.constants}
    builder = Builder({name: whole(value) for name, value in {**inputs, **constants}.items()})
    program = Program(inputs, constants, [])
    needed = _needed(graph)
    for node in graph.nodes:
        if not any(spec.name in needed for spec in node.outputs):
            continue
        builder.prefix = node.outputs[0].name
        results = list(_lowered(builder, node, program))
        missing = [i for i, spec in enumerate(node.outputs) if spec.name in needed and _absent(results, i)]
        if missing:
            program.left.append(f"{node.op}: no kernel makes its result {missing[0] + 1}")
            results = list(_library(builder, node))
        for spec, result in zip(node.outputs, results, strict=False):
            if result is not None:
                builder.env[spec.name] = result
    names = output_names or graph.outputs
    program.outputs = [(name, builder.env[made]) for name, made in zip(names, graph.outputs, strict=True)]
    return program


def _needed(graph: Graph) -> set[str]:
    """Values that the outputs depend on."""
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        if any(spec.name in needed for spec in node.outputs):
            needed.update(_values(node))
    return needed


def _absent(results: Sequence[Tensor | None], position: int) -> bool:
    return position >= len(results) or results[position] is None


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
        except (ValueError, LookupError, TypeError, AssertionError) as error:
            # A use of the operation that its lowering does not foresee costs speed, never the draft.
            program.left.append(f"{node.op}: its lowering failed: {error}")
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
