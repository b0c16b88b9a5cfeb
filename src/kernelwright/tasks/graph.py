"""`Graph`: the reference as core ATen operations. Pure data, so that no proposer needs torch or the user's file.

Made inside the sandbox by `tasks.tracing` from torch.export with the task's axes as dynamic dimensions.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from kernelwright.core.dimensions import Dim
from kernelwright.core.dtypes import DType
from kernelwright.core.records import Record


class ValueRef(Record):
    """The value of an input, a constant or an earlier node."""

    kind: Literal["value"] = "value"
    name: str


class DimRef(Record):
    """A size, or an expression over the axes, used as an argument."""

    kind: Literal["dim"] = "dim"
    expression: Dim


class LiteralArg(Record):
    """A plain argument: number, flag, string (dtype, memory format) or None."""

    kind: Literal["literal"] = "literal"
    value: bool | int | float | str | None

    @field_validator("value")
    @classmethod
    def _read_non_finite(cls, value: bool | int | float | str | None) -> bool | int | float | str | None:
        """JSON holds infinities and NaN as words; no argument of an ATen operation is called so."""
        return float(value) if isinstance(value, str) and value in {"NaN", "Infinity", "-Infinity"} else value


class ListArg(Record):
    """A list argument."""

    kind: Literal["list"] = "list"
    items: tuple[Arg, ...]


Arg = Annotated[ValueRef | DimRef | LiteralArg | ListArg, Field(discriminator="kind")]
ListArg.model_rebuild()


class ValueSpec(Record):
    """Name, element type and shape of one value in the graph."""

    name: str
    dtype: DType
    dims: tuple[Dim, ...]


class Node(Record):
    """One ATen operation."""

    op: str
    """Overload name, such as `aten.add.Tensor`."""
    args: tuple[Arg, ...]
    kwargs: dict[str, Arg] = {}
    outputs: tuple[ValueSpec, ...]
    """Several for operations that return a tuple (`aten.max.dim`); `operator.getitem` is resolved away.
    A result that nobody uses still has its place here."""


class Constant(Record):
    """A small tensor that the reference holds (at most 1 MiB), little-endian, C order, base64."""

    spec: ValueSpec
    data_base64: str


class Graph(Record):
    """A straight-line program. Inputs are named as `Task.kernel_inputs`; nodes are in topological order."""

    inputs: tuple[ValueSpec, ...]
    constants: tuple[Constant, ...] = ()
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    """Names of the values that are returned, in the order of `Task.outputs` (an input's name if it is returned as is)."""
    static_axes: tuple[str, ...] = ()
    """Axes that the trace had to fix at their default size; sizes in it are right for that size only."""
