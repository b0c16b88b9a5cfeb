"""How each kind of reduction starts, takes a vector, joins vectors and ends, as C++ text."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.agents.drafter.codegen.functions import COMPUTE, CType, lane_type
from kernelwright.agents.drafter.values import Reduce


@dataclass(frozen=True)
class Accumulator:
    """The text of one reduction. `blocked`: vectors are folded into a wider total after each block."""

    value: Reduce
    name: str
    wide: bool
    """Whether totals across blocks are double although lanes are float."""

    @property
    def ctype(self) -> CType:
        """The type of the reduced values."""
        from kernelwright.agents.drafter.values import Reduce as _Reduce

        assert isinstance(self.value, _Reduce)
        if self.positional:
            assert self.value.operand is not None
            return COMPUTE[self.value.operand.value.dtype]
        return COMPUTE[self.value.dtype]

    @property
    def positional(self) -> bool:
        """argmax and argmin."""
        return self.value.kind in ("argmax", "argmin")

    @property
    def lane(self) -> str:
        """Element type of a partial vector."""
        return lane_type(self.ctype)

    @property
    def place(self) -> str:
        """Element type of positions: as wide as the values."""
        return "int64_t" if self.ctype in ("double", "int64_t") else "int32_t"

    @property
    def blocked(self) -> bool:
        """Whether rounding makes long chains inaccurate."""
        return self.value.kind in ("sum", "prod") and self.ctype in ("float", "double")

    @property
    def total(self) -> str:
        """Type of the total across blocks."""
        return "double" if self.wide and self.ctype == "float" and self.blocked else self.lane

    @property
    def neutral(self) -> str:
        """The value that changes nothing, as `lane`."""
        kind = self.value.kind
        if kind in {"sum", "any"}:
            return "0"
        if kind == "prod":
            return "1"
        if kind == "all":
            return "-1"
        largest = kind in ("max", "argmax")
        if self.ctype == "mask":
            return "-1" if not largest else "0"
        if self.ctype in ("float", "double"):
            infinity = "__builtin_inff()" if self.ctype == "float" else "__builtin_inf()"
            return f"-{infinity}" if largest else infinity
        bits = "64" if self.ctype == "int64_t" else "32"
        return f"INT{bits}_MIN" if largest else f"INT{bits}_MAX"

    def join(self, first: str, second: str) -> str:
        """Two partial results as one."""
        kind = self.value.kind
        if self.ctype == "mask":
            either = kind in ("any", "max", "sum")
            return f"({first} {'|' if either else '&'} {second})"
        if kind == "sum":
            return f"{first} + {second}"
        if kind == "prod":
            return f"{first} * {second}"
        name = "maximum" if kind == "max" else "minimum"
        return f"kw::{name}({first}, {second})"

    def lanes_joined(self, text: str) -> str:
        """The lanes of a vector as one number."""
        if self.ctype == "mask":
            either = self.value.kind in ("any", "max", "sum")
            return f"int32_t(kw::{'any' if either else 'all'}({text}) ? -1 : 0)"
        kind = {"sum": "sum", "prod": "prod", "max": "max", "min": "min"}[self.value.kind]
        return f"kw::reduce_{kind}({text})"

    @property
    def largest(self) -> str:
        """Template argument of `better`."""
        return "true" if self.value.kind == "argmax" else "false"
