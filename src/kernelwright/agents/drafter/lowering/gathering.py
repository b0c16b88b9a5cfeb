"""Reads at computed positions: embedding, gather, index_select, advanced indexing."""

from __future__ import annotations

from kernelwright.agents.drafter.index import ZERO, Atom, Expr, of_atom
from kernelwright.agents.drafter.lowering.registry import (
    Builder,
    Unsupported,
    broadcast,
    broadcast_shape,
    lowers,
    viewed,
)
from kernelwright.agents.drafter.values import Shape, Tensor, axis_variables
from kernelwright.core.dtypes import DType
from kernelwright.tasks.graph import ListArg, LiteralArg, Node, ValueRef


def element(tensor: Tensor, extent: Expr | None = None) -> Expr:
    """An integer tensor's value at its own canonical index, as an index expression; negative counts from `extent`."""
    read = of_atom(Atom("element", args=tensor.access.index, source=tensor.value))
    return read if extent is None else of_atom(Atom("wrap", args=(read, extent)))


@lowers("embedding.default")
def _embedding(builder: Builder, node: Node) -> Tensor:
    table, places = builder.tensor(node, 0), builder.tensor(node, 1)
    shape = (*places.shape, table.shape[1])
    column = axis_variables(shape)[-1]
    return viewed(table, shape, [element(places), column])


@lowers("index_select.default")
def _index_select(builder: Builder, node: Node) -> Tensor:
    tensor, places = builder.tensor(node, 0), builder.tensor(node, 2)
    axis = builder.integer(node, 1, "dim", 0) % len(tensor.shape)
    shape = builder.output_shape(node)
    positions = list(axis_variables(shape))
    positions[axis] = _along(places, positions[axis], shape)
    return viewed(tensor, shape, positions)


def _along(places: Tensor, position: Expr, shape: Shape) -> Expr:
    if not places.shape:
        return element(places)
    return element(viewed(places, shape, [position]))


@lowers("gather.default")
def _gather(builder: Builder, node: Node) -> Tensor:
    tensor, places = builder.tensor(node, 0), builder.tensor(node, 2)
    axis = builder.integer(node, 1, "dim", 0) % max(len(tensor.shape), 1)
    positions = list(axis_variables(places.shape))
    positions[axis] = element(places)
    return viewed(tensor, places.shape, positions)


@lowers("index.Tensor")
def _index(builder: Builder, node: Node) -> Tensor:
    tensor, arg = builder.tensor(node, 0), node.args[1]
    if not isinstance(arg, ListArg):
        raise Unsupported("its positions are not a list")
    places: list[Tensor | None] = []
    for item in arg.items:
        if isinstance(item, ValueRef):
            places.append(builder.env[item.name])
        elif isinstance(item, LiteralArg) and item.value is None:
            places.append(None)
        else:
            raise Unsupported("a position that is neither tensor nor None")
    places += [None] * (len(tensor.shape) - len(places))
    given = [a for a, p in enumerate(places) if p is not None]
    if any(p is not None and p.dtype in (DType.BOOL, DType.UINT8) for p in places):
        raise Unsupported("a mask as index")
    if given != list(range(given[0], given[-1] + 1)):
        raise Unsupported("positions that are not next to each other")
    common = broadcast_shape([p.shape for p in places if p is not None])
    shape = (*tensor.shape[: given[0]], *common, *tensor.shape[given[-1] + 1 :])
    variables = axis_variables(shape)
    inner = variables[given[0] : given[0] + len(common)]
    positions: list[Expr] = []
    for axis, place in enumerate(places):
        if place is None:
            shift = 0 if axis < given[0] else len(common) - len(given)
            positions.append(variables[axis + shift] if variables else ZERO)
        else:
            seen = viewed(broadcast(place, common), shape, list(inner))
            positions.append(element(seen, tensor.shape[axis]))
    return viewed(tensor, shape, positions)
