"""Which writer prints a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernelwright.agents.drafter.codegen.attentions import AttentionWriter
from kernelwright.agents.drafter.codegen.columns import ColumnScanWriter, ColumnSplitWriter, ColumnWriter
from kernelwright.agents.drafter.codegen.loops import ElementwiseWriter, LoopWriter, RowWriter, Scratch
from kernelwright.agents.drafter.codegen.products import ProductWriter, title
from kernelwright.agents.drafter.codegen.split import SplitWriter
from kernelwright.agents.drafter.codegen.stripes import ColumnStripeWriter
from kernelwright.agents.drafter.fusion import Kernel, LoopKernel, OpaqueKernel
from kernelwright.agents.drafter.index import ONE as ONE_EXPR
from kernelwright.agents.drafter.index import Atom, Expr, to_dim, variable
from kernelwright.agents.drafter.nest import Nest, lane_candidates, nest_of, span
from kernelwright.agents.drafter.values import Attention, Contraction, Value, display_name
from kernelwright.core.dimensions import evaluate_dim
from kernelwright.platforms.candidates import ParameterValue

_FEW_ROWS = 8
"""Below this many rows per core, threads share rows instead of taking their own."""


def write_kernel(
    kernel: Kernel,
    memory: set[Value],
    pointers: dict[int, str],
    *,
    sizes: Callable[[Atom], str],
    used: set[str],
    values: Mapping[str, ParameterValue],
    axes: Mapping[str, int],
) -> tuple[list[str], list[Scratch]]:
    """The statements of one kernel, and the scratch memory it wants."""
    if not isinstance(kernel, LoopKernel):
        return _write_opaque(kernel, pointers, sizes=sizes, used=used, values=values, axes=axes)
    nest = nest_of(kernel, memory)
    if not nest.outer and not nest.inner:
        _add_unit_loop(nest)
    candidates = lane_candidates(nest)
    writer: LoopWriter
    if not nest.inner:
        elementwise = ElementwiseWriter(nest, pointers, sizes, used, values)
        lines, writer = elementwise.write(candidates[0]), elementwise
    elif candidates[0] in nest.outer:
        columns = _column_writer(nest, candidates[0], axes, values)(nest, pointers, sizes, used, values)
        lines, writer = columns.write(candidates[0]), columns
    else:
        lane = candidates[0]
        _last(nest, lane)
        split = _shares_rows(nest, axes, int(values.get("threads", 1)))
        rows = (SplitWriter if split else RowWriter)(nest, pointers, sizes, used, values)
        lines, writer = rows.write(lane), rows
    stores = ", ".join(display_name(r.stored.name) for r in nest.roots)
    head = [f"// Computes {stores}.", f"constexpr int W = {writer.lanes}, U = {writer.unroll};", "(void)U;"]
    return [*head, *lines], writer.scratch


def _write_opaque(
    kernel: OpaqueKernel,
    pointers: dict[int, str],
    *,
    sizes: Callable[[Atom], str],
    used: set[str],
    values: Mapping[str, ParameterValue],
    axes: Mapping[str, int],
) -> tuple[list[str], list[Scratch]]:
    if isinstance(kernel.value, Contraction):
        products = ProductWriter(kernel, pointers, sizes, used, values)
        return [title(kernel), *products.write(axes)], products.scratch
    if isinstance(kernel.value, Attention):
        attention = AttentionWriter(kernel, pointers, sizes, used, values)
        return [
            f"// Attention: {display_name(kernel.roots[0].stored.name)}.",
            *attention.write(axes),
        ], attention.scratch
    raise ValueError(f"no kernel for {kernel.value.name}")


def _column_writer(
    nest: Nest, lane: Atom, axes: Mapping[str, int], values: Mapping[str, ParameterValue]
) -> type[ColumnWriter]:
    """How columns are walked: all threads through the rows in memory order, or each its own columns."""
    inner = set(nest.inner)
    elements = any(e.variables() & inner for r in nest.roots for e in r.index)
    others = _count(span([a for a in nest.outer if a != lane]), axes)
    if not nest.reductions() and nest.has_scan():
        return ColumnScanWriter
    plain = all(nest.level(*nest.operand(v)) == 0 and v.kind not in ("argmax", "argmin") for v in nest.reductions())
    order = values.get("column_order", "tiles")
    if plain and not elements and not nest.has_scan() and others == 1 and order == "rows":
        return ColumnSplitWriter
    positional = any(v.kind in ("argmax", "argmin") for v in nest.reductions())
    if order == "rows" and not positional and not nest.has_scan():
        return ColumnStripeWriter
    return ColumnWriter


def _add_unit_loop(nest: Nest) -> None:
    """A single number is a loop of one step."""
    atom = variable("o0", ONE_EXPR).single
    assert atom is not None
    nest.outer.append(atom)


def _last(nest: Nest, lane: Atom) -> None:
    nest.inner.remove(lane)
    nest.inner.append(lane)


def _shares_rows(nest: Nest, axes: Mapping[str, int], threads: int) -> bool:
    """Whether rows are too few to give each thread its own."""
    single = all(nest.level(*nest.operand(v)) == 0 for v in nest.reductions())
    inner = set(nest.inner)
    elements = any(e.variables() & inner for r in nest.roots for e in r.index)
    if not nest.reductions() or not single or elements or nest.has_scan():
        return False
    return not nest.outer or _count(span(nest.outer), axes) < _FEW_ROWS * threads <= _count(span(nest.inner), axes)


def _count(expression: Expr, axes: Mapping[str, int]) -> int:
    return evaluate_dim(to_dim(expression), axes)
