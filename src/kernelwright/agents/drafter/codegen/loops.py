"""Writers of loop kernels: elementwise, rows (lanes along the row), columns (lanes across rows), and split reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernelwright.agents.drafter.codegen.accumulators import Accumulator
from kernelwright.agents.drafter.codegen.emitter import Emitter, Operand, storable, widened
from kernelwright.agents.drafter.codegen.functions import COMPUTE
from kernelwright.agents.drafter.fusion import Index, Root
from kernelwright.agents.drafter.index import BACK, ONE, Atom, Expr, coefficient, flatten
from kernelwright.agents.drafter.nest import Nest, offset_in, span
from kernelwright.agents.drafter.values import Reduce, Scan, display_name
from kernelwright.core.dtypes import DType
from kernelwright.platforms.candidates import ParameterValue


@dataclass(frozen=True)
class Scratch:
    """Bytes of workspace: `per_thread` multiplies by the number of threads."""

    name: str
    element: str
    count: Expr
    per_thread: bool = True
    bytes_text: str = ""
    """The number of bytes as text over the sizes and `threads`, in place of `count`."""


class LoopWriter:
    """What all writers share: names, pointers, stores."""

    def __init__(
        self,
        nest: Nest,
        pointers: Mapping[int, str],
        sizes: Callable[[Atom], str],
        used: set[str],
        values: Mapping[str, ParameterValue],
    ) -> None:
        self.nest = nest
        self.values = values
        self.outputs = {id(r.stored): pointers[id(r.stored)] for r in nest.roots}
        readable = {k: v for k, v in pointers.items() if k not in nest.own}
        self.emit = Emitter(readable, sizes, used)
        self.scratch: list[Scratch] = []
        self.unroll = int(values.get("unroll", 1))
        self.lanes = int(values.get("lanes", 16))

    # Shared pieces

    def extent(self, atoms: Sequence[Atom]) -> str:
        """Number of iterations of some loops, as text."""
        return self.emit.integer(span(atoms))[0]

    def bind(self, atoms: Sequence[Atom], flat: str) -> list[str]:
        """Names the loop variables whose row-major position is `flat`."""
        lines: list[str] = []
        for position, atom in enumerate(atoms):
            name = self.emit.name(atom.name)
            self.emit.names[atom] = name
            text = flat
            rest = atoms[position + 1 :]
            if rest:
                text = f"{flat} / ({self.extent(rest)})"
            if position:
                text = f"{text} % ({self.emit.integer(atom.extent)[0]})"
            lines.append(f"const int64_t {name} = {text};")
        return lines

    def address(self, root: Root) -> tuple[str, int]:
        """Where a root is stored."""
        place, depth = self.emit.integer(flatten(root.index, root.stored.shape))
        pointer = self.outputs[id(root.stored)]
        return (pointer if place == "0" else f"{pointer} + {place}"), depth

    def store(self, root: Root, operand: Operand) -> str:
        """The statement that stores a vector of a root."""
        address, _ = self.address(root)
        wide = operand if operand.lanes else Operand(widened(operand), operand.ctype, operand.depth, True)
        past = self.values.get("store") == "stream" and root.stored.dtype is not DType.BOOL
        text = storable(wide, root.stored.dtype)
        offset = flatten(root.index, root.stored.shape)
        step = ONE if self.emit.lane is None else coefficient(offset, self.emit.lane)
        if step == BACK:
            return f"write_back({address}, {text}, lanes);"
        if self.emit.lane is not None and step != ONE:
            return self._store_lanes(root, text, self.emit.lane)
        return f"{'write_past_cache' if past else 'write'}({address}, {text}, lanes);"

    def _store_lanes(self, root: Root, text: str, lane: Atom) -> str:
        """Lane by lane, where neighbours in the vector are no neighbours in memory."""
        name = self.emit.names[lane]
        self.emit.names[lane] = f"({name} + lane)"
        address, _ = self.address(root)
        self.emit.names[lane] = name
        element = f"lane_of({text}, lane)"
        return f"for (int64_t lane = 0; lane < count<W>(lanes); ++lane) kw::store({address}, {element});"

    def store_one(self, root: Root, operand: Operand) -> str:
        """The statement that stores one number of a root."""
        address, _ = self.address(root)
        return f"kw::store({address}, {stored_number(operand, root.stored.dtype)});"

    def streams(self) -> bool:
        """Whether stores go past the caches."""
        return self.values.get("store") == "stream"

    def is_element(self, root: Root) -> bool:
        """Whether a root has one value for each position in the row."""
        inner = set(self.nest.inner)
        return any(e.variables() & inner for e in root.index)

    def accumulators(self, level: int) -> list[Accumulator]:
        """The reductions that pass `level` makes."""
        wide = self.values.get("accumulate", "double") == "double"
        return [
            Accumulator(v, self.emit.name(v.name), wide)
            for v in self.nest.reductions()
            if self.nest.level(*self.nest.operand(v)) == level
        ]

    def levels(self) -> int:
        """Number of passes that make reductions."""
        return max((self.nest.level(*self.nest.operand(v)) + 1 for v in self.nest.reductions()), default=0)

    def row_position(self, value: Reduce) -> str:
        """The flattened position of the first lane, for argmax and argmin."""
        from kernelwright.agents.drafter.fusion import padded

        index = padded(self.nest.inner_index, value.ranges)
        return self.emit.integer(flatten(index, value.ranges))[0]


def stored_number(operand: Operand, dtype: DType) -> str:
    """One number as `kw::store` takes it."""
    if dtype is DType.BOOL:
        return f"uint8_t({operand.text} ? 1 : 0)"
    return f"{operand.ctype}({operand.text})" if operand.ctype != "mask" else operand.text


def indented(lines: Sequence[str], by: int = 1) -> list[str]:
    """Lines moved to the right."""
    return [("    " * by + line) if line else line for line in lines]


class ElementwiseWriter(LoopWriter):
    """One pass: every output element from the input elements it needs; lanes along one outer loop."""

    def write(self, lane: Atom) -> list[str]:
        """The kernel's statements."""
        others = [a for a in self.nest.outer if a != lane]
        emit = self.emit
        emit.lane, emit.lane_depth = lane, 2
        flat_name = emit.name("row")
        at = emit.name("i")
        emit.names[lane] = at
        head = self.bind(others, flat_name) if others else []
        with emit.block(set(others)) as row, emit.block({lane}) as body:
            for root in self.nest.roots:
                operand = emit.value(root.value, root.index)
                body.lines.append(self.store(root, operand))
            row_lines, body_lines = row.lines, body.lines
        step = [f"auto step = [&](int64_t {at}, int, auto lanes) __attribute__((always_inline)) {{"]
        step += [*indented(body_lines), "};"]
        extent = self.emit.integer(lane.extent)[0]
        if not others:
            return self._flat(emit.blocks[0].lines, [*row_lines, *step], extent)
        return self._rows(emit.blocks[0].lines, [*head, *row_lines, *step], flat_name, others, extent)

    def _flat(self, before: list[str], step: list[str], extent: str) -> list[str]:
        return [
            *before,
            f"kw::parallel_for(threads, {extent}, [&](int64_t begin, int64_t end, int) {{",
            *indented([*step, "sweep<W, U>(begin, end, step);"]),
            *(["    kw::stream_fence();"] if self.streams() else []),
            "}, W);",
        ]

    def _rows(self, before: list[str], body: list[str], flat: str, others: list[Atom], extent: str) -> list[str]:
        rows = self.extent(others)
        return [
            *before,
            f"kw::parallel_for(threads, {rows}, [&](int64_t begin, int64_t end, int) {{",
            f"    for (int64_t {flat} = begin; {flat} < end; ++{flat}) {{",
            *indented([*body, f"sweep<W, U>(0, {extent}, step);"], 2),
            "    }",
            *(["    kw::stream_fence();"] if self.streams() else []),
            "});",
        ]


class RowWriter(LoopWriter):
    """Each row in several passes while it stays in cache; lanes run along the row."""

    lane_range: tuple[str, str] = ("0", "")
    """Begin and end of the lane loop as text; an empty end is its extent."""
    flat_loops = False
    """Whether the row's other loops run flattened over [begin, end)."""

    def write(self, lane: Atom) -> list[str]:
        """The kernel's statements."""
        emit = self.emit
        emit.lane = lane
        row = emit.name("row")
        head = self.bind(self.nest.outer, row) if self.nest.outer else []
        with emit.block(set(self.nest.outer)) as block:
            levels = self.levels()
            self._keep(levels)
            for level in range(levels + 1):
                self._pass(level, lane, block.lines)
            for root in self.nest.roots:
                if not self.is_element(root):
                    block.lines.append(self.store_one(root, emit.value(root.value, root.index)))
            lines = [*head, *block.lines]
        rows = self.extent(self.nest.outer)
        for_rows = [f"for (int64_t {row} = begin; {row} < end; ++{row}) {{", *indented(lines), "}"]
        if self.streams():
            for_rows.append("kw::stream_fence();")
        return [*emit.blocks[0].lines, *self._parallel(rows, row, lines, for_rows)]

    def _parallel(self, rows: str, row: str, lines: list[str], for_rows: list[str]) -> list[str]:
        if self.values.get("schedule") != "dynamic":
            head = f"kw::parallel_for(threads, {rows}, [&](int64_t begin, int64_t end, int thread) {{"
            return [head, "    (void)thread;", *indented(for_rows), "});"]
        per = int(self.values.get("rows_per_block", 8))
        return [
            f"kw::parallel_blocks(threads, (({rows}) + {per - 1}) / {per}, [&](int64_t block, int thread) {{",
            "    (void)thread;",
            f"    const int64_t begin = block * {per}, end = smaller(begin + {per}, {rows});",
            *indented(for_rows),
            "});",
        ]

    def _keep(self, levels: int) -> None:
        if self.values.get("intermediate") != "store":
            return
        self.emit.inner_offset = offset_in(self.nest.inner)
        for value, index in self.nest.kept_values(levels):
            name = self.emit.name(f"{value.name}_row")
            element = "double" if COMPUTE[value.dtype] == "double" else "float"
            base = f"{name}_all"
            self.scratch.append(Scratch(base, element, span(self.nest.inner)))
            self.emit.kept[(id(value), index)] = name
            stride = self.emit.integer(span(self.nest.inner))[0]
            self.emit.blocks[-1].lines.append(f"{element}* const {name} = {base} + thread * ({stride});")

    def _pass(self, level: int, lane: Atom, lines: list[str]) -> None:
        accumulators = self.accumulators(level)
        roots = [
            r for r in self.nest.roots
            if self.is_element(r) and not isinstance(r.value, Reduce) and self.nest.level(r.value, r.index) == level
        ]  # fmt: skip
        if not accumulators and not roots:
            return
        emit = self.emit
        before: list[str] = []
        outer_loops = [a for a in self.nest.inner if a != lane]
        for atom in outer_loops:
            emit.names[atom] = emit.name(atom.name)
        at = emit.name("i")
        emit.names[lane] = at
        emit.on_scan = lambda value, index: self._scan(value, index, before)
        with emit.block(set(outer_loops)) as loops:
            emit.lane_depth = len(emit.blocks)
            with emit.block({lane}) as body:
                for accumulator in accumulators:
                    body.lines += self._take(accumulator)
                for root in roots:
                    body.lines.append(self.store(root, emit.value(root.value, root.index)))
                body_lines = body.lines
            loop_lines = loops.lines
        emit.kept_written |= emit.kept_now
        lines.append(f"// Pass {level + 1} over the row: {self._purpose(accumulators, roots)}")
        lines += [*before, *self._totals(accumulators)]
        lines += self._loops(outer_loops, loop_lines, body_lines, accumulators, lane=lane, at=at)
        lines += self._results(accumulators)

    def _purpose(self, accumulators: list[Accumulator], roots: list[Root]) -> str:
        made = [f"{a.value.kind} ({a.value.name})" for a in accumulators] + [
            f"store {display_name(r.stored.name)}" for r in roots
        ]
        return ", ".join(made) + "."

    def _take(self, accumulator: Accumulator) -> list[str]:
        value, index = self.nest.operand(accumulator.value)
        operand = self.emit.value(value, index)
        text = operand.text if operand.lanes else widened(operand)
        vector = f"kw::vec<{accumulator.lane}, W>"
        name = accumulator.name
        if accumulator.positional:
            place = f"kw::iota<{accumulator.place}, W>({accumulator.place}({self.row_position(accumulator.value)}))"
            masked = f"keep({place}, kw::splat<{accumulator.place}, W>(-1), lanes)"
            return [f"better<{accumulator.largest}>({text}, {masked}, {name}[u], {name}_place[u]);"]
        if accumulator.ctype == "mask":
            text = f"{vector}({text})"
        kept = f"keep({vector}({text}), kw::splat<{accumulator.lane}, W>({accumulator.neutral}), lanes)"
        return [f"{name}[u] = {accumulator.join(f'{name}[u]', kept)};"]

    def _totals(self, accumulators: list[Accumulator]) -> list[str]:
        lines = []
        for a in accumulators:
            if a.blocked:
                lines.append(f"{a.total} {a.name}_total = {a.neutral};")
            else:
                lines += self._partials(a)
        return lines

    def _partials(self, a: Accumulator) -> list[str]:
        fill = f"each_vector<U>([&](int u) {{ {a.name}[u] = kw::splat<{a.lane}, W>({a.lane}({a.neutral})); }});"
        lines = [f"kw::vec<{a.lane}, W> {a.name}[U];", fill]
        if a.positional:
            lines += [
                f"kw::vec<{a.place}, W> {a.name}_place[U];",
                f"each_vector<U>([&](int u) {{ {a.name}_place[u] = kw::splat<{a.place}, W>(-1); }});",
            ]
        return lines

    def _loops(
        self,
        outer_loops: list[Atom],
        loop_lines: list[str],
        body: list[str],
        accumulators: list[Accumulator],
        *,
        lane: Atom,
        at: str,
    ) -> list[str]:
        extent = self.lane_range[1] or self.emit.integer(lane.extent)[0]
        start = self.lane_range[0]
        u = "u" if any("[u]" in line for line in body) else ""
        head = f"auto step = [&](int64_t {at}, int {u}, auto lanes) __attribute__((always_inline)) {{"
        step = [head, *indented(body), "};"]
        blocked = [a for a in accumulators if a.blocked]
        unroll = "1" if self._sequential(body) else "U"
        if blocked:
            size = int(self.values.get("block", 4096))
            core = [
                f"for (int64_t block_begin = {start}; block_begin < {extent}; block_begin += {size}) {{",
                *indented([line for a in blocked for line in self._partials(a)]),
                *indented(step),
                f"    sweep<W, {unroll}>(block_begin, smaller(block_begin + {size}, {extent}), step);",
                *indented([line for a in blocked for line in self._fold(a)]),
                "}",
            ]
        else:
            core = [*step, f"sweep<W, {unroll}>({start}, {extent}, step);"]
        core = [*loop_lines, *core]
        if self.flat_loops:
            return self._flat_loops(outer_loops, core)
        for atom in reversed(outer_loops):
            name = self.emit.names[atom]
            count = self.emit.integer(atom.extent)[0]
            core = [f"for (int64_t {name} = 0; {name} < {count}; ++{name}) {{", *indented(core), "}"]
        return ["{", *indented(core), "}"]

    def _flat_loops(self, outer_loops: list[Atom], core: list[str]) -> list[str]:
        """One loop over [begin, end) of the flattened outer loops of the row."""
        flat = self.emit.name("part")
        lines: list[str] = []
        for position, atom in enumerate(outer_loops):
            rest = outer_loops[position + 1 :]
            text = f"{flat} / ({self.extent(rest)})" if rest else flat
            if position:
                text = f"{text} % ({self.emit.integer(atom.extent)[0]})"
            lines.append(f"const int64_t {self.emit.names[atom]} = {text};")
        return [f"for (int64_t {flat} = begin; {flat} < end; ++{flat}) {{", *indented([*lines, *core]), "}"]

    def _sequential(self, body: list[str]) -> bool:
        return any("_carry" in line for line in body)

    def _fold(self, a: Accumulator) -> list[str]:
        first, total = f"{a.name}[0]", f"{a.name}_total"
        folded = f"{a.total}({a.lanes_joined(first)})"
        return [
            f"for (int u = 1; u < U; ++u) {first} = {a.join(first, f'{a.name}[u]')};",
            f"{total} = {a.join(total, folded)};",
        ]

    def _results(self, accumulators: list[Accumulator]) -> list[str]:
        lines: list[str] = []
        depth = len(self.emit.blocks) - 1
        for a in accumulators:
            name = self.emit.name(f"{a.name}_result")
            if a.positional:
                lines += [
                    f"{a.lane} {a.name}_best = {a.neutral};",
                    f"{a.place} {name} = -1;",
                    f"for (int u = 0; u < U; ++u) best_lane<{a.largest}>({a.name}[u], {a.name}_place[u], "
                    f"{a.name}_best, {name});",
                ]
                self.emit.results[id(a.value)] = Operand(f"int64_t({name})", "int64_t", depth, False)
                continue
            text = f"{a.lane}({a.name}_total)"
            if not a.blocked:
                combine = a.join(f"{a.name}[0]", f"{a.name}[u]")
                lines.append(f"for (int u = 1; u < U; ++u) {a.name}[0] = {combine};")
                text = a.lanes_joined(f"{a.name}[0]")
            kind = "bool" if a.ctype == "mask" else a.ctype
            lines.append(f"const {kind} {name} = {text};")
            self.emit.results[id(a.value)] = Operand(name, a.ctype, depth, False)
        return lines

    def _scan(self, value: Scan, index: Index, before: list[str]) -> Operand:
        operand_value, place = self.nest.scanned(value, index)
        operand = self.emit.value(operand_value, place)
        ctype = COMPUTE[value.dtype]
        wide = "double" if ctype == "float" and self.values.get("accumulate", "double") == "double" else ctype
        neutral = "0" if value.kind == "sum" else "1"
        sign = "+" if value.kind == "sum" else "*"
        carry = self.emit.name(f"{display_name(value.name)}_carry")
        lines = self.emit.blocks[-1].lines
        local, result = self.emit.name(f"{display_name(value.name)}_local"), self.emit.name(value.name)
        text = operand.text if operand.lanes else widened(operand)
        fill = f"kw::splat<{ctype}, W>({ctype}({neutral}))"
        scanned = f"prefix(keep({text}, {fill}, lanes), {fill}, [](auto a, auto b) {{ return a {sign} b; }})"
        vector = f"const kw::vec<{ctype}, W>"
        if wide == "double" and ctype == "float" and value.kind == "sum":
            # Two floats carry what one double would, without converting every lane.
            before.append(f"float {carry} = 0, {carry}_low = 0;")
            lines += [
                f"{vector} {local} = {scanned};",
                f"{vector} {result} = ({local} + {carry}_low) + {carry};",
                f"add_exactly({carry}, {carry}_low, last({local}));",
            ]
        else:
            before.append(f"{wide} {carry} = {neutral};")
            lines += [
                f"const auto {local} = kw::cast<{wide}>({scanned});",
                f"const auto {result}_wide = {local} {sign} {carry};",
                f"{carry} = last({result}_wide);",
                f"{vector} {result} = kw::cast<{ctype}>({result}_wide);",
            ]
        return Operand(result, ctype, len(self.emit.blocks) - 1, True)
