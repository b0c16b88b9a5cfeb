"""Tensor expressions: what a graph means, before anything is said about loops.

Every value has a shape and an element type. Its dimensions have canonical index variables (`axis_variable`), and every
operand is an `Access`: another value, read at index expressions over those variables. Views are nothing but such indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from kernelwright.agents.drafter.index import ONE, ZERO, Expr, product, variable
from kernelwright.core.dtypes import DType
from kernelwright.tasks.graph import Node

Shape = tuple[Expr, ...]

ReduceKind = Literal["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"]
ScanKind = Literal["sum", "prod", "max", "min"]


def axis_variable(axis: int, extent: Expr) -> Expr:
    """The canonical index variable of dimension `axis`."""
    return variable(f"d{axis}", extent)


def window_variable(position: int, extent: Expr) -> Expr:
    """The canonical variable of the reduction dimension `position`."""
    return variable(f"r{position}", extent)


def axis_variables(shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """The canonical index of a tensor of `shape`; dimensions of size one are always at 0."""
    return _axis_variables(tuple(shape))


@lru_cache(maxsize=4096)
def _axis_variables(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return tuple(ZERO if extent == ONE else axis_variable(axis, extent) for axis, extent in enumerate(shape))


def display_name(name: str) -> str:
    """`node.hint.number` as people should see it."""
    node, *more = name.split(".")
    return f"{node}_{more[0]}" if more and more[0] else node


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor that some loop could compute. Compared by identity."""

    name: str
    dtype: DType
    shape: Shape

    @property
    def count(self) -> Expr:
        """Number of elements."""
        return product(self.shape)


@dataclass(frozen=True)
class Access:
    """`value` read at `index` (over the reader's own variables)."""

    value: Value
    index: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Stored(Value):
    """A tensor that exists in memory: an input or a constant of the graph."""


@dataclass(frozen=True, eq=False)
class Scalar(Value):
    """One number, known now."""

    number: float | int | bool = 0


@dataclass(frozen=True, eq=False)
class Position(Value):
    """An integer computed from the index (arange) or from sizes alone."""

    expression: Expr = ZERO


@dataclass(frozen=True, eq=False)
class Map(Value):
    """An elementwise function of its operands (names in `codegen.functions`)."""

    function: str = ""
    operands: tuple[Access, ...] = ()


@dataclass(frozen=True, eq=False)
class Guarded(Value):
    """`inside` where every `low <= expression < high`, else `outside`; `inside` is not read elsewhere."""

    bounds: tuple[tuple[Expr, Expr, Expr], ...] = ()
    inside: Access | None = None
    outside: Access | None = None


@dataclass(frozen=True, eq=False)
class Reduce(Value):
    """Combines `operand` over the variables r0, r1, … of `ranges`; arg-kinds give the first flattened position."""

    kind: ReduceKind = "sum"
    operand: Access | None = None
    ranges: Shape = ()
    layout: tuple[int, ...] = ()
    """For each dimension of the reduced tensor, in order: k >= 0 for kept dimension k, -1-j for reduction variable j."""


@dataclass(frozen=True, eq=False)
class Scan(Value):
    """Running combination of `operand` along `axis`."""

    kind: ScanKind = "sum"
    operand: Access | None = None
    axis: int = 0


@dataclass(frozen=True, eq=False)
class Contraction(Value):
    """A batched matrix product [batch.., m, n] = [batch.., m, k] @ [batch.., k, n]; operands live in memory."""

    left: Access | None = None
    right: Access | None = None
    inner: Expr = ONE


@dataclass(frozen=True, eq=False)
class Attention(Value):
    """softmax(scale * q k^T + mask) v over [batch, heads, length, width]; operands live in memory."""

    query: Access | None = None
    keys: Access | None = None
    content: Access | None = None
    mask: Access | None = None
    sizes: Shape = ()
    """Heads of keys, number of keys, width of queries and keys."""
    product: Contraction | None = None
    """Where set, `mask` is the whole score as an expression over this product of queries and keys."""
    causal: bool = False
    scale: float | None = None


@dataclass(frozen=True, eq=False)
class LibraryCall(Value):
    """One result of an operation that no kernel covers."""

    node: Node | None = None
    position: int = 0
    arguments: tuple[Access, ...] = ()


@dataclass(frozen=True)
class Tensor:
    """A graph value: a `Value` seen through a view. `index` is over the canonical variables of `shape`."""

    access: Access
    shape: Shape
    dtype: DType

    @property
    def value(self) -> Value:
        """What is looked at."""
        return self.access.value

    @property
    def direct(self) -> bool:
        """Whether the view is the identity."""
        return self.shape == self.value.shape and self.access.index == axis_variables(self.shape)


def whole(value: Value) -> Tensor:
    """The value itself as a tensor."""
    return Tensor(Access(value, axis_variables(value.shape)), value.shape, value.dtype)


@dataclass
class Program:
    """A lowered graph."""

    inputs: dict[str, Stored]
    constants: dict[str, Stored]
    outputs: list[tuple[str, Tensor]]
    covered: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
