"""What a kernel touches, in which phases it works, and which of its loops can be merged or walked in vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelwright.agents.drafter.codegen.functions import EXPENSIVE
from kernelwright.agents.drafter.fusion import (
    Index,
    LoopKernel,
    Root,
    Walk,
    mapped,
    operand_of,
    padded,
    reduce_operand,
)
from kernelwright.agents.drafter.index import (
    BACK,
    ONE,
    ZERO,
    Atom,
    Expr,
    coefficient,
    flatten,
    floordiv,
    modulo,
    substitute,
)
from kernelwright.agents.drafter.values import Map, Reduce, Scan, Value

_SHORT = 8
"""A loop of fewer iterations does not fill a vector."""


@dataclass
class Nest:
    """A loop kernel with its loops as they will be printed."""

    outer: list[Atom]
    inner: list[Atom]
    outer_index: Index
    """The kernel's original outer index over the (maybe merged) loops."""
    inner_index: Index
    roots: list[Root]
    own: set[int]
    """Identities of the values stored here: computed, never read back."""
    memory: set[Value]
    _levels: dict[tuple[int, Index], int] = field(default_factory=dict)
    _reductions: list[Reduce] | None = None

    def operand(self, value: Reduce) -> tuple[Value, Index]:
        """What a reduction of this kernel reads in its body."""
        return reduce_operand(value, padded(self.outer_index, value.shape), padded(self.inner_index, value.ranges))

    def scanned(self, value: Scan, index: Index) -> tuple[Value, Index]:
        """What a scan of this kernel reads at `index`."""
        access = operand_of(value)
        return access.value, mapped(access, value.shape, index)

    def closure(self, value: Value, index: Index) -> list[Walk]:
        """Walks over everything that `value` needs, through the reductions of this kernel."""
        walks: list[Walk] = []
        queue, seen = [(value, index)], set()
        while queue:
            current, place = queue.pop()
            if (id(current), place) in seen:
                continue
            seen.add((id(current), place))
            if isinstance(current, Reduce) and current not in self.memory:
                current, place = self.operand(current)
            elif isinstance(current, Scan) and current not in self.memory:
                current, place = self.scanned(current, place)
            walk = Walk(self.memory)
            walk.visit(current, place)
            walks.append(walk)
            queue += walk.hits
        return walks

    def level(self, value: Value, index: Index) -> int:
        """How many reductions, one after the other, must be finished before `value` can be computed."""
        key = (id(value), index)
        if key not in self._levels:
            self._levels[key] = self._level(value, index)
        return self._levels[key]

    def _level(self, value: Value, index: Index) -> int:
        if isinstance(value, Reduce) and value not in self.memory:
            return 1 + self.level(*self.operand(value))
        if isinstance(value, Scan) and value not in self.memory:
            return self.level(*self.scanned(value, index))
        walk = Walk(self.memory)
        walk.visit(value, index)
        return max((self.level(v, i) for v, i in walk.hits), default=0)

    def reductions(self) -> list[Reduce]:
        """The reductions of this kernel, in the order of first use."""
        if self._reductions is None:
            self._reductions = self._find_reductions()
        return self._reductions

    def forget(self) -> None:
        """Drop what was derived from the loops, because they change."""
        self._levels.clear()
        self._reductions = None

    def _find_reductions(self) -> list[Reduce]:
        found: dict[int, Reduce] = {}
        for root in self.roots:
            if isinstance(root.value, Reduce):
                found[id(root.value)] = root.value
            for walk in self.closure(root.value, root.index):
                for hit, _ in walk.hits:
                    if isinstance(hit, Reduce):
                        found[id(hit)] = hit
        return list(found.values())

    def has_scan(self) -> bool:
        """Whether something runs along the row."""
        return any(
            isinstance(root.value, Scan)
            or any(isinstance(v, Scan) for w in self.closure(*_root(root)) for v, _ in w.hits)
            for root in self.roots
        )

    def offsets(self) -> tuple[list[Expr], set[Atom]]:
        """Addresses that are read or written, and loop variables that anything else depends on."""
        offsets: list[Expr] = [flatten(r.index, r.stored.shape) for r in self.roots]
        blockers: set[Atom] = set()
        for root in self.roots:
            for walk in self.closure(root.value, root.index):
                blockers |= walk.blockers
                offsets += [flatten(i, v.shape) for v, i in walk.reads]
        for value in self.reductions():
            if value.kind in ("argmax", "argmin"):
                offsets.append(flatten(padded(self.inner_index, value.ranges), value.ranges))
        return offsets, blockers

    def kept_values(self, levels: int) -> list[tuple[Map, Index]]:
        """Expensive elementwise values that more than one pass over the row needs."""
        counts: dict[tuple[int, Index], tuple[Map, set[int]]] = {}
        inner = set(self.inner)
        for level, values in self._by_pass(levels).items():
            for value, index in values:
                for walk in [self._walk(value, index)]:
                    for found, place in _maps(walk, value, index, self.memory):
                        uses = {a for e in place for a in e.variables()}
                        if found.function in EXPENSIVE and inner <= uses:
                            counts.setdefault((id(found), place), (found, set()))[1].add(level)
        return [(value, place) for (_, place), (value, seen) in counts.items() if len(seen) > 1]

    def _walk(self, value: Value, index: Index) -> Walk:
        walk = Walk(self.memory)
        walk.visit(value, index)
        return walk

    def _by_pass(self, levels: int) -> dict[int, list[tuple[Value, Index]]]:
        passes: dict[int, list[tuple[Value, Index]]] = {}
        for value in self.reductions():
            operand, index = self.operand(value)
            passes.setdefault(self.level(operand, index), []).append((operand, index))
        for root in self.roots:
            if not isinstance(root.value, Reduce):
                passes.setdefault(self.level(root.value, root.index), []).append((root.value, root.index))
        return passes


def _root(root: Root) -> tuple[Value, Index]:
    return root.value, root.index


def _maps(walk: Walk, value: Value, index: Index, memory: set[Value]) -> list[tuple[Map, Index]]:
    found: list[tuple[Map, Index]] = []
    queue, seen = [(value, index)], set()
    while queue:
        current, place = queue.pop()
        if (id(current), place) in seen or current in memory or not isinstance(current, Map):
            continue
        seen.add((id(current), place))
        found.append((current, place))
        queue += [(a.value, mapped(a, current.shape, place)) for a in current.operands]
    return found


def nest_of(kernel: LoopKernel, memory: set[Value]) -> Nest:
    """The loops of a kernel, neighbours merged where all addresses allow it."""
    outer, inner = list(kernel.outer), list(kernel.inner)
    as_index = tuple(Expr({(a,): 1}) for a in outer), tuple(Expr({(a,): 1}) for a in inner)
    own = {r.stored for r in kernel.roots}
    roots = list(kernel.roots)
    nest = Nest(outer, inner, as_index[0], as_index[1], roots, {id(v) for v in own}, memory - own)
    _coalesce(nest)
    return nest


def _coalesce(nest: Nest) -> None:
    scan = nest.has_scan()
    for loops in (nest.outer, nest.inner):
        position = len(loops) - 2
        while position >= 0:
            offsets, blockers = nest.offsets()
            first, second = loops[position], loops[position + 1]
            if not scan and _mergeable(first, second, offsets, blockers):
                _merge(nest, loops, position)
            position -= 1


def _mergeable(first: Atom, second: Atom, offsets: Sequence[Expr], blockers: set[Atom]) -> bool:
    if first in blockers or second in blockers:
        return False
    for offset in offsets:
        a, b = coefficient(offset, first), coefficient(offset, second)
        if a is None or b is None or a != b * second.extent:
            return False
    return True


def _merge(nest: Nest, loops: list[Atom], position: int) -> None:
    first, second = loops[position], loops[position + 1]
    joined = Atom("var", first.name, (first.extent * second.extent,))
    place = Expr({(joined,): 1})
    mapping = {first: floordiv(place, second.extent), second: modulo(place, second.extent)}
    loops[position : position + 2] = [joined]

    def renamed(index: Index) -> Index:
        return tuple(substitute(e, mapping) for e in index)

    nest.forget()
    nest.outer_index, nest.inner_index = renamed(nest.outer_index), renamed(nest.inner_index)
    nest.roots = [Root(r.stored, r.value, renamed(r.index)) for r in nest.roots]


def lane_candidates(nest: Nest) -> list[Atom]:
    """Loop variables that could be walked in vectors, best first: most contiguous addresses, fewest strided ones."""
    offsets, blockers = nest.offsets()
    scored: list[tuple[float, int, Atom]] = []
    for order, atom in enumerate([*reversed(nest.inner), *reversed(nest.outer)]):
        score = 0.0
        for offset in offsets:
            if atom not in offset.variables():
                score += 0.1
            elif coefficient(offset, atom) in (ONE, BACK):
                score += 1.0
            else:
                score -= 1.0
        if atom in blockers:
            score -= 0.25
        if atom.extent.constant is not None and atom.extent.constant < _SHORT:
            score -= 2.0
        scored.append((-score, order, atom))
    return [atom for _, _, atom in sorted(scored, key=lambda s: s[:2])]


def span(atoms: Sequence[Atom]) -> Expr:
    """The product of the extents."""
    total = ONE
    for atom in atoms:
        total = total * atom.extent
    return total


def offset_in(atoms: Sequence[Atom]) -> Expr:
    """The row-major position of loop variables in their box."""
    total = ZERO
    for atom in atoms:
        total = total * atom.extent + Expr({(atom,): 1})
    return total
