"""The table of lowerings, and what every family needs to build expressions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernelwright.agents.drafter.index import ONE, ZERO, Atom, Expr, as_expr, size, substitute
from kernelwright.agents.drafter.values import (
    Access,
    Map,
    Position,
    Reduce,
    Scalar,
    Shape,
    Tensor,
    Value,
    axis_variables,
    whole,
)
from kernelwright.core.dtypes import DType
from kernelwright.tasks.graph import Arg, DimRef, ListArg, LiteralArg, Node, ValueRef

Result = Tensor | Sequence[Tensor | None]
Lowering = Callable[["Builder", Node], Result]
TABLE: dict[str, Lowering] = {}


class Unsupported(Exception):
    """This node, or this use of it, has no lowering; it stays with the library."""


def lowers(*operations: str) -> Callable[[Lowering], Lowering]:
    """Register the lowering of `aten.<operation>` (several names share one)."""

    def register(function: Lowering) -> Lowering:
        for operation in operations:
            TABLE[f"aten.{operation}"] = function
        return function

    return register


@dataclass
class Builder:
    """Values of the graph so far, and the constructors of new ones."""

    env: dict[str, Tensor]
    counter: itertools.count[int] = field(default_factory=itertools.count)
    softmaxes: dict[int, Tensor] = field(default_factory=dict)
    """For results of a softmax over the last dimension, by identity of the value: what it was taken of."""
    prefix: str = ""
    """Name of the node at work; new values are named after it."""

    def fresh(self, hint: str = "") -> str:
        """A new name, after the node at work: `node.hint.number` (see `display_name`)."""
        return f"{self.prefix}.{hint}.{next(self.counter)}"

    # Arguments

    def argument(self, node: Node, position: int, name: str = "") -> Arg | None:
        """The argument at `position`, or by `name`; None where it is absent."""
        if position < len(node.args):
            return node.args[position]
        return node.kwargs.get(name)

    def tensor(self, node: Node, position: int, name: str = "") -> Tensor:
        """A tensor argument."""
        found = self.optional_tensor(node, position, name)
        if found is None:
            raise Unsupported(f"argument {position} of {node.op} is not a tensor")
        return found

    def optional_tensor(self, node: Node, position: int, name: str = "") -> Tensor | None:
        """A tensor argument that may be None."""
        arg = self.argument(node, position, name)
        return self.env[arg.name] if isinstance(arg, ValueRef) else None

    def operand(self, arg: Arg | None, dtype: DType) -> Tensor:
        """A tensor, number or size as a tensor; plain numbers take `dtype`."""
        match arg:
            case ValueRef(name=name):
                return self.env[name]
            case LiteralArg(value=bool() | int() | float() as number):
                return self.scalar(number, dtype)
            case DimRef(expression=expression):
                return self.position(size(expression), ())
        raise Unsupported(f"not an operand: {arg}")

    def literal(
        self, node: Node, position: int, name: str, default: bool | int | float | str | None
    ) -> bool | int | float | str | None:
        """A plain argument, or its default."""
        arg = self.argument(node, position, name)
        if arg is None:
            return default
        if isinstance(arg, LiteralArg):
            return arg.value
        if isinstance(arg, DimRef) and isinstance(arg.expression, int):
            return arg.expression
        raise Unsupported(f"argument {name or position} of {node.op} is not a plain value")

    def number(self, node: Node, position: int, name: str, default: float) -> float:
        """A plain number."""
        value = self.literal(node, position, name, default)
        if isinstance(value, bool | int | float):
            return float(value)
        raise Unsupported(f"argument {name or position} of {node.op} is not a number")

    def integer(self, node: Node, position: int, name: str, default: int) -> int:
        """A plain integer."""
        value = self.literal(node, position, name, default)
        if isinstance(value, int):
            return int(value)
        raise Unsupported(f"argument {name or position} of {node.op} is not an integer")

    def flag(self, node: Node, position: int, name: str, default: bool = False) -> bool:
        """A plain flag."""
        return bool(self.literal(node, position, name, default))

    def dims(self, node: Node, position: int, name: str, rank: int) -> tuple[int, ...]:
        """A list of dimensions, normalised; absent, None or empty means all."""
        arg = self.argument(node, position, name)
        if isinstance(arg, LiteralArg) and isinstance(arg.value, int):
            return (arg.value % max(rank, 1),)
        if not isinstance(arg, ListArg) or not arg.items:
            return tuple(range(rank))
        return tuple(dict.fromkeys(_plain_int(item) % max(rank, 1) for item in arg.items))

    def integers(self, node: Node, position: int, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """A list of plain integers."""
        arg = self.argument(node, position, name)
        if arg is None:
            return default
        if isinstance(arg, ListArg):
            return tuple(_plain_int(item) for item in arg.items) or default
        return (_plain_int(arg),)

    def extent(self, arg: Arg | None) -> Expr:
        """A size argument."""
        if isinstance(arg, DimRef):
            return size(arg.expression)
        if isinstance(arg, LiteralArg) and isinstance(arg.value, int):
            return as_expr(arg.value)
        raise Unsupported(f"not a size: {arg}")

    def output_shape(self, node: Node, position: int = 0) -> Shape:
        """The traced shape of a result."""
        return tuple(size(d) for d in node.outputs[position].dims)

    # Construction

    def scalar(self, number: float | int | bool, dtype: DType) -> Tensor:
        """A number as a tensor without dimensions."""
        return whole(Scalar(self.fresh("c"), dtype, (), number))

    def position(self, expression: Expr, shape: Shape, dtype: DType = DType.INT64) -> Tensor:
        """An integer that is an expression over the canonical variables of `shape`."""
        return whole(Position(self.fresh("i"), dtype, shape, expression))

    def map(self, function: str, dtype: DType, *operands: Tensor, hint: str = "") -> Tensor:
        """An elementwise function; operands are broadcast against each other."""
        if function == "sub" and dtype.is_floating:
            operands = self._rounded_apart(*operands)
        shape = broadcast_shape([t.shape for t in operands])
        reads = tuple(broadcast(t, shape).access for t in operands)
        return whole(Map(self.fresh(hint), dtype, shape, function, reads))

    def _rounded_apart(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """A product from which a reduction of it is subtracted is rounded first, as in the reduction.

        Else the compiler joins product and difference, and the maximum minus itself is the rounding error instead of 0.
        """
        sides = []
        for side, other in ((first, second), (second, first)):
            value = side.value
            joins = isinstance(value, Map) and value.function == "mul" and _holds_reduction(other.value, 4)
            sides.append(self.map("rounded", side.dtype, side) if joins else side)
        return sides[0], sides[1]

    def cast(self, tensor: Tensor, dtype: DType) -> Tensor:
        """A conversion; nothing where the type is right already."""
        if tensor.dtype == dtype:
            return tensor
        value = tensor.value
        if isinstance(value, Scalar):
            return self.scalar(converted(value.number, dtype), dtype)
        return self.map("cast", dtype, tensor)


def _holds_reduction(value: Value, depth: int) -> bool:
    if isinstance(value, Reduce):
        return True
    operands = value.operands if isinstance(value, Map) else ()
    return depth > 0 and any(_holds_reduction(access.value, depth - 1) for access in operands)


def converted(number: float | int | bool, dtype: DType) -> float | int | bool:
    """A Python number as the element type holds it (without rounding)."""
    if dtype is DType.BOOL:
        return bool(number)
    return float(number) if dtype.is_floating else int(number)


def _plain_int(arg: Arg) -> int:
    if isinstance(arg, LiteralArg) and isinstance(arg.value, int):
        return int(arg.value)
    if isinstance(arg, DimRef) and isinstance(arg.expression, int):
        return arg.expression
    raise Unsupported(f"not a plain integer: {arg}")


def viewed(tensor: Tensor, shape: Shape, positions: Sequence[Expr]) -> Tensor:
    """`tensor` read at `positions` (over the canonical variables of the new `shape`)."""
    mapping: Mapping[Atom, Expr] = {
        old: new
        for variable, new in zip(axis_variables(tensor.shape), positions, strict=True)
        if (old := variable.single) is not None
    }
    index = tuple(substitute(i, mapping) for i in tensor.access.index)
    return Tensor(Access(tensor.value, index), shape, tensor.dtype)


def broadcast_shape(shapes: Sequence[Shape]) -> Shape:
    """The common shape under torch's broadcasting."""
    rank = max((len(s) for s in shapes), default=0)
    padded = [(ONE,) * (rank - len(s)) + tuple(s) for s in shapes]
    result: list[Expr] = []
    for sizes in zip(*padded, strict=True):
        wide = [s for s in sizes if s != ONE]
        if len({s.key for s in wide}) > 1:
            raise Unsupported(f"shapes that may not broadcast: {shapes}")
        result.append(wide[0] if wide else ONE)
    return tuple(result)


def broadcast(tensor: Tensor, shape: Shape) -> Tensor:
    """`tensor` expanded to `shape`."""
    if tensor.shape == shape:
        return tensor
    offset = len(shape) - len(tensor.shape)
    variables = axis_variables(shape)
    positions = [ZERO if s == ONE else variables[offset + axis] for axis, s in enumerate(tensor.shape)]
    return viewed(tensor, shape, positions)


def promoted(tensors: Sequence[tuple[DType, int, bool]]) -> DType:
    """torch's result type of operands given as (dtype, rank, is a plain number)."""

    def category(dtype: DType) -> int:
        return 2 if dtype.is_floating else 0 if dtype is DType.BOOL else 1

    levels = [
        [d for d, rank, number in tensors if not number and rank > 0],
        [d for d, rank, number in tensors if not number and rank == 0],
        [d for d, _, number in tensors if number],
    ]
    result: DType | None = None
    for level in levels:
        for dtype in _joined(level):
            if result is None or category(dtype) > category(result):
                result = dtype
    return result or DType.FLOAT32


_INTEGER_ORDER = [DType.BOOL, DType.INT8, DType.INT16, DType.INT32, DType.INT64]


def _joined(dtypes: Sequence[DType]) -> list[DType]:
    if not dtypes:
        return []
    floats = [d for d in dtypes if d.is_floating]
    if floats:
        widest = max(floats, key=lambda d: d.itemsize)
        mixed = {DType.FLOAT16, DType.BFLOAT16} <= set(floats) and widest.itemsize == 2
        return [DType.FLOAT32 if mixed else widest]
    if DType.UINT8 in dtypes:
        signed = [d for d in dtypes if d in _INTEGER_ORDER[1:]]
        if not signed:
            return [DType.UINT8]
        return [max([DType.INT16, *signed], key=_INTEGER_ORDER.index)]
    return [max(dtypes, key=_INTEGER_ORDER.index)]


def materialised(builder: Builder, tensor: Tensor) -> Tensor:
    """A tensor whose elements lie in memory in its own order, where a view does not."""
    if tensor.direct:
        return tensor
    return whole(Map(builder.fresh("copy"), tensor.dtype, tensor.shape, "copy", (tensor.access,)))
