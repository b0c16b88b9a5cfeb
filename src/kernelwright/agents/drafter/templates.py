"""Templates: one way to cut a graph into kernels, with every decision that is left to choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernelwright.agents.drafter import spaces
from kernelwright.agents.drafter.assembly import Assembly
from kernelwright.agents.drafter.codegen.loops import Scratch
from kernelwright.agents.drafter.codegen.writing import write_kernel
from kernelwright.agents.drafter.fusion import Kernel, LoopKernel, OpaqueKernel, Planner
from kernelwright.agents.drafter.index import Atom, Expr, to_dim
from kernelwright.agents.drafter.lowering import lower
from kernelwright.agents.drafter.nest import lane_candidates, nest_of, span
from kernelwright.agents.drafter.values import Attention, Contraction, Program, Value
from kernelwright.agents.proposing import Parameter, ParameterSpace
from kernelwright.core.dimensions import evaluate_dim
from kernelwright.core.dtypes import DType
from kernelwright.platforms.candidates import Candidate, Origin, ParameterValue
from kernelwright.platforms.device import Device
from kernelwright.tasks.graph import Graph
from kernelwright.tasks.model import Task

_TALL_ROWS = 512
"""Above this many rows, a narrow tile of columns touches more pages and cache sets than stay at hand."""

HEADERS = ("kw_matmul.h", "kw_attention.h")
"""Included where a source uses them."""

Values = dict[str, ParameterValue]


@dataclass(frozen=True)
class Facts:
    """What the spaces and the writers want to know about a program on this task."""

    graph: Graph
    device: Device
    axes: dict[str, int]
    """The sizes of the largest timed workload."""
    output_bytes: int

    def size(self, extent: Expr) -> int:
        """An extent at these sizes."""
        return evaluate_dim(to_dim(extent), self.axes)


@dataclass(frozen=True)
class DraftTemplate:
    """One fusion strategy; `render` prints it for given values."""

    facts: Facts
    program: Program
    planner: Planner
    space: ParameterSpace
    why: str
    memory: frozenset[Value] = field(default_factory=frozenset)

    def render(self, values: Values) -> Candidate:
        """The candidate for these values.

        Raises:
            ValueError: a value is missing, unknown or not legal.
        """
        self._check(values)
        assembly = Assembly(self.facts.graph, self.program, self.planner)

        def write(
            kernel: Kernel, pointers: dict[int, str], sizes: Callable[[Atom], str], used: set[str]
        ) -> tuple[list[str], list[Scratch]]:
            return write_kernel(
                kernel, set(self.planner.memory), pointers, sizes=sizes, used=used, values=values, axes=self.facts.axes
            )

        source = f"// {self.why}\n{assembly.source(write, HEADERS)}"
        return Candidate(
            language="cpp",
            sources={"kernel.cpp": source},
            plan=assembly.plan(),
            parameters=dict(values),
            threads=int(values["threads"]),
            origin=Origin(
                proposer="drafter",
                operator="draft",
                plan=self.why,
                template=self.space.template,
                covered=tuple(dict.fromkeys(self.program.covered)),
                left_to_library=tuple(self.program.left),
            ),
        )

    def _check(self, values: Values) -> None:
        known = {p.name: p for p in self.space.parameters}
        if set(values) != set(known):
            raise ValueError(f"expected values for {sorted(known)}, got {sorted(values)}")
        for name, value in values.items():
            if not spaces.legal(known[name], value):
                raise ValueError(f"{name} = {value!r} is not one of {known[name].values}")


def templates(task: Task, graph: Graph, device: Device) -> Sequence[DraftTemplate]:
    """Every way this drafter knows to cut the graph into kernels, best guess first; empty where it covers nothing."""
    return drafted(task, graph, device)[0]


def drafted(task: Task, graph: Graph, device: Device) -> tuple[Sequence[DraftTemplate], tuple[str, ...]]:
    """The templates whose own choices can be printed, and for each of the others why it cannot."""
    facts = _facts(task, graph, device)
    program = lower(graph, [spec.name for spec in task.outputs])
    if not program.covered:
        return (), ()
    made: list[DraftTemplate] = []
    dropped: list[str] = []
    seen: set[str] = set()
    for name, fuse, why in (
        ("fused", True, "Rows stay in cache: reductions and what follows them share one pass over memory"),
        ("split", False, "Each reduction is a kernel of its own"),
    ):
        try:
            planner = Planner(program, fuse_rows=fuse)
            shape = repr([(len(k.roots), [r.stored.name for r in k.roots]) for k in planner.kernels])
            if shape in seen:
                continue
            seen.add(shape)
            space = ParameterSpace(template=name, parameters=_parameters(facts, planner))
            template = DraftTemplate(facts, program, planner, space, why)
            template.render(space.defaults())
        except (ValueError, LookupError, AssertionError) as error:
            # An unforeseen graph must cost one template, not the search.
            dropped.append(f"template {name}: {error}")
            continue
        made.append(template)
    return made, tuple(dropped)


def _facts(task: Task, graph: Graph, device: Device) -> Facts:
    axes = max((w.axes for w in task.timed_workloads or task.workloads), key=task.compulsory_bytes)
    total = 0
    for spec in task.outputs:
        count = 1
        for extent in spec.shape(axes):
            count *= extent
        total += count * spec.dtype.itemsize
    return Facts(graph, device, axes, total)


def _parameters(facts: Facts, planner: Planner) -> tuple[Parameter, ...]:
    loops = [k for k in planner.kernels if isinstance(k, LoopKernel)]
    memory = set(planner.memory)
    nests = [nest_of(k, memory) for k in loops]
    widest = max((r.stored.dtype for k in loops for r in k.roots), key=lambda d: d.itemsize, default=DType.FLOAT32)
    widest = DType.FLOAT64 if any(v.dtype is DType.FLOAT64 for k in loops for v in k.reads) else widest
    if widest is DType.INT64 and any(v.dtype.is_floating for k in loops for v in k.reads):
        # Positions are stored as 64-bit integers, but what is looked at is not.
        widest = DType.FLOAT32
    found: list[Parameter] = []
    if loops:
        large = facts.output_bytes > 8 * facts.device.l2_bytes
        reduces = any(n.reductions() for n in nests)
        found += [spaces.lanes(facts.device, widest), spaces.unroll(4 if reduces else 8)]
        found.append(spaces.store("stream" if large else "normal"))
        if reduces:
            found.append(spaces.block())
        if reduces or any(n.has_scan() for n in nests):
            found.append(spaces.accumulate())
        columns = [n for n in nests if n.inner and lane_candidates(n)[0] in n.outer]
        in_rows = [n for n in nests if not any(n is c for c in columns)]
        if any(n.kept_values(3) for n in in_rows if n.reductions()):
            found.append(spaces.intermediate("store"))
        if any(n.reductions() for n in columns):
            tall = max(facts.size(span(n.inner)) for n in columns) > _TALL_ROWS
            found += [spaces.column_order("rows" if tall else "tiles"), spaces.rows_in_flight()]
        if columns:
            found.append(spaces.stripe())
        if any(n.outer and n.inner for n in in_rows):
            found += [spaces.schedule(), spaces.rows_per_block()]
    found += _product_decisions(facts, planner)
    found.append(spaces.threads(facts.device))
    return tuple(found)


def _product_decisions(facts: Facts, planner: Planner) -> list[Parameter]:
    """Decisions of the header templates that these kernels call; what two of them share stands once."""
    values = [k.value for k in planner.kernels if isinstance(k, OpaqueKernel)]
    found: list[Parameter] = []
    products = [v for v in values if isinstance(v, Contraction)]
    if products:
        shapes = [(facts.size(v.shape[-2]), facts.size(v.shape[-1])) for v in products]
        double = any(v.dtype is DType.FLOAT64 for v in products)
        found += spaces.products(facts.device, DType.FLOAT64 if double else DType.FLOAT32, shapes=shapes)
    heads = [max(facts.size(v.sizes[-1]), facts.size(v.shape[-1])) for v in values if isinstance(v, Attention)]
    if heads:
        found += spaces.attention(facts.device, max(heads))
    return list({p.name: p for p in reversed(found)}.values())[::-1]
