"""Tensors made from nothing: arange, full, zeros, ones, plain scalars."""

from __future__ import annotations

from kernelwright.agents.drafter.index import ZERO
from kernelwright.agents.drafter.lowering.registry import Builder, Unsupported, broadcast, converted, lowers
from kernelwright.agents.drafter.values import Tensor, axis_variables
from kernelwright.core.dtypes import DType
from kernelwright.tasks.graph import DimRef, LiteralArg, Node


@lowers("full.default", "full_like.default", "scalar_tensor.default", "new_full.default")
def _full(builder: Builder, node: Node) -> Tensor:
    position = {"aten.scalar_tensor.default": 0, "aten.new_full.default": 2}.get(node.op, 1)
    return _filled(builder, node, builder.argument(node, position, "fill_value"))


@lowers("zeros.default", "zeros_like.default", "new_zeros.default", "ones.default", "ones_like.default")
@lowers("new_ones.default", "empty_permuted.default", "empty.memory_format", "empty_like.default", "new_empty.default")
def _zeros_or_ones(builder: Builder, node: Node) -> Tensor:
    return _filled(builder, node, LiteralArg(value=1 if "ones" in node.op else 0))


def _filled(builder: Builder, node: Node, value: object) -> Tensor:
    spec = node.outputs[0]
    if isinstance(value, DimRef):
        scalar = builder.cast(builder.operand(value, spec.dtype), spec.dtype)
    elif isinstance(value, LiteralArg) and isinstance(value.value, bool | int | float):
        scalar = builder.scalar(converted(value.value, spec.dtype), spec.dtype)
    else:
        raise Unsupported("a fill value that is not a number")
    return broadcast(scalar, builder.output_shape(node))


@lowers("arange.start_step", "arange.default", "arange.start")
def _arange(builder: Builder, node: Node) -> Tensor:
    spec, shape = node.outputs[0], builder.output_shape(node)
    start, step = ZERO, 1
    if node.op != "aten.arange.default":
        start = builder.extent(node.args[0])
        step = builder.integer(node, 2, "step", 1)
    (place,) = axis_variables(shape)
    dtype = spec.dtype
    positions = builder.position(place * step + start, shape, DType.INT64)
    return builder.cast(positions, dtype)


@lowers("tril.default", "triu.default")
def _triangle(builder: Builder, node: Node) -> Tensor:
    tensor = builder.tensor(node, 0)
    diagonal = builder.integer(node, 1, "diagonal", 0)
    *_, row, column = axis_variables(tensor.shape)
    distance = builder.position(column - row, tensor.shape)
    test = builder.map("le" if "tril" in node.op else "ge", DType.BOOL, distance, builder.scalar(diagonal, DType.INT64))
    return builder.map("where", tensor.dtype, test, tensor, builder.scalar(converted(0, tensor.dtype), tensor.dtype))
