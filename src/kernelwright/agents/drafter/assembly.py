"""From planned kernels to a candidate: the C++ source with its entries, and the plan of steps around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernelwright.agents.drafter.codegen.loops import Scratch, indented
from kernelwright.agents.drafter.codegen.preamble import preamble_for
from kernelwright.agents.drafter.fusion import Kernel, OpaqueKernel, Planner
from kernelwright.agents.drafter.index import ZERO, Atom, Expr, coefficient, render, to_dim
from kernelwright.agents.drafter.values import LibraryCall, Program, Stored, Value, display_name
from kernelwright.core.dtypes import DType
from kernelwright.platforms.candidates import BufferSpec, ConstantBuffer, KernelStep, LibraryStep, Plan, Step
from kernelwright.tasks.graph import Arg, Graph, ListArg, Node, ValueRef

ENTRY = "kernelwright_run"


@dataclass
class Segment:
    """Kernels that one entry runs."""

    entry: str
    kernels: list[Kernel] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    local: list[Value] = field(default_factory=list)
    """Intermediates that live in the entry's workspace."""


KernelWriter = Callable[[Kernel, dict[int, str], Callable[[Atom], str], set[str]], tuple[list[str], list[Scratch]]]
"""Prints one kernel: its statements and the scratch memory it wants."""


def is_library(kernel: Kernel) -> bool:
    """Whether a kernel is a library call."""
    return isinstance(kernel, OpaqueKernel) and isinstance(kernel.value, LibraryCall)


class Assembly:
    """The entries and steps of a planned program."""

    def __init__(self, graph: Graph, program: Program, planner: Planner) -> None:
        self.graph, self.program, self.planner = graph, program, planner
        self.names: dict[int, str] = {id(v): v.name for v in self._stored()}
        for name, value in planner.outputs.items():
            self.names[id(value)] = name
        self.parts: list[Segment | OpaqueKernel] = []
        self.calls: dict[int, list[LibraryCall]] = {}
        for kernel in planner.kernels:
            if is_library(kernel):
                assert isinstance(kernel, OpaqueKernel)
                assert isinstance(kernel.value, LibraryCall)
                results = self.calls.setdefault(id(kernel.value.node), [])
                results.append(kernel.value)
                if len(results) == 1:
                    self.parts.append(kernel)
            else:
                if not self.parts or not isinstance(self.parts[-1], Segment):
                    self.parts.append(Segment(""))
                part = self.parts[-1]
                assert isinstance(part, Segment)
                part.kernels.append(kernel)
        segments = [p for p in self.parts if isinstance(p, Segment)]
        for number, segment in enumerate(segments):
            segment.entry = ENTRY if len(segments) == 1 else f"{ENTRY}_{number + 1}"
            self._tensors(segment)

    def _stored(self) -> list[Stored]:
        return [*self.program.inputs.values(), *self.program.constants.values()]

    def _tensors(self, segment: Segment) -> None:
        """Which memory a segment gets from outside, gives, and keeps to itself."""
        made = list(dict.fromkeys(r.stored for k in segment.kernels for r in k.roots))
        read = list(dict.fromkeys(v for k in segment.kernels for v in k.reads))
        outputs = set(self.planner.outputs.values())
        elsewhere = {id(v) for p in self.parts if p is not segment for k in _kernels(p) for v in k.reads}
        segment.inputs = [v for v in read if v not in made]
        segment.outputs = [v for v in made if v in outputs or id(v) in elsewhere]
        segment.local = [v for v in made if v not in segment.outputs]
        if len(self.parts) == 1:
            segment.inputs = [*self.program.inputs.values(), *(v for v in segment.inputs if self._is_constant(v))]
            segment.outputs = list(self.planner.outputs.values())

    def _is_constant(self, value: Value) -> bool:
        return isinstance(value, Stored) and value.name in self.program.constants

    # The plan

    def plan(self) -> Plan:
        """Steps in order; empty where one entry does everything."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Segment) and not self.program.constants:
            return Plan()
        outputs = set(self.planner.outputs.values())
        buffers: dict[str, BufferSpec] = {}
        steps: list[Step] = []
        for part in self.parts:
            if isinstance(part, OpaqueKernel):
                steps.append(self._library_step(part))
                assert isinstance(part.value, LibraryCall)
                made: list[Value] = list(self.calls[id(part.value.node)])
            else:
                made = part.outputs
            for value in made:
                if value not in outputs:
                    name = self.name(value)
                    buffers[name] = BufferSpec(name=name, dtype=value.dtype, dims=tuple(to_dim(s) for s in value.shape))
            if isinstance(part, OpaqueKernel):
                continue
            steps.append(
                KernelStep(
                    entry=part.entry,
                    inputs=tuple(self.name(v) for v in part.inputs),
                    outputs=tuple(self.name(v) for v in part.outputs),
                )
            )
        constants = tuple(
            ConstantBuffer(
                spec=BufferSpec(name=c.spec.name, dtype=c.spec.dtype, dims=c.spec.dims), data_base64=c.data_base64
            )
            for c in self.graph.constants
        )
        return Plan(buffers=tuple(buffers.values()), constants=constants, steps=tuple(steps))

    def name(self, value: Value) -> str:
        """The name of a tensor between steps."""
        if id(value) not in self.names:
            self.names[id(value)] = self._unused(value.name.replace(".", "_"))
        return self.names[id(value)]

    def _unused(self, name: str) -> str:
        taken = set(self.names.values())
        found, number = name, 1
        while found in taken:
            found, number = f"{name}_{number}", number + 1
        return found

    def _library_step(self, kernel: OpaqueKernel) -> LibraryStep:
        call = kernel.value
        assert isinstance(call, LibraryCall)
        assert call.node is not None
        tensors = {name: self.name(a.value) for name, a in zip(_value_names(call.node), call.arguments, strict=True)}
        results = tuple(o.name for o in call.node.outputs)
        names = {c.position: self.name(c) for c in self.calls[id(call.node)]}
        outputs = tuple(names.get(i) or self._unused(name) for i, name in enumerate(results))
        return LibraryStep(
            op=call.node.op,
            args=tuple(_renamed(a, tensors) for a in call.node.args),
            kwargs={k: _renamed(a, tensors) for k, a in call.node.kwargs.items()},
            outputs=outputs,
        )

    # The source

    def source(self, write: KernelWriter, headers: Sequence[str] = ()) -> str:
        """The C++ file."""
        entries = [line for p in self.parts if isinstance(p, Segment) for line in self._entry(p, write)]
        body = _with_named_schedules("\n".join(entries) + "\n")
        includes = "".join(f'#include "{h}"\n' for h in headers if _uses(h, body))
        return f"{includes}{preamble_for(body)}\n{body}"

    def _entry(self, segment: Segment, write: KernelWriter) -> list[str]:
        used = {"inputs", "outputs", "threads", "thread", "workspace", "begin", "end", "block", "u", "lanes", "step",
                "W", "U", "whole", "lane_of", "read", "write", "keep", "lane", "block_begin", "t", "scratch"}  # fmt: skip
        axes = _Axes(segment, used, self._stored())
        pointers: dict[int, str] = {}
        head: list[str] = []
        for kind, values in (("inputs", segment.inputs), ("outputs", segment.outputs)):
            for position, value in enumerate(values):
                name = _unused(display_name(self.name(value)), used)
                pointers[id(value)] = name
                const = "const " if kind == "inputs" else ""
                element = value.dtype.c_name
                head.append(f"{const}{element}* const {name} = ({const}{element}*){kind}[{position}].data;")
        scratches: list[Scratch] = []
        for value in segment.local:
            name = _unused(display_name(value.name), used)
            pointers[id(value)] = name
            scratches.append(Scratch(name, value.dtype.c_name, value.count, per_thread=False))
        bodies: list[str] = []
        for kernel in segment.kernels:
            readable = {id(v): pointers[id(v)] for v in [*kernel.reads, *(r.stored for r in kernel.roots)]}
            lines, wanted = write(kernel, readable, axes.text, used)
            scratches += wanted
            bodies += ["{", *indented(lines), "}"]
        arguments = (
            f"const kw_tensor* inputs, int32_t input_count,\n{' ' * 8}{{}}kw_tensor* outputs, int32_t output_count"
        )
        lines = []
        if scratches:
            lines += self._workspace(segment, axes, scratches, arguments.format("const "))
        lines += [
            f'extern "C" int32_t {segment.entry}(',
            f"        {arguments.format('')},",
            "        void* workspace, int32_t threads) {",
            f"    if (input_count != {len(segment.inputs)} || output_count != {len(segment.outputs)}) return KW_UNSUPPORTED;",
            *indented(axes.definitions()),
            *indented(axes.checks()),
            *indented(head),
            *indented(_scratch_pointers(scratches, axes) if scratches else ["(void)workspace;"]),
            *indented(bodies),
            "    return KW_OK;",
            "}",
        ]
        return lines

    def _workspace(self, segment: Segment, axes: _Axes, scratches: list[Scratch], arguments: str) -> list[str]:
        return [
            f'extern "C" int64_t {segment.entry}_workspace_bytes(',
            f"        {arguments}, int32_t threads) {{",
            f"    if (input_count != {len(segment.inputs)} || output_count != {len(segment.outputs)}) return 0;",
            *indented(axes.definitions()),
            "    (void)threads;",
            "    return 64 + " + " + ".join(_bytes(s, axes) for s in scratches) + ";",
            "}",
            "",
        ]


class _Axes:
    """Sizes of a segment: read from the shapes of its tensors, and checked against all of them.

    A size that these tensors show only inside an expression is solved for where the expression is linear in it; else
    a tensor of the program that shows it joins the inputs for its shape alone.
    """

    def __init__(self, segment: Segment, used: set[str], inputs: Sequence[Value]) -> None:
        self.segment, self.used, self.others = segment, used, list(inputs)
        self.names: dict[str, str] = {}
        self.origin: dict[str, str] = {}
        self._read()

    @property
    def tensors(self) -> list[tuple[str, int, Value]]:
        """All tensors of the segment with their places in the entry's arguments."""
        given = [("inputs", i, v) for i, v in enumerate(self.segment.inputs)]
        return [*given, *(("outputs", i, v) for i, v in enumerate(self.segment.outputs))]

    def _read(self) -> None:
        """Solve for as many sizes as the tensors allow: those that stand alone first."""
        extents = [
            (f"{kind}[{position}].shape[{axis}]", extent)
            for kind, position, value in self.tensors
            for axis, extent in enumerate(value.shape)
        ]
        waiting = sorted(extents, key=lambda shown: _length(shown[1]))
        progress = True
        while progress:
            progress = False
            for place, extent in waiting:
                found = _solved(extent, set(self.names))
                if found is not None:
                    axis, rest, divisor = found
                    shifted = (
                        place if rest == ZERO else f"({place} + {self.expression(rest * -1)})".replace("+ -", "- ")
                    )
                    self.names[axis] = _unused(f"n_{axis}", self.used)
                    self.origin[axis] = shifted if divisor == 1 else f"{shifted} / {divisor}"
                    progress = True

    def text(self, atom: Atom) -> str:
        """A size atom as text."""
        if atom.kind != "size":
            raise ValueError(f"not a size: {atom.key}")
        if atom.name not in self.names:
            self._borrow(atom.name)
        return self.names[atom.name]

    def _borrow(self, axis: str) -> None:
        known = set(self.names)
        for value in self.others:
            found = [f for e in value.shape if (f := _solved(e, known)) is not None]
            if value not in self.segment.inputs and any(f[0] == axis for f in found):
                self.segment.inputs.append(value)
                self._read()
                return
        raise ValueError(f"no tensor shows the size of {axis}")

    def expression(self, expression: Expr) -> str:
        """A size as text."""
        return render(expression, self.text)

    def definitions(self) -> list[str]:
        """One constant for each axis."""
        return [f"const int64_t {name} = {self.origin[axis]};" for axis, name in self.names.items()]

    def checks(self) -> list[str]:
        """Refuse shapes that this source was not written for."""
        lines: list[str] = []
        for kind, position, value in self.tensors:
            tests = [f"{kind}[{position}].ndim != {len(value.shape)}"]
            for axis, extent in enumerate(value.shape):
                place = f"{kind}[{position}].shape[{axis}]"
                text = self.expression(extent)
                if self.origin.get(getattr(extent.single, "name", "")) != place:
                    tests.append(f"{place} != {text}")
            tests.append(f"{kind}[{position}].dtype != {_DTYPE_NAMES[value.dtype]}")
            lines.append(f"if ({' || '.join(tests)}) return KW_UNSUPPORTED;")
        if self.names:
            lines.append(f"{', '.join(f'(void){name}' for name in self.names.values())};")
        return lines


_DTYPE_NAMES: Mapping[DType, str] = {d: f"KW_{d.name}" for d in DType}


def _plain(extent: Expr) -> Expr:
    """The sum inside a size that is kept whole."""
    atom = extent.single
    return atom.args[0] if atom is not None and atom.kind == "dim" else extent


def _length(extent: Expr) -> int:
    return len(_plain(extent).terms)


def _solved(extent: Expr, known: set[str]) -> tuple[str, Expr, int] | None:
    """`(axis, rest, divisor)` with extent = axis * divisor + rest, where just one axis in it is not known yet."""
    inside = _plain(extent)
    unknown = {a for a in inside.atoms() if a.kind == "size" and a.name not in known}
    if len(unknown) != 1:
        return None
    (atom,) = unknown
    factor = coefficient(inside, atom)
    divisor = None if factor is None else factor.constant
    if divisor is None or divisor <= 0:
        return None
    return atom.name, inside - Expr({(atom,): divisor}), divisor


def _bytes(scratch: Scratch, axes: _Axes) -> str:
    if scratch.bytes_text:
        return f"(({scratch.bytes_text} + 63) & ~int64_t(63))"
    count = axes.expression(scratch.count)
    threads = "threads * " if scratch.per_thread else ""
    return f"(({threads}({count}) * int64_t(sizeof({scratch.element})) + 63) & ~int64_t(63))"


def _scratch_pointers(scratches: list[Scratch], axes: _Axes) -> list[str]:
    lines = ["char* scratch = (char*)workspace;"]
    for s in scratches:
        lines.append(f"{s.element}* const {s.name} = ({s.element}*)scratch;")
        lines.append(f"scratch += {_bytes(s, axes)};")
    return lines


def _unused(name: str, used: set[str]) -> str:
    base = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    if not base or base[0].isdigit():
        base = f"t_{base}"
    candidate, number = base, 1
    while candidate in used or candidate in _RESERVED:
        candidate, number = f"{base}_{number}", number + 1
    used.add(candidate)
    return candidate


_WORDS = """
    alignas auto bool break case char class const continue default delete do double else enum extern
    false float for goto if inline int long mutable namespace new operator private public register
    return short signed sizeof static struct switch template this throw true try typedef union unsigned
    using virtual void volatile while and or not xor kw count smaller larger sweep prefix last better
"""
_RESERVED = frozenset(_WORDS.split())
"""Words of C++ and of the preamble."""


def _kernels(part: Segment | OpaqueKernel) -> list[Kernel]:
    return list(part.kernels) if isinstance(part, Segment) else [part]


_SCHEDULE = re.compile(r"kw::(matmul|attention)_schedule<[^<>]*>")
_SCHEDULE_NAMES = {"matmul": "ProductSchedule", "attention": "AttentionSchedule"}
_SCHEDULE_FIELDS = {
    "matmul": "type, tile rows, tile vectors, depth block, row block, column block, unroll, streaming",
    "attention": "head width, key block, query tiles, tile rows, tile vectors, unroll",
}


def _with_named_schedules(body: str) -> str:
    """Schedules named once, ahead of the entries that use them."""
    names: dict[str, str] = {}
    lines: list[str] = []
    for found in _SCHEDULE.finditer(body):
        text, kind = found.group(0), found.group(1)
        if text not in names:
            same = sum(name.startswith(_SCHEDULE_NAMES[kind]) for name in names.values())
            names[text] = _SCHEDULE_NAMES[kind] + (str(same + 1) if same else "")
            lines += [f"// {_SCHEDULE_FIELDS[kind]}", f"typedef {text} {names[text]};"]
    named = _SCHEDULE.sub(lambda found: names[found.group(0)], body)
    return "\n".join([*lines, "", named]) if lines else named


def _uses(header: str, body: str) -> bool:
    return {"kw_matmul.h": "kw::matmul", "kw_attention.h": "kw::attention"}.get(header, header) in body


def _value_names(node: Node) -> list[str]:
    found: list[str] = []

    def visit(arg: Arg) -> None:
        if isinstance(arg, ValueRef):
            found.append(arg.name)
        elif isinstance(arg, ListArg):
            for item in arg.items:
                visit(item)

    for arg in (*node.args, *node.kwargs.values()):
        visit(arg)
    return list(dict.fromkeys(found))


def _renamed(arg: Arg, names: Mapping[str, str]) -> Arg:
    if isinstance(arg, ValueRef):
        return ValueRef(name=names[arg.name])
    if isinstance(arg, ListArg):
        return ListArg(items=tuple(_renamed(i, names) for i in arg.items))
    return arg
