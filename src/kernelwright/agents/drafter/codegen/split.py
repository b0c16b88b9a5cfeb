"""Reductions with few or no rows: each thread reduces a part, the parts are joined in a fixed order."""

from __future__ import annotations

from kernelwright.agents.drafter.codegen.accumulators import Accumulator
from kernelwright.agents.drafter.codegen.emitter import Operand
from kernelwright.agents.drafter.codegen.loops import RowWriter, Scratch, indented
from kernelwright.agents.drafter.index import ONE, Atom, as_expr

_SLOT = 8
"""Elements between the partial results of two threads, so that they share no cache line."""


class SplitWriter(RowWriter):
    """One pass, the threads share each row."""

    def write(self, lane: Atom) -> list[str]:
        """The kernel's statements."""
        emit = self.emit
        emit.lane = lane
        row = emit.name("row")
        head = self.bind(self.nest.outer, row) if self.nest.outer else []
        with emit.block(set(self.nest.outer)) as block:
            block.lines += self._threads(lane)
            for root in self.nest.roots:
                block.lines.append(self.store_one(root, emit.value(root.value, root.index)))
            lines = [*head, *block.lines]
        if not self.nest.outer:
            return [*emit.blocks[0].lines, *lines]
        rows = self.extent(self.nest.outer)
        return [*emit.blocks[0].lines, f"for (int64_t {row} = 0; {row} < {rows}; ++{row}) {{", *indented(lines), "}"]

    def _threads(self, lane: Atom) -> list[str]:
        """The parallel pass, and the joining of what the threads found."""
        others = [a for a in self.nest.inner if a != lane]
        self.flat_loops = bool(others)
        if others:
            count, grain = self.extent(others), "1"
        else:
            count, grain = self.emit.integer(lane.extent)[0], "W * U"
            self.lane_range = ("begin", "end")
        accumulators = self.accumulators(0)
        lines: list[str] = []
        before = [line for a in accumulators for line in self._slots(a)]
        depth = len(self.emit.blocks) - 1
        with self.emit.block() as inside:
            saved, self._made = self._made, accumulators
            self._pass(0, lane, inside.lines)
            self._made = saved
            inner = [*inside.lines, *[line for a in accumulators for line in self._leave(a)]]
        lines += before
        lines.append(f"kw::parallel_for(threads, {count}, [&](int64_t begin, int64_t end, int thread) {{")
        lines += [*indented(inner), f"}}, {grain});"]
        for a in accumulators:
            lines += self._join(a, depth)
        return lines

    _made: list[Accumulator] | None = None

    def accumulators(self, level: int) -> list[Accumulator]:
        """The reductions, named once."""
        return self._made if self._made is not None else super().accumulators(level)

    def _slots(self, a: Accumulator) -> list[str]:
        kind = a.lane if a.positional else a.total
        self.scratch.append(Scratch(f"{a.name}_parts", kind, as_expr(_SLOT) * ONE))
        first = f"for (int t = 0; t < threads; ++t) {a.name}_parts[t * {_SLOT}] = {a.neutral};"
        if not a.positional:
            return [first]
        self.scratch.append(Scratch(f"{a.name}_places", "int64_t", as_expr(_SLOT)))
        return [first, f"for (int t = 0; t < threads; ++t) {a.name}_places[t * {_SLOT}] = -1;"]

    def _leave(self, a: Accumulator) -> list[str]:
        result = self.emit.results.pop(id(a.value))
        if a.positional:
            best = f"{a.name}_parts[thread * {_SLOT}] = {a.name}_best;"
            return [best, f"{a.name}_places[thread * {_SLOT}] = {result.text};"]
        text = f"{a.name}_total" if a.blocked else result.text
        if a.ctype == "mask":
            text = f"int32_t({text} ? -1 : 0)"
        return [f"{a.name}_parts[thread * {_SLOT}] = {text};"]

    def _join(self, a: Accumulator, depth: int) -> list[str]:
        name = self.emit.name(f"{a.name}_all")
        if a.positional:
            self.emit.results[id(a.value)] = Operand(f"{name}_place", "int64_t", depth, False)
            return [
                f"{a.lane} {name} = {a.neutral};",
                f"int64_t {name}_place = -1;",
                f"for (int t = 0; t < threads; ++t) best_lane<{a.largest}>({a.name}_parts[t * {_SLOT}], "
                f"{a.name}_places[t * {_SLOT}], {name}, {name}_place);",
            ]
        self.emit.results[id(a.value)] = Operand(name, a.ctype, depth, False)
        kind = "bool" if a.ctype == "mask" else a.ctype
        slot = f"{a.name}_parts[t * {_SLOT}]"
        return [
            f"{a.total} {name}_joined = {a.neutral};",
            f"for (int t = 0; t < threads; ++t) {name}_joined = {a.join(f'{name}_joined', slot)};",
            f"const {kind} {name} = {kind}({name}_joined);",
        ]
