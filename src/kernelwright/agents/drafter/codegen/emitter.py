"""Prints values as C++ statements, each at the outermost loop that knows all it needs.

A stack of blocks mirrors the loop nest: block 0 is the kernel, the last one the body. One loop variable, the lane variable,
is walked in vectors; whatever depends on it is a vector, the rest are plain numbers computed further out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from kernelwright.agents.drafter.codegen.functions import (
    BITWISE,
    COMPARE,
    COMPUTE,
    INFIX,
    LOGICAL,
    CType,
    call,
    constant,
    lane_type,
)
from kernelwright.agents.drafter.fusion import Index, mapped
from kernelwright.agents.drafter.index import BACK, ONE, Atom, Expr, coefficient, flatten, render
from kernelwright.agents.drafter.values import Access, Guarded, Map, Position, Scalar, Scan, Value, display_name
from kernelwright.core.dtypes import DType

_MIXES = frozenset({*INFIX, *COMPARE, *BITWISE, *LOGICAL})
"""Functions whose C++ operators take a number beside a vector."""


class Operand(NamedTuple):
    """A printed value."""

    text: str
    ctype: CType
    depth: int
    lanes: bool
    literal: bool = False


@dataclass
class Block:
    """One level of the loop nest, while it is being written."""

    lines: list[str] = field(default_factory=list)
    variables: set[Atom] = field(default_factory=set)
    memo: dict[tuple[int, Index], Operand] = field(default_factory=dict)
    arrayed: bool = False
    """Vectors defined here are arrays over the U vectors of a tile."""


def vector(ctype: CType) -> str:
    """The C++ type of a vector of such values."""
    return f"kw::vec<{lane_type(ctype)}, W>"


class Emitter:
    """Prints the values of one kernel."""

    def __init__(self, pointers: dict[int, str], sizes: Callable[[Atom], str], used: set[str]) -> None:
        self.pointers = pointers
        self.sizes = sizes
        self.used = used
        self.blocks: list[Block] = [Block()]
        self.lane: Atom | None = None
        self.lane_depth = 0
        self.floor = 0
        self.names: dict[Atom, str] = {}
        self.results: dict[int, Operand] = {}
        """Finished reductions, by the identity of their value."""
        self.lines: dict[int, tuple[str, CType]] = {}
        """Finished reductions that lie in a line of memory, one for each column: its name and type."""
        self.column: Atom | None = None
        self.on_scan: Callable[[Scan, Index], Operand] | None = None
        self.kept: dict[tuple[int, Index], str] = {}
        """Values kept in a row buffer, by (value, index): the buffer's name."""
        self.kept_written: set[tuple[int, Index]] = set()
        self.kept_now: set[tuple[int, Index]] = set()
        self.inner_offset: Expr | None = None

    # Names and blocks

    def name(self, hint: str) -> str:
        """A C++ name that nothing else has."""
        base = re.sub(r"\W", "_", display_name(hint)).strip("_") or "value"
        if base[0].isdigit():
            base = f"v{base}"
        candidate, number = base, 1
        while candidate in self.used:
            candidate, number = f"{base}_{number}", number + 1
        self.used.add(candidate)
        return candidate

    @contextmanager
    def block(self, variables: set[Atom] | None = None, *, arrayed: bool = False) -> Iterator[Block]:
        """A level further in, for as long as the context is open."""
        inner = Block(variables=variables or set(), arrayed=arrayed)
        self.blocks.append(inner)
        try:
            yield inner
        finally:
            self.blocks.pop()

    def depth_of(self, variables: set[Atom]) -> int:
        """The block in which all of these loop variables are known."""
        return max((d for d, b in enumerate(self.blocks) if b.variables & variables), default=0)

    def define(self, text: str, ctype: CType, depth: int, lanes: bool, hint: str) -> Operand:
        """A new constant at `depth`."""
        depth = max(depth, self.floor, self.lane_depth if lanes else 0)
        if lanes and depth > self.lane_depth:
            depth = len(self.blocks) - 1
        name = self.name(hint)
        block = self.blocks[depth]
        if lanes and block.arrayed:
            each = f"each_vector<U>([&](int u) {{ {name}[u] = {text}; }});"
            block.lines += [f"{vector(ctype)} {name}[U];", each]
            return Operand(f"{name}[u]", ctype, depth, True)
        kind = vector(ctype) if lanes else "bool" if ctype == "mask" else ctype
        block.lines.append(f"const {kind} {name} = {text};")
        return Operand(name, ctype, depth, lanes)

    # Index expressions

    def integer(self, expression: Expr) -> tuple[str, int]:
        """An index expression as text, and the depth at which it is known."""
        depth = self.depth_of(expression.variables())

        def leaf(atom: Atom) -> str:
            nonlocal depth
            if atom.kind == "element":
                assert isinstance(atom.source, Value)
                operand = self.value(atom.source, atom.args)
                depth = max(depth, operand.depth)
                return operand.text if operand.ctype == "int64_t" else f"int64_t({operand.text})"
            if atom.kind == "wrap":
                place, where = self.integer(atom.args[0])
                extent, _ = self.integer(atom.args[1])
                depth = max(depth, where)
                return f"({place} < 0 ? {place} + {extent} : {place})"
            return self.names[atom] if atom.kind == "var" else self.sizes(atom)

        text = render(expression, leaf)
        return text, depth

    def depends_on_lane(self, *expressions: Expr) -> bool:
        """Whether any of these changes from lane to lane."""
        return self.lane is not None and any(self.lane in e.variables() for e in expressions)

    # Values

    def value(self, value: Value, index: Index) -> Operand:
        """The operand that is `value` at `index`, printed where it was not yet."""
        key = (id(value), index)
        for block in self.blocks:
            found = block.memo.get(key)
            if found is not None and (self.lane is not None or not found.lanes):
                return found
        operand = self._print(value, index)
        if not operand.literal:
            self.blocks[min(operand.depth, len(self.blocks) - 1)].memo[key] = operand
        return operand

    def _print(self, value: Value, index: Index) -> Operand:
        if id(value) in self.lines:
            return self._from_line(value)
        if id(value) in self.results:
            return self._result(self.results[id(value)])
        if id(value) in self.pointers:
            return self._load(value, index)
        if isinstance(value, Scalar):
            ctype = COMPUTE[value.dtype]
            return Operand(constant(value.number, ctype), ctype, 0, False, literal=True)
        if isinstance(value, Position):
            return self._position(value, index)
        if isinstance(value, Map):
            return self._map(value, index)
        if isinstance(value, Guarded):
            return self._guarded(value, index)
        if isinstance(value, Scan) and self.on_scan is not None and self.lane is not None:
            return self.on_scan(value, index)
        raise ValueError(f"{value.name} is not computed by this kernel")

    def _result(self, operand: Operand) -> Operand:
        if operand.lanes and self.lane is None:
            return Operand(f"{operand.text}[lane]", operand.ctype, len(self.blocks) - 1, False)
        return operand

    def _from_line(self, value: Value) -> Operand:
        line, ctype = self.lines[id(value)]
        assert self.column is not None
        place = f"{line} + {self.names[self.column]}"
        element = lane_type(ctype)
        if self.lane is None:
            return self.define(f"{element}(*({place}))", ctype, len(self.blocks) - 1, False, value.name)
        text = f"kw::cast<{element}>(read<W>({place}, lanes))"
        return self.define(text, ctype, self.lane_depth, True, value.name)

    def _load(self, value: Value, index: Index) -> Operand:
        offset = flatten(index, value.shape)
        pointer, ctype = self.pointers[id(value)], COMPUTE[value.dtype]
        if self.lane is None or not self.depends_on_lane(offset):
            place, depth = self.integer(offset)
            text = f"kw::load<1>({_sum(pointer, place)})"
            return self.define(_loaded(text, value.dtype), ctype, depth, False, value.name)
        step = coefficient(offset, self.lane)
        if step not in (ONE, BACK):
            return self._each_lane(value, index)
        place, depth = self.integer(offset)
        text = _loaded(f"{'read' if step == ONE else 'read_back'}<W>({_sum(pointer, place)}, lanes)", value.dtype)
        return self.define(text, ctype, depth, True, value.name)

    def _each_lane(self, value: Value, index: Index) -> Operand:
        """Computes lane by lane what no vector instruction loads."""
        lane, floor, ctype = self.lane, self.floor, COMPUTE[value.dtype]
        assert lane is not None
        outer_name = self.names[lane]
        inner_name = self.name(f"{outer_name}_lane")
        depth = len(self.blocks) - 1
        with self.block({lane}) as block:
            self.lane, self.floor = None, len(self.blocks) - 1
            self.names[lane] = inner_name
            result = self.value(value, index)
            self.lane, self.floor = lane, floor
            self.names[lane] = outer_name
        returned = f"int32_t({result.text}) * -1" if ctype == "mask" else result.text
        body = " ".join([f"const int64_t {inner_name} = {outer_name} + lane;", *block.lines, f"return {returned};"])
        text = f"each_lane<{lane_type(ctype)}, W>(lanes, [&](int64_t lane) {{ {body} }})"
        return self.define(text, ctype, depth, True, value.name)

    def _position(self, value: Position, index: Index) -> Operand:
        (expression,) = mapped(Access(value, (value.expression,)), value.shape, index)
        ctype = COMPUTE[value.dtype]
        if self.lane is None or not self.depends_on_lane(expression):
            text, depth = self.integer(expression)
            if expression.constant is not None:
                return Operand(constant(expression.constant, ctype), ctype, 0, False, literal=True)
            return self.define(text, ctype, depth, False, value.name)
        step = coefficient(expression, self.lane)
        if step is None or step.constant is None:
            return self._each_lane(value, index)
        text, depth = self.integer(expression)
        lanes = f"kw::iota<{ctype}, W>(0)"
        if step.constant != 1:
            lanes = f"{lanes} * {constant(step.constant, ctype)}"
        return self.define(f"{lanes} + {ctype}({text})", ctype, depth, True, value.name)

    def _map(self, value: Map, index: Index) -> Operand:
        key = (id(value), index)
        if key in self.kept_written and self.lane is not None and self.inner_offset is not None:
            place, depth = self.integer(self.inner_offset)
            return self.define(
                f"read<W>({self.kept[key]} + {place}, lanes)", COMPUTE[value.dtype], depth, True, value.name
            )
        operands = [self.value(a.value, mapped(a, value.shape, index)) for a in value.operands]
        lanes = any(o.lanes for o in operands)
        if value.function == "copy":
            return operands[0]
        texts = [self._beside(value.function, position, o, operands, lanes) for position, o in enumerate(operands)]
        text = call(value.function, value.dtype, operands[-1].ctype, texts)
        depth = max(o.depth for o in operands)
        result = self.define(text, COMPUTE[value.dtype], depth, lanes, value.name)
        if key in self.kept and lanes and self.inner_offset is not None:
            place, _ = self.integer(self.inner_offset)
            self.blocks[-1].lines.append(f"write({self.kept[key]} + {place}, {result.text}, lanes);")
            self.kept_now.add(key)
        return result

    def _beside(self, function: str, position: int, operand: Operand, operands: list[Operand], lanes: bool) -> str:
        """An operand's text, widened to a vector where its neighbours are vectors and the function needs it."""
        if not lanes or operand.lanes:
            return operand.text
        if function == "where" and position == 0:
            return f"kw::splat<int32_t, W>({operand.text} ? -1 : 0)"
        mixes = function in _MIXES and operand.ctype != "mask" and any(o.lanes for o in operands)
        if mixes:
            return operand.text
        return widened(operand)

    def _guarded(self, value: Guarded, index: Index) -> Operand:
        bounds = [mapped(Access(value, bound), value.shape, index) for bound in value.bounds]
        assert value.inside is not None
        assert value.outside is not None
        if self.depends_on_lane(*(e for bound in bounds for e in bound)):
            return self._each_lane(value, index)
        ctype = COMPUTE[value.dtype]
        inside, outside = (mapped(a, value.shape, index) for a in (value.inside, value.outside))
        lanes = self.depends_on_lane(*index)
        depth = len(self.blocks) - 1
        otherwise = self._in_branch(value.outside.value, outside, lanes)
        within = self._in_branch(value.inside.value, inside, lanes)
        test = " && ".join(self._tests(bounds)) or "true"
        name = self.name(value.name)
        kind = vector(ctype) if lanes else "bool" if ctype == "mask" else ctype
        lines = [f"{kind} {name};", f"if ({test}) {{", *_assigned(within, name), "} else {"]
        self.blocks[depth].lines += [*lines, *_assigned(otherwise, name), "}"]
        return Operand(name, ctype, depth, lanes)

    def _tests(self, bounds: list[Index]) -> Iterator[str]:
        for expression, low, high in bounds:
            place, _ = self.integer(expression)
            lower, _ = self.integer(low)
            upper, _ = self.integer(high)
            yield f"{place} >= {lower} && {place} < {upper}"

    def _in_branch(self, value: Value, index: Index, lanes: bool) -> tuple[list[str], str]:
        """Lines and result of a value that is computed in a branch only."""
        floor = self.floor
        with self.block() as block:
            self.floor = len(self.blocks) - 1
            result = self.value(value, index)
            self.floor = floor
        return block.lines, widened(result) if lanes and not result.lanes else result.text


def widened(operand: Operand) -> str:
    """A plain number as a vector."""
    if operand.ctype == "mask":
        return f"kw::splat<int32_t, W>({operand.text} ? -1 : 0)"
    return f"kw::splat<{operand.ctype}, W>({operand.text})"


def _assigned(branch: tuple[list[str], str], name: str) -> list[str]:
    lines, result = branch
    return [*(f"    {line}" for line in lines), f"    {name} = {result};"]


def _sum(pointer: str, place: str) -> str:
    return pointer if place == "0" else f"{pointer} + {place}"


def _loaded(text: str, dtype: DType) -> str:
    """A load as its compute type."""
    if dtype in (DType.INT16, DType.INT8, DType.UINT8):
        return f"kw::cast<int32_t>({text})"
    if dtype is DType.BOOL:
        return f"kw::cast<int32_t>({text}) != 0"
    return text


def storable(operand: Operand, dtype: DType) -> str:
    """What to hand to `write` for a tensor of `dtype`."""
    if dtype is DType.BOOL:
        return f"kw::to_bool({operand.text})"
    return operand.text
