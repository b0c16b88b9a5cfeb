"""Matrix products through kw_matmul.h, with the elementwise work that follows printed as their epilogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernelwright.agents.drafter.codegen.emitter import Emitter, Operand, storable, widened
from kernelwright.agents.drafter.codegen.functions import COMPUTE
from kernelwright.agents.drafter.codegen.loops import Scratch, indented, stored_number
from kernelwright.agents.drafter.fusion import OpaqueKernel, Root, Walk
from kernelwright.agents.drafter.index import ONE, Atom, Expr, flatten, product, render, to_dim
from kernelwright.agents.drafter.lowering.contractions import base_offset, strides
from kernelwright.agents.drafter.values import Access, Contraction, Shape, axis_variables, display_name
from kernelwright.core.dimensions import evaluate_dim
from kernelwright.core.dtypes import DType
from kernelwright.platforms.candidates import ParameterValue
from kernelwright.platforms.languages.cpp import library

_BATCH_LEFT = 2
"""Dimensions of one matrix."""


class OpaqueWriter:
    """What products and attentions share: operands in memory, an epilogue that stores."""

    def __init__(
        self,
        kernel: OpaqueKernel,
        pointers: Mapping[int, str],
        sizes: Callable[[Atom], str],
        used: set[str],
        values: Mapping[str, ParameterValue],
    ) -> None:
        self.kernel, self.roots, self.values, self.sizes = kernel, kernel.roots, values, sizes
        self.outputs = {id(r.stored): pointers[id(r.stored)] for r in kernel.roots}
        own = set(self.outputs)
        self.pointers = pointers
        self.emit = Emitter({k: v for k, v in pointers.items() if k not in own}, sizes, used)
        self.scratch: list[Scratch] = []

    def text(self, expression: Expr) -> str:
        """A size as text."""
        return render(expression, self.sizes)

    def store(self, root: Root, operand: Operand) -> str:
        place, _ = self.emit.integer(flatten(root.index, root.stored.shape))
        pointer = self.outputs[id(root.stored)]
        address = pointer if place == "0" else f"{pointer} + {place}"
        if self.emit.lane is None:
            return f"kw::store({address}, {stored_number(operand, root.stored.dtype)});"
        wide = operand if operand.lanes else Operand(widened(operand), operand.ctype, operand.depth, True)
        return f"write({address}, {storable(wide, root.stored.dtype)}, lanes);"


class ProductWriter(OpaqueWriter):
    """Prints one product and its epilogue."""

    @property
    def product(self) -> Contraction:
        """The product at work."""
        assert isinstance(self.kernel.value, Contraction)
        return self.kernel.value

    def _few(self, axes: Mapping[str, int]) -> int:
        rows, columns = (evaluate_dim(to_dim(e), axes) for e in self.product.shape[-2:])
        return (1 if rows <= library.FEW_LINES else 0) | (2 if columns <= library.FEW_LINES else 0)

    def write(self, axes: Mapping[str, int]) -> list[str]:
        """The kernel's statements."""
        product_, emit = self.product, self.emit
        assert product_.left is not None
        assert product_.right is not None
        batch = product_.shape[:-_BATCH_LEFT]
        rows, columns = product_.shape[-2], product_.shape[-1]
        shape = ", ".join(self.text(e) for e in (product(batch), rows, columns, product_.inner))
        schedule = schedule_type(product_.dtype, self.values, few=self._few(axes))
        room = emit.name("product_room")
        bytes_text = f"kw::matmul_workspace_bytes<{schedule}>(threads, {{{shape}}})"
        self.scratch.append(Scratch(room, "char", ONE, bytes_text=bytes_text))
        left = self._operand(product_.left, (*batch, rows, product_.inner))
        right = self._operand(product_.right, (*batch, product_.inner, columns))
        return [
            f"typedef {schedule} Schedule;",
            "constexpr int W = Schedule::W;  // lanes of the epilogue's vectors",
            f"auto epilogue = [&]({self._vector()} sum, int64_t row, int64_t column, int lanes, int64_t batch) "
            "__attribute__((always_inline)) {",
            *indented(self._epilogue(batch)),
            "};",
            "// Rows of a tile are too far apart for the hardware to see them coming.",
            "auto ask = [&](int64_t row, int64_t column, int64_t batch) {",
            *indented(self._prefetches(batch)),
            "};",
            f"kw::matmul<Schedule>(threads, {{{shape}}}, {left}, {right},",
            f"                     kw::as_stored(), kw::as_stored(), kw::with_prefetch(epilogue, ask), {room});",
        ]

    def _vector(self) -> str:
        return f"kw::vec<{compute(self.product.dtype)}, W>"

    def _operand(self, access: Access, shape: Shape) -> str:
        steps = strides(access, shape)
        if steps is None:
            raise ValueError(f"{access.value.name} is not at fixed strides")
        batch = steps[-3] if len(steps) > _BATCH_LEFT else Expr({})
        base = base_offset(access, shape)
        pointer = self.pointers[id(access.value)]
        start = pointer if not base.terms else f"{pointer} + {self.text(base)}"
        numbers = ", ".join(self.text(s) for s in (steps[-2], steps[-1], batch))
        return f"kw::operand<{access.value.dtype.c_name}>{{{start}, {numbers}}}"

    def _epilogue(self, batch: Shape) -> list[str]:
        emit, product_ = self.emit, self.product
        variables = axis_variables(product_.shape)
        lines = ["(void)row, (void)batch;"]
        with emit.block({a for v in variables if (a := v.single) is not None}) as block:
            self._name_places(batch)
            emit.lane, emit.lane_depth = variables[-1].single, len(emit.blocks) - 1
            ctype = COMPUTE[product_.dtype]
            emit.results[id(product_)] = Operand("sum", ctype, emit.lane_depth, True)
            if emit.lane is None:
                block.lines.append("const int lane = 0;")
            for root in self.roots:
                block.lines.append(self.store(root, emit.value(root.value, root.index)))
            return [*lines, *emit.blocks[0].lines, *block.lines]

    def _name_places(self, batch: Shape) -> None:
        """What the variables of the result are called inside of the epilogue."""
        variables = axis_variables(self.product.shape)
        for variable, name in zip(variables[-2:], ("row", "column"), strict=True):
            atom = variable.single
            if atom is not None:
                self.emit.names[atom] = name
        for axis, variable in enumerate(variables[: len(batch)]):
            atom = variable.single
            if atom is not None:
                inner = product(batch[axis + 1 :])
                text = "batch" if inner == ONE else f"batch / ({self.text(inner)})"
                self.emit.names[atom] = f"({text})" if axis == 0 else f"({text} % ({self.text(batch[axis])}))"

    def _prefetches(self, batch: Shape) -> list[str]:
        """One request for each matrix that the epilogue writes or reads at its own row and column."""
        rows, columns = axis_variables(self.product.shape)[-2:]
        places = [(self.outputs[id(r.stored)], flatten(r.index, r.stored.shape)) for r in self.roots]
        for root in self.roots:
            walk = Walk({v for v in self.kernel.reads if v is not self.product})
            walk.visit(root.value, root.index)
            places += [(self.pointers[id(v)], flatten(i, v.shape)) for v, i in walk.reads]
        lines = ["(void)row, (void)column, (void)batch;"]
        for pointer, offset in dict.fromkeys(places):
            inside = {a for v in (rows, columns) if (a := v.single) is not None}
            if inside <= offset.variables() and not any(a.kind == "element" for a in offset.atoms()):
                lines.append(f"kw::prefetch({pointer} + {self.emit.integer(offset)[0]});")
        return lines


def compute(dtype: DType) -> str:
    """The type products are summed in."""
    return "double" if dtype is DType.FLOAT64 else "float"


def schedule_type(dtype: DType, values: Mapping[str, ParameterValue], *, few: int) -> str:
    """The C++ type of a schedule; `few` says which sides are short, so that only those are compiled for streaming."""
    rows, vectors = str(values["tile"]).split("x")
    numbers = [rows, vectors, *(str(values[k]) for k in ("depth_block", "row_block", "column_block", "depth_unroll"))]
    streaming = int(values["streaming"]) & few
    return f"kw::matmul_schedule<{compute(dtype)}, {', '.join(numbers)}, {streaming}>"


def title(kernel: OpaqueKernel) -> str:
    """What the kernel computes, for a comment."""
    stores = ", ".join(display_name(r.stored.name) for r in kernel.roots)
    return f"// Matrix product with its epilogue: {stores}."
