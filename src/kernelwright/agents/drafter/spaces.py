"""The named schedule decisions of the templates, with their legal values on a device."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.agents.proposing import Parameter
from kernelwright.core.dtypes import DType
from kernelwright.platforms.candidates import ParameterValue
from kernelwright.platforms.device import Device
from kernelwright.platforms.languages.cpp import library


def _powers(low: int, high: int) -> tuple[int, ...]:
    values = []
    while low <= high:
        values.append(low)
        low *= 2
    return tuple(values)


def lanes(device: Device, widest: DType) -> Parameter:
    """Lanes of a vector: half a register or a whole one."""
    natural = max(device.simd_bits // (8 * max(widest.itemsize, 4)), 2)
    return Parameter(
        name="lanes",
        values=_powers(max(natural // 2, 2), natural),
        default=natural,
        meaning="elements that one vector statement works on",
    )


def unroll(default: int) -> Parameter:
    """Vectors in flight."""
    return Parameter(
        name="unroll", values=(1, 2, 4, 8), default=default, meaning="independent vectors in one loop step"
    )


def store(default: str) -> Parameter:
    """Normal or streaming stores."""
    return Parameter(
        name="store",
        values=("normal", "stream"),
        default=default,
        meaning="whether results go through the caches or past them",
    )


def threads(device: Device) -> Parameter:
    """Threads."""
    values = tuple(dict.fromkeys([*_powers(1, device.cores), device.cores]))
    return Parameter(name="threads", values=values, default=device.cores, meaning="threads that share the work")


def block() -> Parameter:
    """Elements of a row that are summed before the partial sums are folded."""
    return Parameter(
        name="block",
        values=(1024, 2048, 4096, 8192, 16384),
        default=4096,
        meaning="elements added in lanes before they are folded into the total",
    )


def accumulate() -> Parameter:
    """Type of totals."""
    return Parameter(
        name="accumulate",
        values=("float", "double"),
        default="double",
        meaning="type of totals across blocks, and of what scans carry (lanes add in the type of the data)",
    )


def intermediate(default: str) -> Parameter:
    """Recompute or store what several passes need."""
    return Parameter(
        name="intermediate",
        values=("recompute", "store"),
        default=default,
        meaning="whether an expensive value that two passes need is computed twice or kept in a row buffer",
    )


def schedule() -> Parameter:
    """How rows are handed to threads."""
    return Parameter(
        name="schedule",
        values=("static", "dynamic"),
        default="static",
        meaning="rows in one run per thread, or in blocks as threads get free",
    )


def rows_per_block() -> Parameter:
    """Rows of one dynamic block."""
    return Parameter(name="rows_per_block", values=(1, 4, 16, 64), default=16, meaning="rows of one dynamic block")


def column_order(default: str) -> Parameter:
    """How columns are reduced."""
    return Parameter(
        name="column_order",
        values=("rows", "tiles"),
        default=default,
        meaning="reduce columns along the rows in memory order, or tile by tile with totals in registers",
    )


def rows_in_flight() -> Parameter:
    """Rows that are added in registers before the totals are touched."""
    return Parameter(
        name="rows_in_flight", values=(4, 8, 16, 32), default=8, meaning="rows added in registers between totals"
    )


def stripe() -> Parameter:
    """Columns whose totals or carries stay in cache."""
    return Parameter(
        name="stripe",
        values=(512, 1024, 2048, 4096),
        default=2048,
        meaning="columns that one thread walks down at a time",
    )


def products(
    device: Device, dtype: DType = DType.FLOAT32, *, shapes: Sequence[tuple[int, int]] = ()
) -> list[Parameter]:
    """Decisions of matrix products with `shapes` of (rows, columns) where they are known; all products share them."""
    found: dict[str, Parameter] = {}
    known: Sequence[tuple[int | None, int | None]] = shapes or [(None, None)]
    for rows, columns in known:
        for parameter in library.matmul_parameters(device, dtype, rows=rows, columns=columns):
            other = found.get(parameter.name)
            if other is None or len(parameter.values) > len(other.values):
                found[parameter.name] = _from_library(parameter)
    return list(found.values())


def attention(device: Device, depth: int = 64) -> list[Parameter]:
    """Decisions of attention over heads of `depth`."""
    return [_from_library(p) for p in library.attention_parameters(device, depth)]


def _from_library(parameter: library.TemplateParameter) -> Parameter:
    return Parameter(**dict(parameter))


def legal(parameter: Parameter, value: ParameterValue) -> bool:
    """Whether a value is one of the parameter's own (1 and True are different)."""
    return any(v == value and type(v) is type(value) for v in parameter.values)
