"""Pooling: reductions over a small window whose elements are read at shifted, guarded positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelwright.agents.drafter.index import ONE, ZERO, Expr, as_expr, floordiv, product
from kernelwright.agents.drafter.lowering.reductions import reduced
from kernelwright.agents.drafter.lowering.registry import Builder, Unsupported, broadcast, lowers, viewed
from kernelwright.agents.drafter.values import Guarded, Shape, Tensor, axis_variables, whole
from kernelwright.tasks.graph import Node


def _windows(
    builder: Builder,
    tensor: Tensor,
    space: Shape,
    *,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    fill: float,
) -> Tensor:
    """Shape [..., *space, *kernel]: what each window sees; `fill` outside of the tensor."""
    rank = len(kernel)
    lead = tensor.shape[: len(tensor.shape) - rank]
    shape = (*lead, *space, *(as_expr(k) for k in kernel))
    variables = axis_variables(shape)
    positions = list(variables[: len(lead)])
    bounds: list[tuple[Expr, Expr, Expr]] = []
    for d in range(rank):
        place = variables[len(lead) + d] * stride[d] + variables[len(lead) + rank + d] * dilation[d] - padding[d]
        extent = tensor.shape[len(lead) + d]
        positions.append(place)
        reach = (kernel[d] - 1) * dilation[d]
        if padding[d] or not _stays_inside(extent, space[d], reach, stride[d]):
            bounds.append((place, ZERO, extent))
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


def _pooled(builder: Builder, node: Node, rank: int, *, largest: bool) -> Tensor:
    tensor = builder.tensor(node, 0)
    kernel = _spread(builder.integers(node, 1, "kernel_size", ()), rank)
    stride = _spread(builder.integers(node, 2, "stride", kernel), rank)
    padding = _spread(builder.integers(node, 3, "padding", (0,)), rank)
    dilation = _spread(builder.integers(node, 4, "dilation", (1,)) if largest else (1,), rank)
    if builder.flag(node, 5 if largest else 4, "ceil_mode"):
        raise Unsupported("ceil_mode")
    space = builder.output_shape(node)[-rank:]
    fill = -math.inf if largest else 0.0
    if largest and not tensor.dtype.is_floating:
        raise Unsupported("integers")
    windows = _windows(
        builder, tensor, space, kernel=kernel, stride=stride, padding=padding, dilation=dilation, fill=fill
    )
    axes = tuple(range(len(windows.shape) - rank, len(windows.shape)))
    return reduced(builder, "max" if largest else "sum", windows, axes, tensor.dtype)


@lowers(
    "max_pool2d_with_indices.default", "max_pool3d_with_indices.default", "max_pool1d.default", "max_pool2d.default"
)
def _max_pool(builder: Builder, node: Node) -> Tensor | list[Tensor | None]:
    rank = 1 if "pool1d" in node.op else 2 if "pool2d" in node.op else 3
    result = _pooled(builder, node, rank, largest=True)
    return [result, None] if len(node.outputs) > 1 else result


@lowers("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def _avg_pool(builder: Builder, node: Node) -> Tensor:
    rank = int(node.op.split("pool")[1][0])
    tensor = builder.tensor(node, 0)
    kernel = _spread(builder.integers(node, 1, "kernel_size", ()), rank)
    padding = _spread(builder.integers(node, 3, "padding", (0,)), rank)
    total = _pooled(builder, node, rank, largest=False)
    divisor = builder.literal(node, 6, "divisor_override", None)
    if divisor is None and not builder.flag(node, 5, "count_include_pad", True) and any(padding):
        return builder.map("div", tensor.dtype, total, _valid_counts(builder, node, tensor, total, rank))
    count = float(divisor) if isinstance(divisor, int | float) else float(math.prod(kernel))
    return builder.map("div", tensor.dtype, total, builder.scalar(count, tensor.dtype))


def _valid_counts(builder: Builder, node: Node, tensor: Tensor, total: Tensor, rank: int) -> Tensor:
    ones = broadcast(builder.scalar(1.0, tensor.dtype), tensor.shape)
    kernel = _spread(builder.integers(node, 1, "kernel_size", ()), rank)
    stride = _spread(builder.integers(node, 2, "stride", kernel), rank)
    padding = _spread(builder.integers(node, 3, "padding", (0,)), rank)
    windows = _windows(
        builder,
        ones,
        total.shape[-rank:],
        kernel=kernel,
        stride=stride,
        padding=padding,
        dilation=(1,) * rank,
        fill=0.0,
    )
    axes = tuple(range(len(windows.shape) - rank, len(windows.shape)))
    return reduced(builder, "sum", windows, axes, tensor.dtype)


@lowers("_adaptive_avg_pool2d.default", "adaptive_avg_pool1d.default", "_adaptive_avg_pool3d.default")
def _adaptive(builder: Builder, node: Node) -> Tensor:
    tensor = builder.tensor(node, 0)
    shape = builder.output_shape(node)
    rank = 1 if "pool1d" in node.op else 2 if "pool2d" in node.op else 3
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
    from kernelwright.agents.drafter.lowering.views import reshaped

    windows = reshaped(tensor, (*lead, *split))
    total = reduced(builder, "sum", windows, tuple(axes), tensor.dtype)
    count = product(windows.shape[a] for a in axes)
    size = builder.cast(builder.position(count, ()), tensor.dtype) if count.constant is None else None
    divisor = size or builder.scalar(float(count.constant or 1), tensor.dtype)
    mean = builder.map("div", tensor.dtype, total, divisor)
    return reshaped(mean, shape)
