"""Partition of a program into kernels with as few passes over memory as possible.

A loop kernel has `outer` variables (parallel) and `inner` variables (a row: everything that reductions of this kernel run
over). A value is fused into a kernel when every reduction it needs runs over exactly these inner variables at exactly
these outer positions; else that reduction gets a kernel of its own, and its result lives in a buffer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from kernelwright.agents.drafter.index import ONE, ZERO, Atom, Expr, flatten, substitute, unflatten, variable
from kernelwright.agents.drafter.values import (
    Access,
    Attention,
    Contraction,
    Guarded,
    LibraryCall,
    Map,
    Position,
    Program,
    Reduce,
    Scan,
    Shape,
    Stored,
    Tensor,
    Value,
    axis_variables,
    window_variable,
)

Index = tuple[Expr, ...]


@dataclass
class Root:
    """A value that a kernel stores: `stored` names the memory, `value` says how it is computed, at `index`."""

    stored: Value
    value: Value
    index: Index


@dataclass
class LoopKernel:
    """Loops over `outer` and `inner` variables that compute `roots`."""

    outer: list[Atom]
    inner: list[Atom]
    roots: list[Root]
    reads: list[Value] = field(default_factory=list)
    visited: dict[int, Index] = field(default_factory=dict)

    @property
    def outer_index(self) -> Index:
        """The outer variables as an index."""
        return tuple(Expr({(a,): 1}) for a in self.outer)


@dataclass
class OpaqueKernel:
    """A matrix product, an attention or a library call; `roots` of a product are its fused epilogue."""

    value: Value
    roots: list[Root]
    reads: list[Value]
    rows: list[Atom] = field(default_factory=list)


Kernel = LoopKernel | OpaqueKernel


def mapped(access: Access, shape: Shape, index: Index, windows: dict[Atom, Expr] | None = None) -> Index:
    """Where `access` reads when its reader, of `shape`, is computed at `index`."""
    more = tuple(windows.items()) if windows else ()
    # Reads of tensors are told apart by name only, so that what one program remembers must not reach another.
    if any("ele:" in e.key for e in (*access.index, *index)):
        return _mapped(access.index, shape, index, more)
    return _remembered(access.index, shape, index, more)


def _mapped(places: Index, shape: Shape, index: Index, windows: tuple[tuple[Atom, Expr], ...]) -> Index:
    mapping = dict(windows)
    for own, place in zip(axis_variables(shape), index, strict=True):
        atom = own.single
        if atom is not None:
            mapping[atom] = place
    return tuple(substitute(i, mapping) for i in places)


_remembered = lru_cache(maxsize=65536)(_mapped)


def operand_of(value: Value) -> Access:
    """The operand of a reduction or scan."""
    assert isinstance(value, Reduce | Scan)
    assert value.operand is not None
    return value.operand


def reduce_operand(value: Reduce, outer: Index, inner: Index) -> tuple[Value, Index]:
    """What a reduction reads at outer position `outer` and window position `inner`."""
    windows: dict[Atom, Expr] = {}
    for position, (extent, place) in enumerate(zip(value.ranges, inner, strict=True)):
        atom = window_variable(position, extent).single
        assert atom is not None
        windows[atom] = place
    access = operand_of(value)
    return access.value, mapped(access, value.shape, outer, windows)


def elements(index: Sequence[Expr]) -> Iterator[Atom]:
    """Tensor reads inside index expressions."""
    for expression in index:
        for atom in sorted(expression.atoms(), key=lambda a: a.key):
            if atom.kind == "element":
                yield atom


def loop_index(prefix: str, shape: Sequence[Expr]) -> Index:
    """Fresh loop variables for a shape; size-one dimensions stay at 0."""
    numbers = itertools.count()
    return tuple(ZERO if s == ONE else variable(f"{prefix}{next(numbers)}", s) for s in shape)


def atoms_of(index: Index) -> list[Atom]:
    """The loop variables of an index."""
    return [a for e in index if (a := e.single) is not None]


class Walk:
    """Visits everything that computing a value at an index needs, down to memory and to hits on collectives."""

    def __init__(self, memory: set[Value]) -> None:
        self.memory = memory
        self.hits: list[tuple[Value, Index]] = []
        self.reads: list[tuple[Value, Index]] = []
        self.blockers: set[Atom] = set()
        """Loop variables that something other than an address depends on."""
        self.visited: dict[int, Index] = {}
        self._seen: set[tuple[int, Index]] = set()

    def visit(self, value: Value, index: Index) -> None:
        """Walk down from `value` at `index`."""
        if (id(value), index) in self._seen:
            return
        self._seen.add((id(value), index))
        self.visited.setdefault(id(value), index)
        for atom in elements(index):
            assert isinstance(atom.source, Value)
            self.visit(atom.source, atom.args)
        if value in self.memory:
            self.reads.append((value, index))
        elif isinstance(value, Map):
            for access in value.operands:
                self.visit(access.value, mapped(access, value.shape, index))
        elif isinstance(value, Guarded):
            self._visit_guarded(value, index)
        elif isinstance(value, Position):
            (expression,) = mapped(Access(value, (value.expression,)), value.shape, index)
            self.blockers |= expression.variables()
        elif isinstance(value, Reduce | Scan | Contraction | Attention | LibraryCall):
            self.hits.append((value, index))

    def _visit_guarded(self, value: Guarded, index: Index) -> None:
        assert value.inside is not None
        assert value.outside is not None
        for bound in value.bounds:
            for expression in mapped(Access(value, bound), value.shape, index):
                self.blockers |= expression.variables()
                for atom in elements((expression,)):
                    assert isinstance(atom.source, Value)
                    self.visit(atom.source, atom.args)
        for access in (value.inside, value.outside):
            self.visit(access.value, mapped(access, value.shape, index))


@dataclass(frozen=True)
class Domain:
    """The loops of a candidate kernel, and where a root is in them."""

    outer: Index
    inner: Index
    index: Index


def scan_domain(value: Scan) -> tuple[Shape, Shape]:
    """Shapes of the kept dimensions and of the scanned one."""
    kept = tuple(s for a, s in enumerate(value.shape) if a != value.axis)
    return kept, (value.shape[value.axis],)


def _same(first: Index, second: Index) -> bool:
    return [e for e in first if e != ZERO] == [e for e in second if e != ZERO]


def _wide(shape: Sequence[Expr]) -> list[Expr]:
    return [s for s in shape if s != ONE]


class Planner:
    """Makes the kernels of a program; `fuse_rows` False gives every reduction a kernel of its own."""

    def __init__(self, program: Program, *, fuse_rows: bool = True) -> None:
        self.fuse_rows = fuse_rows
        self.memory: set[Value] = set(program.inputs.values()) | set(program.constants.values())
        self.kernels: list[Kernel] = []
        self.outputs: dict[str, Value] = {}
        self._pending: list[Value] = []
        for name, tensor in program.outputs:
            self._add_output(name, tensor)
        while self._pending:
            value = self._pending.pop(0)
            self._plan(value)
        self._attach_outputs()
        self._merge()
        self._order()

    def _add_output(self, name: str, tensor: Tensor) -> None:
        value = tensor.value
        if not tensor.direct or isinstance(value, Stored) or value in self.outputs.values():
            value = Map(name, tensor.dtype, tensor.shape, "copy", (tensor.access,))
        self.outputs[name] = value
        self._need(value)

    def _need(self, value: Value) -> None:
        if value not in self.memory and value not in self._pending:
            self.memory.add(value)
            self._pending.append(value)

    def _walk(self, value: Value, index: Index) -> Walk:
        """A walk that looks into `value` itself even where it lives in memory."""
        walk = Walk(self.memory - {value})
        walk.visit(value, index)
        return walk

    def _plan(self, value: Value) -> None:
        if isinstance(value, Contraction | Attention | LibraryCall):
            self._plan_opaque(value, value, axis_variables(value.shape))
            return
        computed = self._two_level(value) if isinstance(value, Reduce) else value
        if self._plan_epilogue(value):
            return
        domain = self._domain(computed)
        self._finish(domain, Root(value, computed, domain.index))

    def _finish(self, domain: Domain, root: Root) -> None:
        kernel = LoopKernel(atoms_of(domain.outer), atoms_of(domain.inner), [root])
        queue: list[tuple[Value, Index]] = [(root.value, root.index)]
        seen: set[tuple[int, Index]] = set()
        while queue:
            value, index = queue.pop()
            if (id(value), index) in seen:
                continue
            seen.add((id(value), index))
            if isinstance(value, Reduce) and (value is root.value or self._fits(value, index, domain)):
                walk = self._walk_operand(value, domain)
            elif isinstance(value, Scan) and (value is root.value or self._fits(value, index, domain)):
                access = operand_of(value)
                walk = self._plain_walk(access.value, mapped(access, value.shape, index))
            elif isinstance(value, Reduce | Scan | Contraction | Attention | LibraryCall):
                self._need(value)
                kernel.reads.append(value)
                continue
            else:
                walk = self._walk(value, index) if value is root.value else self._plain_walk(value, index)
            queue.extend(walk.hits)
            kernel.reads += [v for v, _ in walk.reads]
            for key, place in walk.visited.items():
                kernel.visited.setdefault(key, place)
        kernel.reads = list(dict.fromkeys(kernel.reads))
        self.kernels.append(kernel)

    def _plain_walk(self, value: Value, index: Index) -> Walk:
        walk = Walk(self.memory)
        walk.visit(value, index)
        return walk

    def _walk_operand(self, value: Reduce, domain: Domain) -> Walk:
        inner = padded(domain.inner, value.ranges)
        source, index = reduce_operand(value, padded(domain.outer, value.shape), inner)
        return self._plain_walk(source, index)

    def _fits(self, value: Reduce | Scan, index: Index, domain: Domain) -> bool:
        """Whether a collective hit at `index` belongs to a kernel with these loops."""
        if isinstance(value, Scan):
            kept, ranges = scan_domain(value)
            place = index[: value.axis] + index[value.axis + 1 :]
            if not _same((index[value.axis],), domain.inner):
                return False
        else:
            kept, ranges, place = value.shape, value.ranges, index
        loops = [a.extent for a in atoms_of(domain.outer)], [a.extent for a in atoms_of(domain.inner)]
        if [_wide(kept), _wide(ranges)] != list(loops) or not _same(place, domain.outer):
            return False
        return self._may_fuse(domain)

    def _may_fuse(self, domain: Domain) -> bool:
        return self.fuse_rows and bool(atoms_of(domain.outer))

    def _domain(self, value: Value) -> Domain:
        if isinstance(value, Reduce):
            outer, inner = loop_index("o", value.shape), loop_index("i", value.ranges)
            return Domain(outer, inner, outer)
        if isinstance(value, Scan):
            kept, ranges = scan_domain(value)
            outer, inner = loop_index("o", kept), loop_index("i", ranges)
            return Domain(outer, inner, (*outer[: value.axis], *inner, *outer[value.axis :]))
        own = axis_variables(value.shape)
        best, best_score = None, 0
        for hit, index in self._walk(value, own).hits:
            if isinstance(hit, Reduce | Scan):
                domain = _bound(value, own, hit, index)
                score = 0 if domain is None else self._score(value, domain)
                if score > best_score:
                    best, best_score = domain, score
        if best is not None:
            return best
        outer = loop_index("o", value.shape)
        return Domain(outer, (), outer)

    def _score(self, value: Value, domain: Domain) -> int:
        hits = self._walk(value, domain.index).hits
        return sum(1 for v, i in hits if isinstance(v, Reduce | Scan) and self._fits(v, i, domain))

    def _two_level(self, value: Reduce) -> Value:
        """A reduction over rows of something that itself needs row reductions: first each row, then over the rows."""
        if value.kind in ("argmax", "argmin") or value.shape or len(_wide(value.ranges)) < 2 or not self.fuse_rows:
            return value
        inner = loop_index("i", value.ranges)
        source, index = reduce_operand(value, (), inner)
        for hit, place in self._plain_walk(source, index).hits:
            if not isinstance(hit, Reduce):
                continue
            kept = atoms_of(place)
            rest = [a for a in atoms_of(inner) if a not in kept]
            if kept and rest and [a.extent for a in rest] == _wide(hit.ranges):
                return _split_reduction(value, inner, kept, rest)
        return value

    def _plan_epilogue(self, value: Value) -> bool:
        """Fuse elementwise work after a matrix product into its epilogue."""
        if isinstance(value, Reduce | Scan):
            return False
        own = axis_variables(value.shape)
        hits = self._walk(value, own).hits
        if len({id(v) for v, _ in hits}) != 1 or not isinstance(hits[0][0], Contraction | Attention):
            return False
        product = hits[0][0]
        index = own
        if not _same(hits[0][1], axis_variables(product.shape)) or value.shape != product.shape:
            if value.count != product.count:
                return False
            index = unflatten(flatten(axis_variables(product.shape), product.shape), value.shape)
        places = {p for _, p in self._walk(value, index).hits}
        if places != {axis_variables(product.shape)}:
            return False
        self._plan_opaque(product, value, index)
        return True

    def _plan_opaque(self, value: Value, root: Value, index: Index) -> None:
        reads: list[Value] = []
        for access in _operands(value):
            reads.append(self._in_memory(access))
        if isinstance(value, Attention) and value.product is not None and value.mask is not None:
            walk = self._plain_walk(value.mask.value, value.mask.index)
            reads += [v for v, _ in walk.reads]
        if root is not value:
            reads += [v for v, _ in self._walk(root, index).reads]
        self.kernels.append(OpaqueKernel(value, [Root(root, root, index)], list(dict.fromkeys(reads))))

    def _in_memory(self, access: Access) -> Value:
        self._need(access.value)
        return access.value

    def _attach_outputs(self) -> None:
        """Elementwise outputs that another kernel computes on its way are stored by that kernel."""
        for kernel in list(self.kernels):
            if not isinstance(kernel, LoopKernel) or kernel.inner:
                continue
            for other in self.kernels:
                if other is kernel or not isinstance(other, LoopKernel) or not other.inner:
                    continue
                index = other.visited.get(id(kernel.roots[0].value))
                loops = {*other.outer, *other.inner}
                if index is not None and set(atoms_of(index)) == loops and len(atoms_of(index)) == len(loops):
                    first = kernel.roots[0]
                    other.roots.append(Root(first.stored, first.value, index))
                    others = [v for v in other.reads if v is not first.stored]
                    other.reads = list(dict.fromkeys([*others, *kernel.reads]))
                    self.kernels.remove(kernel)
                    break

    def _merge(self) -> None:
        """Kernels over the same loops that do not wait for each other become one."""
        merged = True
        while merged:
            merged = False
            for i, first in enumerate(self.kernels):
                for second in self.kernels[i + 1 :]:
                    if self._mergeable(first, second) or self._joinable(first, second) or self._joinable(second, first):
                        assert isinstance(first, LoopKernel)
                        assert isinstance(second, LoopKernel)
                        first.roots += second.roots
                        made = {id(r.stored) for r in first.roots}
                        first.reads = list(dict.fromkeys(v for v in [*first.reads, *second.reads] if id(v) not in made))
                        self.kernels.remove(second)
                        merged = True
                        break
                if merged:
                    break

    def _mergeable(self, first: Kernel, second: Kernel) -> bool:
        if not isinstance(first, LoopKernel) or not isinstance(second, LoopKernel):
            return False
        if first.outer != second.outer or first.inner != second.inner or (first.inner and not self.fuse_rows):
            return False
        return not (self._waits(first, second) or self._waits(second, first))

    def _joinable(self, first: Kernel, second: Kernel) -> bool:
        """Whether `second` needs of `first` only reductions over the very same rows: then one kernel does both."""
        if not isinstance(first, LoopKernel) or not isinstance(second, LoopKernel):
            return False
        if first.outer != second.outer or first.inner != second.inner or not first.inner or not self.fuse_rows:
            return False
        domain = Domain(first.outer_index, tuple(Expr({(a,): 1}) for a in first.inner), ())
        made = {r.stored for r in first.roots}
        if not self._may_fuse(domain) or not all(isinstance(r.value, Reduce) for r in first.roots):
            return False
        if self._waits(first, second) or any(
            self._waits(k, first) and self._waits(second, k) for k in self.kernels if k is not first and k is not second
        ):
            return False
        for root in second.roots:
            value, index = root.value, root.index
            if isinstance(value, Reduce):
                value, index = reduce_operand(
                    value, padded(domain.outer, value.shape), padded(domain.inner, value.ranges)
                )
            elif isinstance(value, Scan):
                value, index = operand_of(value).value, mapped(operand_of(value), value.shape, index)
            walk = Walk(self.memory - made)
            walk.visit(value, index)
            if not all(isinstance(v, Reduce) and self._fits(v, i, domain) for v, i in walk.hits if v in made):
                return False
        return True

    def _waits(self, kernel: Kernel, other: Kernel) -> bool:
        """Whether `kernel` needs, directly or not, something that `other` stores."""
        made = {id(r.stored) for r in other.roots}
        queue, seen = [kernel], {id(kernel)}
        while queue:
            current = queue.pop()
            for read in current.reads:
                if id(read) in made:
                    return True
                for maker in self.kernels:
                    if id(maker) not in seen and any(r.stored is read for r in maker.roots):
                        seen.add(id(maker))
                        queue.append(maker)
        return False

    def _order(self) -> None:
        done: list[Kernel] = []
        left = list(self.kernels)
        made = {id(r.stored) for k in left for r in k.roots}
        ready: set[int] = set()
        while left:
            for kernel in left:
                if all(id(v) in ready or id(v) not in made for v in kernel.reads):
                    break
            else:
                raise ValueError("kernels wait for each other")
            left.remove(kernel)
            done.append(kernel)
            ready |= {id(r.stored) for r in kernel.roots}
        self.kernels = done


def padded(index: Index, shape: Shape) -> Index:
    """Loop variables, with 0 where the shape has size one."""
    atoms = iter([e for e in index if e != ZERO])
    return tuple(ZERO if s == ONE else next(atoms) for s in shape)


def _operands(value: Value) -> list[Access]:
    if isinstance(value, Contraction):
        found = [value.left, value.right]
    elif isinstance(value, Attention):
        found = [value.query, value.keys, value.content, None if value.product else value.mask]
    else:
        assert isinstance(value, LibraryCall)
        found = list(value.arguments)
    return [a for a in found if a is not None]


def _split_reduction(value: Reduce, inner: Index, kept: list[Atom], rest: list[Atom]) -> Value:
    rows_shape, row_ranges = tuple(a.extent for a in kept), tuple(a.extent for a in rest)
    mapping: dict[Atom, Expr] = {}
    for place, atom in zip(axis_variables(rows_shape), kept, strict=True):
        mapping[atom] = place
    for j, atom in enumerate(rest):
        mapping[atom] = window_variable(j, row_ranges[j])
    source, index = reduce_operand(value, (), inner)
    operand = Access(source, tuple(substitute(i, mapping) for i in index))
    rows = Reduce(f"{value.name}_rows", value.dtype, rows_shape, value.kind, operand, row_ranges, ())
    windows = tuple(window_variable(j, s) for j, s in enumerate(rows_shape))
    return Reduce(value.name, value.dtype, (), value.kind, Access(rows, windows), rows_shape, ())


def _bound(value: Value, own: Index, hit: Reduce | Scan, index: Index) -> Domain | None:
    """Loops made for `hit`, and the index at which `value` is computed in them."""
    if isinstance(hit, Scan):
        kept, ranges = scan_domain(hit)
        outer, inner = loop_index("o", kept), loop_index("i", ranges)
        full: Index = (*outer[: hit.axis], *inner, *outer[hit.axis :])
        full_shape = hit.shape
        place = index[: hit.axis] + index[hit.axis + 1 :]
    else:
        kept, ranges, place = hit.shape, hit.ranges, index
        outer, inner = loop_index("o", kept), loop_index("i", ranges)
        full = tuple(outer[k] if k >= 0 else inner[-1 - k] for k in hit.layout)
        full_shape = tuple(kept[k] if k >= 0 else ranges[-1 - k] for k in hit.layout)
    mapping: dict[Atom, Expr] = {}
    for found, loop in zip(place, outer, strict=True):
        atom = found.single
        if loop == ZERO:
            continue
        if atom is None or atom.kind != "var" or atom in mapping:
            break
        mapping[atom] = loop
    else:
        rest = [a for a in atoms_of(own) if a not in mapping]
        wide = [e for e in inner if e != ZERO]
        if not rest or [a.extent for a in rest] == _wide(ranges):
            mapping.update(zip(rest, wide, strict=False))
            if isinstance(hit, Scan) and len(rest) == 1 and wide:
                last = hit.shape[hit.axis] - 1
                if index[hit.axis] == last - Expr({(rest[0],): 1}):
                    mapping[rest[0]] = last - wide[0]
            return Domain(outer, inner, tuple(substitute(e, mapping) for e in own))
    if full_shape and value.count == hit_count(full_shape):
        return Domain(outer, inner, unflatten(flatten(full, full_shape), value.shape))
    if value.count == hit_count(kept):
        return Domain(outer, inner, unflatten(flatten(outer, kept), value.shape))
    return None


def hit_count(shape: Shape) -> Expr:
    """Number of elements of a shape."""
    total = ONE
    for extent in shape:
        total = total * extent
    return total
