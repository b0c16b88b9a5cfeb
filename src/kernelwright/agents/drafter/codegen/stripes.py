"""Several passes down tall columns, each in memory order: a stripe of columns keeps its totals in lines of cache."""

from __future__ import annotations

from kernelwright.agents.drafter.codegen.accumulators import Accumulator
from kernelwright.agents.drafter.codegen.columns import ColumnWriter, for_vectors, purpose, vectors_of
from kernelwright.agents.drafter.codegen.loops import Scratch, indented
from kernelwright.agents.drafter.fusion import Root
from kernelwright.agents.drafter.index import Atom
from kernelwright.agents.drafter.values import Reduce


class ColumnStripeWriter(ColumnWriter):
    """Each thread takes stripes of columns; blocks of rows are added in registers, then into the stripe's lines."""

    def write(self, lane: Atom) -> list[str]:
        """The kernel's statements."""
        emit = self.emit
        emit.lane = emit.column = lane
        others = [a for a in self.nest.outer if a != lane]
        row, stripe, self.first = emit.name("row"), emit.name("stripe"), emit.name("first")
        head = self.bind(others, row) if others else []
        columns = emit.integer(lane.extent)[0]
        emit.names[lane] = f"({self.first} + u * W)"
        width = int(self.values.get("stripe", 1024))
        lines: list[str] = []
        with emit.block(set(others)) as rows:
            for level in range(self.levels() + 1):
                lines += self._stripe_pass(level, lane, columns)
            last = [r for r in self.nest.roots if not self.is_element(r)]
            if last:
                lines += self._walk(lane, [], last, loop=False)
            lines = [*rows.lines, *lines]
        stripes = emit.name("stripes")
        where = [f"const int64_t {row} = {stripe} / {stripes};"] if others else []
        number = f"({stripe} % {stripes})" if others else stripe
        where.append(f"const int64_t left = {number} * {width}, right = smaller(left + {width}, {columns});")
        count = f"({self.extent(others)}) * {stripes}" if others else stripes
        return [
            *emit.blocks[0].lines,
            f"const int64_t {stripes} = ({columns} + {width - 1}) / {width};",
            f"kw::parallel_for(threads, {count}, [&](int64_t begin, int64_t end, int thread) {{",
            f"    for (int64_t {stripe} = begin; {stripe} < end; ++{stripe}) {{",
            *indented([*where, *head, *lines], 2),
            "    }",
            *(["    kw::stream_fence();"] if self.streams() else []),
            "});",
        ]

    def _stripe_pass(self, level: int, lane: Atom, columns: str) -> list[str]:
        accumulators = self.accumulators(level)
        roots = [
            r for r in self.nest.roots
            if self.is_element(r) and not isinstance(r.value, Reduce) and self.nest.level(r.value, r.index) == level
        ]  # fmt: skip
        if not accumulators and not roots:
            return []
        lines = [f"// Pass {level + 1} over the rows of the stripe: {purpose(accumulators, roots)}"]
        for a in accumulators:
            self.scratch.append(Scratch(f"{a.name}_lines", a.total, lane.extent))
            lines += [
                f"{a.total}* const {a.name}_line = {a.name}_lines + thread * ({columns});",
                f"for (int64_t i = left; i < right; ++i) {a.name}_line[i] = {a.neutral};",
            ]
        lines += self._walk(lane, accumulators, roots, loop=True)
        for a in accumulators:
            self.emit.lines[id(a.value)] = (f"{a.name}_line", a.ctype)
        return lines

    def _walk(self, lane: Atom, accumulators: list[Accumulator], roots: list[Root], *, loop: bool) -> list[str]:
        """One sweep over the stripe's columns, for each block of rows where `loop`."""
        emit, inner = self.emit, self.nest.inner
        for atom in inner:
            emit.names[atom] = emit.name(atom.name)
        with emit.block({lane}, arrayed=True) as tile:
            emit.lane_depth = len(emit.blocks) - 1
            with emit.block(set(inner)) as loops:
                with emit.block() as body:
                    for a in accumulators:
                        body.lines.append(self._take(a))
                    for root in roots:
                        body.lines.append(self.store(root, emit.value(root.value, root.index)))
                    core = for_vectors(body.lines)
                core = [*loops.lines, *core]
            starts = [line for a in accumulators for line in vectors_of(a.lane, a.name, a.neutral)]
            if loop:
                core = self._down(core)
            adds = [self._add(a, self.first) for a in accumulators]
            inside = [*tile.lines, *starts, *core, *(for_vectors(adds) if adds else [])]
        walk = [
            f"auto walk = [&](int64_t {self.first}, auto width, auto lanes) __attribute__((always_inline)) {{",
            "    constexpr int U = decltype(width)::count;",
            *indented(inside),
            "};",
            "for (int64_t i = left; i < right; i += W * U) cover<W, U>(i, right, walk);  // vectors<U> at a time",
        ]
        if not loop:
            return ["{", *indented(walk), "}"]
        size = int(self.values.get("rows_in_flight", 8)) if len(inner) == 1 else 1
        extent = emit.integer(inner[0].extent)[0]
        return [
            f"for (int64_t block = 0; block < {extent}; block += {size}) {{",
            f"    const int64_t stop = smaller(block + {size}, {extent});",
            *indented(walk),
            "}",
        ]

    def _down(self, core: list[str]) -> list[str]:
        names = [self.emit.names[a] for a in self.nest.inner]
        for name, atom in reversed(list(zip(names[1:], self.nest.inner[1:], strict=True))):
            extent = self.emit.integer(atom.extent)[0]
            core = [f"for (int64_t {name} = 0; {name} < {extent}; ++{name}) {{", *indented(core), "}"]
        return [f"for (int64_t {names[0]} = block; {names[0]} < stop; ++{names[0]}) {{", *indented(core), "}"]

    def _add(self, a: Accumulator, first: str) -> str:
        place = f"{a.name}_line + {first} + u * W"
        wide = f"kw::cast<{a.total}>({a.name}[u])"
        return f"write({place}, {a.join(f'read<W>({place}, lanes)', wide)}, lanes);"
