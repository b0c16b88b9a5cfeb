"""The header library that C++ kernels build on: which headers to include, the schedule parameters of each template with the
values that make sense on a device, and the C++ text that names a schedule and its scratch memory.

The headers themselves are in `include/`; each begins with how to call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelwright.core.dtypes import DType
from kernelwright.core.records import Record
from kernelwright.platforms.candidates import ParameterValue
from kernelwright.platforms.device import Device

INCLUDE_DIR = Path(__file__).parent / "include"
"""Folder that has to be on the compiler's include path."""

VECTOR_INCLUDES = ("kernelwright.h", "kw_vector.h", "kw_parallel.h")
MATMUL_INCLUDES = (*VECTOR_INCLUDES, "kw_matmul.h")
ATTENTION_INCLUDES = (*MATMUL_INCLUDES, "kw_attention.h")

FEW_LINES = 8
"""Rows or columns up to which a product is streamed: `few_lines` of `kw_matmul.h`."""


class TemplateParameter(Record):
    """One schedule decision of a header template."""

    name: str
    values: tuple[ParameterValue, ...]
    """Legal on the device, neighbours similar."""
    default: ParameterValue
    meaning: str


class Footprint(Record):
    """What a schedule occupies, to compare with a device."""

    registers: int
    """Vector registers that the innermost loop wants to hold."""
    first_level_bytes: int
    """Data that the innermost loops use again and again."""
    second_level_bytes: int
    """Packed operand that is used again for each panel of the other one."""


def native_lanes(device: Device, dtype: DType = DType.FLOAT32) -> int:
    """Lanes of `dtype` in one register; 16-bit floats are computed on as float32."""
    return max(1, device.simd_bits // 8 // compute_itemsize(dtype))


def compute_itemsize(dtype: DType) -> int:
    """Bytes of the type that arithmetic on stored elements of `dtype` is done in."""
    return max(4, dtype.itemsize) if dtype.is_floating else dtype.itemsize


def register_count(device: Device) -> int:
    """Architectural vector registers."""
    return 32 if device.simd in ("avx512", "neon", "sve") else 16


def vector_parameters(device: Device, dtype: DType = DType.FLOAT32) -> tuple[TemplateParameter, ...]:
    """Decisions of a loop written on `kw_vector.h` lanes."""
    lanes = native_lanes(device, dtype)
    widths = tuple(width for width in (lanes // 2, lanes) if width >= 2) or (1,)
    return (
        TemplateParameter(
            name="lanes", values=widths, default=widths[-1], meaning="Lanes of one vector in the inner loop."
        ),
        TemplateParameter(
            name="vectors",
            values=(1, 2, 4, 8),
            default=2,
            meaning="Independent vectors in one iteration of the inner loop.",
        ),
    )


def register_tiles(device: Device) -> tuple[str, ...]:
    """Register tiles, `rows`x`vectors`, whose accumulators, operand vectors and one broadcast fit the registers."""
    candidates = {
        16: ((2, 3), (4, 2), (5, 2), (6, 2), (4, 3)),
        32: ((4, 4), (6, 4), (8, 3), (9, 3), (8, 2), (12, 2), (14, 2)),
    }
    registers = register_count(device)
    return tuple(
        f"{rows}x{vectors}" for rows, vectors in candidates[registers] if rows * vectors + vectors + 1 <= registers
    )


def _default_tile(device: Device) -> str:
    wide = device.simd_bits >= 512
    return ("14x2" if wide else "8x3") if register_count(device) == 32 else "6x2"


def _tile(values: Mapping[str, ParameterValue]) -> tuple[int, int]:
    rows, _, vectors = str(values["tile"]).partition("x")
    return int(rows), int(vectors)


def _nearest(values: Sequence[int], target: int) -> int:
    """The largest value not above `target`, or the smallest of all."""
    return max((value for value in values if value <= target), default=min(values))


def matmul_parameters(
    device: Device, dtype: DType = DType.FLOAT32, *, rows: int | None = None, columns: int | None = None
) -> tuple[TemplateParameter, ...]:
    """Decisions of `kw::matmul_schedule`; `rows` and `columns` of the product where they are known."""
    itemsize = compute_itemsize(dtype)
    depths, row_blocks, column_blocks = (
        (128, 192, 256, 384, 512, 768),
        (64, 128, 256, 512, 1024),
        (256, 512, 1024, 2048, 4096),
    )
    tile = _default_tile(device)
    panel_columns = int(tile.partition("x")[2]) * native_lanes(device, dtype)
    depth = _nearest(depths, max(device.l1d_bytes, 32 << 10) // (panel_columns * itemsize))
    row_block = _nearest(row_blocks, max(device.l2_bytes, 256 << 10) // 2 // (depth * itemsize))
    few = (rows is not None and rows <= FEW_LINES, columns is not None and columns <= FEW_LINES)
    streaming = (1 if few[0] else 0) | (2 if few[1] else 0)
    if rows is None and columns is None:
        streaming = 3
    return (
        TemplateParameter(
            name="tile",
            values=register_tiles(device),
            default=tile,
            meaning="Register tile of the product, rows x vectors of columns.",
        ),
        TemplateParameter(
            name="depth_block", values=depths, default=depth, meaning="Terms of the sum packed at a time."
        ),
        TemplateParameter(
            name="row_block",
            values=row_blocks,
            default=row_block,
            meaning="Rows of the left operand packed at a time, for the second-level cache.",
        ),
        TemplateParameter(
            name="column_block",
            values=column_blocks,
            default=2048,
            meaning="Columns for which packed rows are used before they are packed again.",
        ),
        TemplateParameter(
            name="depth_unroll",
            values=(1, 2, 4),
            default=2,
            meaning="Terms of the sum in one iteration of the inner loop.",
        ),
        TemplateParameter(
            name="streaming",
            values=(0, streaming) if streaming else (0,),
            default=streaming,
            meaning="Read the large operand once, unpacked, for few rows (1), few columns (2) or either (3).",
        ),
    )


def attention_parameters(device: Device, depth: int) -> tuple[TemplateParameter, ...]:
    """Decisions of `kw::attention_schedule` for heads of `depth`."""
    blocks = (64, 128, 256, 512)
    key_block = _nearest(blocks, max(device.l2_bytes, 256 << 10) // 8 // (4 * max(depth, 1)))
    return (
        TemplateParameter(
            name="tile",
            values=register_tiles(device),
            default=_default_tile(device),
            meaning="Register tile, queries x vectors of keys.",
        ),
        TemplateParameter(
            name="key_block", values=blocks, default=key_block, meaning="Keys of one step of the running softmax."
        ),
        TemplateParameter(
            name="query_tiles",
            values=(1, 2, 4, 8),
            default=2,
            meaning="Register tiles of queries that share one pass over a block of keys.",
        ),
        TemplateParameter(
            name="depth_unroll",
            values=(1, 2, 4),
            default=2,
            meaning="Terms of a sum in one iteration of the inner loop.",
        ),
    )


def _checked(values: Mapping[str, ParameterValue], parameters: Sequence[TemplateParameter]) -> None:
    for parameter in parameters:
        if values.get(parameter.name) not in parameter.values:
            raise ValueError(f"{parameter.name} must be one of {parameter.values}, not {values.get(parameter.name)!r}")


def matmul_schedule(
    values: Mapping[str, ParameterValue], parameters: Sequence[TemplateParameter], dtype: DType = DType.FLOAT32
) -> str:
    """The C++ type `kw::matmul_schedule<…>` for one value of each of `parameters`.

    Raises:
        ValueError: a value is missing or not legal.
    """
    _checked(values, parameters)
    rows, vectors = _tile(values)
    scalar = "double" if dtype is DType.FLOAT64 else "float"
    rest = ", ".join(
        str(values[name]) for name in ("depth_block", "row_block", "column_block", "depth_unroll", "streaming")
    )
    return f"kw::matmul_schedule<{scalar}, {rows}, {vectors}, {rest}>"


def attention_schedule(
    values: Mapping[str, ParameterValue], parameters: Sequence[TemplateParameter], depth: int
) -> str:
    """The C++ type `kw::attention_schedule<…>` for heads of at most `depth`; raises as `matmul_schedule` does."""
    _checked(values, parameters)
    rows, vectors = _tile(values)
    padded = max(16, -(-depth // 16) * 16)
    numbers = (padded, values["key_block"], values["query_tiles"], rows, vectors, values["depth_unroll"])
    return f"kw::attention_schedule<{', '.join(map(str, numbers))}>"


def matmul_workspace(
    schedule: str, *, batch: str, rows: str, columns: str, depth: str, threads: str = "threads"
) -> str:
    """C++ expression (int64_t) of the scratch bytes of `kw::matmul`; the arguments are C++ expressions."""
    return f"kw::matmul_workspace_bytes<{schedule}>({threads}, kw::matmul_shape{{{batch}, {rows}, {columns}, {depth}}})"


def attention_workspace(schedule: str, *, shape: str, threads: str = "threads") -> str:
    """C++ expression (int64_t) of the scratch bytes of `kw::attention` for a `kw::attention_shape` expression."""
    return f"kw::attention_workspace_bytes<{schedule}>({threads}, {shape})"


def matmul_footprint(device: Device, values: Mapping[str, ParameterValue], dtype: DType = DType.FLOAT32) -> Footprint:
    """What a matmul schedule occupies in registers and caches."""
    rows, vectors = _tile(values)
    itemsize, depth = compute_itemsize(dtype), int(values["depth_block"])
    return Footprint(
        registers=rows * vectors + vectors + 1,
        first_level_bytes=depth * vectors * native_lanes(device, dtype) * itemsize,
        second_level_bytes=int(values["row_block"]) * (depth + 64 // itemsize) * itemsize,
    )
