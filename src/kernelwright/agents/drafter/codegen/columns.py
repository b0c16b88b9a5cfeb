"""Reductions and scans across rows: lanes run over neighbouring columns, the reduced loops are plain loops."""

from __future__ import annotations

from kernelwright.agents.drafter.codegen.accumulators import Accumulator
from kernelwright.agents.drafter.codegen.emitter import Operand, widened
from kernelwright.agents.drafter.codegen.functions import COMPUTE
from kernelwright.agents.drafter.codegen.loops import LoopWriter, Scratch, indented
from kernelwright.agents.drafter.fusion import Index, Root
from kernelwright.agents.drafter.index import Atom
from kernelwright.agents.drafter.nest import span
from kernelwright.agents.drafter.values import Reduce, Scan, display_name

_UNFOLDED = 256
"""Terms that lanes may add up without a fold in between."""


class ColumnWriter(LoopWriter):
    """Tiles of U vectors of columns; each tile is walked down as often as there are passes, its totals in registers."""

    def write(self, lane: Atom) -> list[str]:
        """The kernel's statements."""
        emit = self.emit
        emit.lane = lane
        others = [a for a in self.nest.outer if a != lane]
        tile, first = emit.name("tile"), emit.name("first")
        columns = emit.integer(lane.extent)[0]
        row = emit.name("row")
        head = self.bind(others, row) if others else []
        emit.names[lane] = f"({first} + u * W)"
        with emit.block(set(others)) as rows:
            body = self._tile(lane)
            rows_lines = rows.lines
        tiles = emit.name("tiles")
        count = f"({self.extent(others)}) * {tiles}" if others else tiles
        lines = [
            f"auto walk = [&](int64_t {first}, auto width, auto lanes) __attribute__((always_inline)) {{",
            "    constexpr int U = decltype(width)::count;",
            *indented(body),
            "};",
        ]
        where = [f"const int64_t {row} = {tile} / {tiles};"] if others else []
        begin = f"({tile} % {tiles}) * (W * U)" if others else f"{tile} * (W * U)"
        inner = [*where, *head, *rows_lines, *lines, f"cover<W, U>({begin}, {columns}, walk);  // vectors<U> at a time"]
        return [
            *emit.blocks[0].lines,
            f"const int64_t {tiles} = ({columns} + W * U - 1) / (W * U);",
            f"kw::parallel_for(threads, {count}, [&](int64_t begin, int64_t end, int) {{",
            f"    for (int64_t {tile} = begin; {tile} < end; ++{tile}) {{",
            *indented(inner, 2),
            "    }",
            *(["    kw::stream_fence();"] if self.streams() else []),
            "});",
        ]

    def _tile(self, lane: Atom) -> list[str]:
        emit = self.emit
        with emit.block({lane}, arrayed=True) as tile:
            emit.lane_depth = len(emit.blocks) - 1
            for level in range(self.levels() + 1):
                self._pass(level, tile.lines)
            roots = [r for r in self.nest.roots if not self.is_element(r)]
            if roots:
                with emit.block() as last:
                    for root in roots:
                        last.lines.append(self.store(root, emit.value(root.value, root.index)))
                    stores = last.lines
                tile.lines += for_vectors(stores)
            return tile.lines

    def _pass(self, level: int, lines: list[str]) -> None:
        accumulators = self.accumulators(level)
        roots = [
            r for r in self.nest.roots
            if self.is_element(r) and not isinstance(r.value, Reduce) and self.nest.level(r.value, r.index) == level
        ]  # fmt: skip
        if not accumulators and not roots:
            return
        emit, inner = self.emit, self.nest.inner
        before: list[str] = []
        for atom in inner:
            emit.names[atom] = emit.name(atom.name)
        emit.on_scan = lambda value, index: self._scan(value, index, before)
        with emit.block(set(inner)) as loops:
            with emit.block() as body:
                for accumulator in accumulators:
                    body.lines.append(self._take(accumulator))
                for root in roots:
                    body.lines.append(self.store(root, emit.value(root.value, root.index)))
                core = [*for_vectors(body.lines)]
            core = [*loops.lines, *core]
        lines.append(f"// Pass {level + 1} down the columns: {purpose(accumulators, roots)}")
        lines += before
        for a in accumulators:
            lines += self._start(a)
        lines += self._loops(core, accumulators)
        for a in accumulators:
            self._finish(a, lines)

    def _folds(self, accumulators: list[Accumulator]) -> list[Accumulator]:
        """The sums whose chains are long enough to need folding into a wider total."""
        length = span(self.nest.inner).constant
        if length is not None and length <= _UNFOLDED:
            return []
        return [a for a in accumulators if a.blocked]

    def _start(self, a: Accumulator) -> list[str]:
        lines = [*vectors_of(a.lane, a.name, a.neutral)]
        if a.positional:
            lines += vectors_of(a.place, f"{a.name}_place", "-1")
        if a in self._folds([a]):
            lines += vectors_of(a.total, f"{a.name}_total", a.neutral)
        return lines

    def _loops(self, core: list[str], accumulators: list[Accumulator]) -> list[str]:
        folds = self._folds(accumulators)
        inner = self.nest.inner
        for position in range(len(inner) - 1, -1, -1):
            name = self.emit.names[inner[position]]
            extent = self.emit.integer(inner[position].extent)[0]
            if position == len(inner) - 1 and folds:
                core = self._folded(core, name, extent, folds)
                continue
            core = [f"for (int64_t {name} = 0; {name} < {extent}; ++{name}) {{", *indented(core), "}"]
        return core

    def _folded(self, core: list[str], name: str, extent: str, folds: list[Accumulator]) -> list[str]:
        size = max(int(self.values.get("block", 4096)) // 16, 64)
        fold = [line for a in folds for line in self._fold(a)]
        return [
            f"for (int64_t block = 0; block < {extent}; block += {size}) {{",
            f"    const int64_t stop = smaller(block + {size}, {extent});",
            f"    for (int64_t {name} = block; {name} < stop; ++{name}) {{",
            *indented(core, 2),
            "    }",
            *indented(for_vectors(fold)),
            "}",
        ]

    def _fold(self, a: Accumulator) -> list[str]:
        wide = f"kw::cast<{a.total}>({a.name}[u])"
        return [
            f"{a.name}_total[u] = {a.join(f'{a.name}_total[u]', wide)};",
            f"{a.name}[u] = kw::splat<{a.lane}, W>({a.neutral});",
        ]

    def _take(self, a: Accumulator) -> str:
        value, index = self.nest.operand(a.value)
        operand = self.emit.value(value, index)
        text = operand.text if operand.lanes else widened(operand)
        vector = f"kw::vec<{a.lane}, W>"
        if a.positional:
            place = f"kw::splat<{a.place}, W>({self.row_position(a.value)})"
            return f"better<{a.largest}>({text}, {place}, {a.name}[u], {a.name}_place[u]);"
        if a.ctype == "mask":
            text = f"{vector}({text})"
        return f"{a.name}[u] = {a.join(f'{a.name}[u]', text)};"

    def _finish(self, a: Accumulator, lines: list[str]) -> None:
        depth = len(self.emit.blocks) - 1
        if a.positional:
            places = f"kw::cast<int64_t>({a.name}_place[u])"
            self.emit.results[id(a.value)] = Operand(places, "int64_t", depth, True)
            return
        if a in self._folds([a]):
            lines += for_vectors([f"{a.name}[u] = kw::cast<{a.lane}>({a.name}_total[u]);"])
        self.emit.results[id(a.value)] = Operand(f"{a.name}[u]", a.ctype, depth, True)

    def _scan(self, value: Scan, index: Index, before: list[str]) -> Operand:
        ctype = COMPUTE[value.dtype]
        wide, neutral, sign = scan_words(value, self.values.get("accumulate", "double") == "double")
        text = self._operand_text(value, index)
        carry = self.emit.name(f"{display_name(value.name)}_carry")
        before += vectors_of(wide, carry, neutral)
        body = self.emit.blocks[-1].lines
        result = self.emit.name(value.name)
        body.append(f"{carry}[u] = {carry}[u] {sign} kw::cast<{wide}>({text});")
        body.append(f"const kw::vec<{ctype}, W> {result} = kw::cast<{ctype}>({carry}[u]);")
        return Operand(result, ctype, len(self.emit.blocks) - 1, True)

    def _operand_text(self, value: Scan, index: Index) -> str:
        operand = self.emit.value(*self.nest.scanned(value, index))
        return operand.text if operand.lanes else widened(operand)


def scan_words(value: Scan, double: bool) -> tuple[str, str, str]:
    """Type of the carry, its start, and the operator."""
    ctype = COMPUTE[value.dtype]
    wide = "double" if ctype == "float" and double else ctype
    return wide, "0" if value.kind == "sum" else "1", "+" if value.kind == "sum" else "*"


def vectors_of(element: str, name: str, start: str) -> list[str]:
    fill = f"kw::splat<{element}, W>({element}({start}))"
    return [f"kw::vec<{element}, W> {name}[U];", f"each_vector<U>([&](int u) {{ {name}[u] = {fill}; }});"]


def for_vectors(lines: list[str]) -> list[str]:
    return ["each_vector<U>([&](int u) __attribute__((always_inline)) {", *indented(lines), "});"]


def purpose(accumulators: list[Accumulator], roots: list[Root]) -> str:
    made = [f"{a.value.kind} ({a.name})" for a in accumulators] + [
        f"store {display_name(r.stored.name)}" for r in roots
    ]
    return ", ".join(made) + "."


class ColumnSplitWriter(ColumnWriter):
    """One pass over the rows in memory order; each thread adds blocks of rows into its own line of totals."""

    def write(self, lane: Atom) -> list[str]:
        """The kernel's statements."""
        emit = self.emit
        emit.lane = lane
        others = [a for a in self.nest.outer if a != lane]
        row = emit.name("row")
        head = self.bind(others, row) if others else []
        columns = emit.integer(lane.extent)[0]
        first = emit.name("first")
        emit.names[lane] = f"({first} + u * W)"
        with emit.block(set(others)) as rows:
            accumulators = self.accumulators(0)
            for a in accumulators:
                self.scratch.append(Scratch(f"{a.name}_lines", a.total, lane.extent))
            body = self._rows(lane, first, columns, accumulators)
            last = self._join(lane, first, columns, accumulators)
            lines = [*head, *rows.lines, *body, *last]
        if others:
            lines = [f"for (int64_t {row} = 0; {row} < {self.extent(others)}; ++{row}) {{", *indented(lines), "}"]
        return [*emit.blocks[0].lines, *lines]

    def _rows(self, lane: Atom, first: str, columns: str, accumulators: list[Accumulator]) -> list[str]:
        emit, inner = self.emit, self.nest.inner
        for atom in inner:
            emit.names[atom] = emit.name(atom.name)
        with emit.block({lane}, arrayed=True) as tile:
            emit.lane_depth = len(emit.blocks) - 1
            with emit.block(set(inner)) as loops:
                with emit.block() as body:
                    core = [self._take(a) for a in accumulators]
                    core = for_vectors([*body.lines, *core])
                core = [*loops.lines, *core]
            starts = [line for a in accumulators for line in vectors_of(a.lane, a.name, a.neutral)]
            for position in range(len(inner) - 1, 0, -1):
                name, extent = emit.names[inner[position]], emit.integer(inner[position].extent)[0]
                core = [f"for (int64_t {name} = 0; {name} < {extent}; ++{name}) {{", *indented(core), "}"]
            down = emit.names[inner[0]]
            core = [f"for (int64_t {down} = block; {down} < stop; ++{down}) {{", *indented(core), "}"]
            fold = [self._add(a, first) for a in accumulators]
            walk = [*tile.lines, *starts, *core, *for_vectors(fold)]
        size = int(self.values.get("rows_in_flight", 8)) if len(inner) == 1 else 1
        lines_of = [f"{a.total}* const {a.name}_line = {a.name}_lines + thread * ({columns});" for a in accumulators]
        every = [
            f"for (int t = 0; t < threads; ++t) for (int64_t i = 0; i < {columns}; ++i) "
            f"{a.name}_lines[t * ({columns}) + i] = {a.neutral};"
            for a in accumulators
        ]
        extent = emit.integer(inner[0].extent)[0]
        return [
            *every,
            f"kw::parallel_for(threads, {extent}, [&](int64_t begin, int64_t end, int thread) {{",
            *indented(lines_of),
            f"    for (int64_t block = begin; block < end; block += {size}) {{",
            f"        const int64_t stop = smaller(block + {size}, end);",
            f"        auto walk = [&](int64_t {first}, auto width, auto lanes) __attribute__((always_inline)) {{",
            "            constexpr int U = decltype(width)::count;",
            *indented(walk, 3),
            "        };",
            f"        for (int64_t i = 0; i < {columns}; i += W * U) cover<W, U>(i, {columns}, walk);  // vectors<U>",
            "    }",
            "});",
        ]

    def _add(self, a: Accumulator, first: str) -> str:
        place = f"{a.name}_line + {first} + u * W"
        wide = f"kw::cast<{a.total}>({a.name}[u])"
        return f"write({place}, {a.join(f'read<W>({place}, lanes)', wide)}, lanes);"

    def _join(self, lane: Atom, first: str, columns: str, accumulators: list[Accumulator]) -> list[str]:
        """The lines of all threads as one, and what is computed from the totals."""
        emit = self.emit
        saved = emit.names[lane]
        at = emit.name("column")
        emit.names[lane] = at
        with emit.block({lane}) as body:
            emit.lane_depth = len(emit.blocks) - 1
            for a in accumulators:
                total, result = emit.name(f"{a.name}_joined"), emit.name(f"{a.name}_result")
                line = f"{a.name}_lines + t * ({columns}) + {at}"
                body.lines += [
                    f"kw::vec<{a.total}, W> {total} = kw::splat<{a.total}, W>({a.neutral});",
                    f"for (int t = 0; t < threads; ++t) {total} = {a.join(total, f'read<W>({line}, lanes)')};",
                    f"const kw::vec<{a.lane}, W> {result} = kw::cast<{a.lane}>({total});",
                ]
                emit.results[id(a.value)] = Operand(result, a.ctype, len(emit.blocks) - 1, True)
            for root in self.nest.roots:
                body.lines.append(self.store(root, emit.value(root.value, root.index)))
            lines = body.lines
        emit.names[lane] = saved
        step = [
            f"auto step = [&](int64_t {at}, int, auto lanes) __attribute__((always_inline)) {{",
            *indented(lines),
            "};",
        ]
        return ["// The lines of all threads, joined in a fixed order.", *step, f"sweep<W, 1>(0, {columns}, step);"]


class ColumnScanWriter(ColumnWriter):
    """Scans down the columns, row after row in memory order; the carries of a stripe of columns stay in cache."""

    def write(self, lane: Atom) -> list[str]:
        """The kernel's statements."""
        emit = self.emit
        emit.lane = lane
        others = [a for a in self.nest.outer if a != lane]
        row, stripe = emit.name("row"), emit.name("stripe")
        head = self.bind(others, row) if others else []
        columns = emit.integer(lane.extent)[0]
        at = emit.name("column")
        emit.names[lane] = at
        (down,) = self.nest.inner
        emit.names[down] = emit.name("down")
        self._starts: list[str] = []
        emit.on_scan = lambda value, index: self._carried(value, index, lane)
        with emit.block(set(others)) as rows, emit.block({down}) as loop, emit.block({lane}) as body:
            emit.lane_depth = len(emit.blocks) - 1
            for root in self.nest.roots:
                body.lines.append(self.store(root, emit.value(root.value, root.index)))
            step = [f"auto step = [&](int64_t {at}, int, auto lanes) __attribute__((always_inline)) {{",
                    *indented(body.lines), "};"]  # fmt: skip
            width = int(self.values.get("stripe", 1024))
            inner = [
                *rows.lines,
                *self._starts,
                f"for (int64_t {emit.names[down]} = 0; {emit.names[down]} < {emit.integer(down.extent)[0]}; "
                f"++{emit.names[down]}) {{",
                *indented([*loop.lines, *step, "sweep<W, U>(left, right, step);"]),
                "}",
            ]
        stripes = emit.name("stripes")
        where = [f"const int64_t {row} = {stripe} / {stripes};"] if others else []
        number = f"({stripe} % {stripes})" if others else stripe
        where += [f"const int64_t left = {number} * {width}, right = smaller(left + {width}, {columns});"]
        count = f"({self.extent(others)}) * {stripes}" if others else stripes
        return [
            *emit.blocks[0].lines,
            f"const int64_t {stripes} = ({columns} + {width - 1}) / {width};",
            f"kw::parallel_for(threads, {count}, [&](int64_t begin, int64_t end, int thread) {{",
            f"    for (int64_t {stripe} = begin; {stripe} < end; ++{stripe}) {{",
            *indented([*where, *head, *inner], 2),
            "    }",
            *(["    kw::stream_fence();"] if self.streams() else []),
            "});",
        ]

    def _carried(self, value: Scan, index: Index, lane: Atom) -> Operand:
        ctype = COMPUTE[value.dtype]
        wide, neutral, sign = scan_words(value, self.values.get("accumulate", "double") == "double")
        text = self._operand_text(value, index)
        name, result = self.emit.name(f"{display_name(value.name)}_carries"), self.emit.name(value.name)
        self.scratch.append(Scratch(f"{name}_all", wide, lane.extent))
        columns = self.emit.integer(lane.extent)[0]
        self._starts += [
            f"{wide}* const {name} = {name}_all + thread * ({columns});",
            f"for (int64_t i = left; i < right; ++i) {name}[i] = {neutral};",
        ]
        place = f"{name} + {self.emit.names[lane]}"
        self.emit.blocks[-1].lines += [
            f"const kw::vec<{wide}, W> {result}_wide = read<W>({place}, lanes) {sign} kw::cast<{wide}>({text});",
            f"write({place}, {result}_wide, lanes);",
            f"const kw::vec<{ctype}, W> {result} = kw::cast<{ctype}>({result}_wide);",
        ]
        return Operand(result, ctype, len(self.emit.blocks) - 1, True)
