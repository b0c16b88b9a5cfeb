"""Pooling: reductions over a small window whose elements are read at shifted, guarded positions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.agents.drafter.index import ONE, ZERO, Expr, as_expr, floordiv, product
from kernelwright.agents.drafter.lowering.reductions import reduced
from kernelwright.agents.drafter.lowering.registry import Builder, Unsupported, broadcast, lowers, viewed
from kernelwright.agents.drafter.lowering.views import reshaped
from kernelwright.agents.drafter.values import Guarded, ReduceKind, Shape, Tensor, axis_variables, whole
from kernelwright.tasks.graph import Node


@dataclass(frozen=True)
class _Pool:
    """The window of a pooling, one number for each dimension of space."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceiling: bool
    """Whether the last window may reach over the end."""


def _pool(builder: Builder, node: Node, rank: int, *, dilated: bool) -> _Pool:
    kernel = _spread(builder.integers(node, 1, "kernel_size", ()), rank)
    stride = _spread(builder.integers(node, 2, "stride", kernel), rank)
    padding = _spread(builder.integers(node, 3, "padding", (0,)), rank)
    dilation = _spread(builder.integers(node, 4, "dilation", (1,)) if dilated else (1,), rank)
    return _Pool(kernel, stride, padding, dilation, builder.flag(node, 5 if dilated else 4, "ceil_mode"))


def _windows(
    builder: Builder, tensor: Tensor, space: Shape, pool: _Pool, fill: float, *, padded: bool = False
) -> Tensor:
    """Shape [..., *space, *kernel]: what each window sees; `fill` outside of the tensor, or of its padded self."""
    rank = len(pool.kernel)
    lead = tensor.shape[: len(tensor.shape) - rank]
    shape = (*lead, *space, *(as_expr(k) for k in pool.kernel))
    variables = axis_variables(shape)
    positions = list(variables[: len(lead)])
    bounds: list[tuple[Expr, Expr, Expr]] = []
    for d in range(rank):
        step, window = variables[len(lead) + d], variables[len(lead) + rank + d]
        place = step * pool.stride[d] + window * pool.dilation[d] - pool.padding[d]
        extent = tensor.shape[len(lead) + d]
        positions.append(place)
        reach = (pool.kernel[d] - 1) * pool.dilation[d]
        if pool.padding[d] or pool.ceiling or not _stays_inside(extent, space[d], reach, pool.stride[d]):
            around = pool.padding[d] if padded else 0
            bounds.append((place, as_expr(-around), extent + around))
    inside = viewed(tensor, shape, positions)
    if not bounds:
        return inside
    outside = broadcast(builder.scalar(fill, tensor.dtype), shape)
    return whole(Guarded(builder.fresh("window"), tensor.dtype, shape, tuple(bounds), inside.access, outside.access))


def _stays_inside(extent: Expr, count: Expr, reach: int, stride: int) -> bool:
    if extent.constant is not None and count.constant is not None:
        return (count.constant - 1) * stride + reach < extent.constant
    return True


def _spread(values: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return values * rank if len(values) == 1 else values


def _over_windows(builder: Builder, kind: ReduceKind, windows: Tensor, rank: int) -> Tensor:
    axes = tuple(range(len(windows.shape) - rank, len(windows.shape)))
    return reduced(builder, kind, windows, axes, windows.dtype)


@lowers(
    "max_pool2d_with_indices.default", "max_pool3d_with_indices.default", "max_pool1d.default", "max_pool2d.default"
)
def _max_pool(builder: Builder, node: Node) -> Tensor | list[Tensor | None]:
    rank = 1 if "pool1d" in node.op else 2 if "pool2d" in node.op else 3
    tensor = builder.tensor(node, 0)
    if not tensor.dtype.is_floating:
        raise Unsupported("integers")
    pool = _pool(builder, node, rank, dilated=True)
    windows = _windows(builder, tensor, builder.output_shape(node)[-rank:], pool, -math.inf)
    result = _over_windows(builder, "max", windows, rank)
    return [result, None] if len(node.outputs) > 1 else result


@lowers("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def _avg_pool(builder: Builder, node: Node) -> Tensor:
    rank = int(node.op.split("pool")[1][0])
    tensor, space = builder.tensor(node, 0), builder.output_shape(node)[-rank:]
    pool = _pool(builder, node, rank, dilated=False)
    total = _over_windows(builder, "sum", _windows(builder, tensor, space, pool, 0.0), rank)
    divisor = builder.literal(node, 6, "divisor_override", None)
    padded = builder.flag(node, 5, "count_include_pad", True)
    if divisor is None and (pool.ceiling or (any(pool.padding) and not padded)):
        ones = broadcast(builder.scalar(1.0, tensor.dtype), tensor.shape)
        seen = _windows(builder, ones, space, pool, 0.0, padded=padded)
        return builder.map("div", tensor.dtype, total, _over_windows(builder, "sum", seen, rank))
    count = float(divisor) if isinstance(divisor, int | float) else float(math.prod(pool.kernel))
    return builder.map("div", tensor.dtype, total, builder.scalar(count, tensor.dtype))


@lowers("adaptive_max_pool2d.default", "adaptive_max_pool1d.default", "adaptive_max_pool3d.default")
def _adaptive_max(builder: Builder, node: Node) -> list[Tensor | None]:
    rank = int(node.op.split("pool")[1][0])
    tensor, shape = builder.tensor(node, 0), builder.output_shape(node)
    windows, axes = _equal_windows(tensor, shape, rank)
    return [reshaped(reduced(builder, "max", windows, axes, tensor.dtype), shape), None]


def _equal_windows(tensor: Tensor, shape: Shape, rank: int) -> tuple[Tensor, tuple[int, ...]]:
    """Each dimension of space as (windows, places in a window), and the axes of the places."""
    lead = tensor.shape[:-rank]
    split: list[Expr] = []
    axes: list[int] = []
    for extent, count in zip(tensor.shape[-rank:], shape[-rank:], strict=True):
        if extent.constant is None and count != ONE:
            raise Unsupported("windows of unknown size")
        if extent.constant is not None and (count.constant is None or extent.constant % count.constant):
            raise Unsupported("windows of unequal size")
        split += [count, floordiv(extent, count)]
        axes.append(len(lead) + len(split) - 1)
    return reshaped(tensor, (*lead, *split)), tuple(axes)


@lowers("_adaptive_avg_pool2d.default", "adaptive_avg_pool1d.default", "_adaptive_avg_pool3d.default")
def _adaptive(builder: Builder, node: Node) -> Tensor:
    tensor = builder.tensor(node, 0)
    shape = builder.output_shape(node)
    rank = 1 if "pool1d" in node.op else 2 if "pool2d" in node.op else 3
    if any(e.constant is not None and c.constant and e.constant % c.constant
           for e, c in zip(tensor.shape[-rank:], shape[-rank:], strict=True)):  # fmt: skip
        return _uneven_mean(builder, tensor, shape, rank)
    windows, axes = _equal_windows(tensor, shape, rank)
    total = reduced(builder, "sum", windows, axes, tensor.dtype)
    count = product(windows.shape[a] for a in axes)
    size = builder.cast(builder.position(count, ()), tensor.dtype) if count.constant is None else None
    divisor = size or builder.scalar(float(count.constant or 1), tensor.dtype)
    mean = builder.map("div", tensor.dtype, total, divisor)
    return reshaped(mean, shape)


def _uneven_mean(builder: Builder, tensor: Tensor, shape: Shape, rank: int) -> Tensor:
    """Means over windows [i * n // count, ceil((i + 1) * n / count)), whose sizes differ by up to one."""
    lead = shape[:-rank]
    sizes: list[tuple[int, int]] = []
    for extent, count in zip(tensor.shape[-rank:], shape[-rank:], strict=True):
        if extent.constant is None or count.constant is None:
            raise Unsupported("windows of unknown size")
        sizes.append((extent.constant, count.constant))
    widest = [max(-(-(i + 1) * n // c) - i * n // c for i in range(c)) for n, c in sizes]
    full = (*shape, *(as_expr(w) for w in widest))
    variables = axis_variables(full)
    positions, bounds = list(variables[: len(lead)]), []
    counts: list[Tensor] = []
    for d, (n, c) in enumerate(sizes):
        window = variables[len(lead) + d]
        begin, end = floordiv(window * n, c), floordiv(window * n + (n + c - 1), c)
        place = begin + variables[len(lead) + rank + d]
        positions.append(place)
        bounds.append((place, ZERO, end))
        counts.append(builder.cast(builder.position(end - begin, full), tensor.dtype))
    inside = viewed(tensor, full, positions)
    outside = broadcast(builder.scalar(0.0, tensor.dtype), full)
    seen = whole(Guarded(builder.fresh("window"), tensor.dtype, full, tuple(bounds), inside.access, outside.access))
    for windows in counts:
        seen = builder.map("div", tensor.dtype, seen, windows)
    return _over_windows(builder, "sum", seen, rank)
