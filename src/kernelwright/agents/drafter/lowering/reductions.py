"""Reductions and scans over named dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelwright.agents.drafter.index import ONE, Atom, Expr, product
from kernelwright.agents.drafter.lowering.pointwise import Formula
from kernelwright.agents.drafter.lowering.registry import Builder, Unsupported, broadcast, lowers, viewed
from kernelwright.agents.drafter.lowering.views import reshaped
from kernelwright.agents.drafter.values import (
    Access,
    Reduce,
    ReduceKind,
    Scan,
    ScanKind,
    Tensor,
    axis_variables,
    whole,
    window_variable,
)
from kernelwright.core.dtypes import DType
from kernelwright.tasks.graph import LiteralArg, Node


def reduced(builder: Builder, kind: ReduceKind, tensor: Tensor, axes: Sequence[int], dtype: DType) -> Tensor:
    """`tensor` combined over `axes`, which vanish from the shape."""
    if any(tensor.shape[a] == ONE for a in axes):
        return _reduced_wide(builder, kind, tensor, axes, dtype)
    kept = [a for a in range(len(tensor.shape)) if a not in axes]
    shape = tuple(tensor.shape[a] for a in kept)
    ranges = tuple(tensor.shape[a] for a in axes)
    outer = axis_variables(shape)
    positions: list[Expr] = []
    layout: list[int] = []
    for axis in range(len(tensor.shape)):
        if axis in axes:
            place = list(axes).index(axis)
            positions.append(window_variable(place, ranges[place]))
            layout.append(-1 - place)
        else:
            positions.append(outer[kept.index(axis)])
            layout.append(kept.index(axis))
    # The operand's own variables d0.. and the reader's d0.. share names: go through viewed(), which replaces all at once.
    operand = viewed(tensor, tensor.shape, positions).access
    name = builder.fresh(kind)
    return whole(Reduce(name, dtype, shape, kind, operand, ranges, tuple(layout)))


def _reduced_wide(builder: Builder, kind: ReduceKind, tensor: Tensor, axes: Sequence[int], dtype: DType) -> Tensor:
    """A reduction some of whose axes have one element, which need no loop."""
    left = [a for a in range(len(tensor.shape)) if a not in axes or tensor.shape[a] != ONE]
    flat = reshaped(tensor, tuple(tensor.shape[a] for a in left))
    wide = [place for place, a in enumerate(left) if a in axes]
    if wide:
        return reduced(builder, kind, flat, wide, dtype)
    if kind in ("argmax", "argmin"):
        return broadcast(builder.scalar(0, dtype), flat.shape)
    return builder.cast(flat, dtype)


def kept_dims(tensor: Tensor, axes: Sequence[int]) -> Tensor:
    """A reduced tensor with its vanished axes put back as size one."""
    rank = len(tensor.shape) + len(axes)
    sizes = iter(tensor.shape)
    return reshaped(tensor, tuple(ONE if a in axes else next(sizes) for a in range(rank)))


def element_count(builder: Builder, tensor: Tensor, axes: Sequence[int], dtype: DType) -> Tensor:
    """Number of elements along `axes`, as a scalar."""
    count = product(tensor.shape[a] for a in axes)
    if count.constant is not None:
        return builder.scalar(float(count.constant), dtype)
    return builder.cast(builder.position(count, ()), dtype)


def _kept(builder: Builder, node: Node, result: Tensor, axes: Sequence[int], position: int) -> Tensor:
    return kept_dims(result, axes) if builder.flag(node, position, "keepdim") else result


@lowers("sum.dim_IntList", "sum.default", "mean.dim", "mean.default", "prod.dim_int", "prod.default")
@lowers("amax.default", "amin.default", "max.default", "min.default", "any.dim", "any.default", "any.dims")
@lowers("all.dim", "all.default", "all.dims")
def _reduce(builder: Builder, node: Node) -> Tensor:
    name, overload = node.op.split(".")[1:]
    dtype = node.outputs[0].dtype
    tensor = builder.cast(builder.tensor(node, 0), dtype)
    per_axis = overload != "default" or name in ("amax", "amin")
    axes = builder.dims(node, 1, "dim", len(tensor.shape)) if per_axis else tuple(range(len(tensor.shape)))
    kinds: dict[str, ReduceKind] = {
        "sum": "sum", "mean": "sum", "prod": "prod", "amax": "max", "max": "max", "amin": "min", "min": "min",
        "any": "any", "all": "all",
    }  # fmt: skip
    result = reduced(builder, kinds[name], tensor, axes, dtype) if axes else tensor
    if name == "mean":
        result = builder.map("div", dtype, result, element_count(builder, tensor, axes, dtype))
    return _kept(builder, node, result, axes, 2) if per_axis else result


@lowers("argmax.default", "argmin.default")
def _arg_reduce(builder: Builder, node: Node) -> Tensor:
    tensor = builder.tensor(node, 0)
    kind: ReduceKind = "argmax" if "argmax" in node.op else "argmin"
    arg = builder.argument(node, 1, "dim")
    if arg is None or (isinstance(arg, LiteralArg) and arg.value is None):
        flat = reshaped(tensor, (product(tensor.shape),))
        result = reduced(builder, kind, flat, (0,), DType.INT64)
        return reshaped(result, builder.output_shape(node))
    axes = builder.dims(node, 1, "dim", len(tensor.shape))
    if not tensor.shape:
        raise Unsupported("a position in a scalar")
    return _kept(builder, node, reduced(builder, kind, tensor, axes, DType.INT64), axes, 2)


@lowers("max.dim", "min.dim")
def _max_with_index(builder: Builder, node: Node) -> list[Tensor]:
    tensor = builder.tensor(node, 0)
    if not tensor.shape:
        raise Unsupported("a position in a scalar")
    largest = "max" in node.op
    axes = builder.dims(node, 1, "dim", len(tensor.shape))
    values = reduced(builder, "max" if largest else "min", tensor, axes, tensor.dtype)
    places = reduced(builder, "argmax" if largest else "argmin", tensor, axes, DType.INT64)
    return [_kept(builder, node, values, axes, 2), _kept(builder, node, places, axes, 2)]


def moments(builder: Builder, tensor: Tensor, axes: Sequence[int], correction: float) -> tuple[Tensor, Tensor]:
    """Mean and variance over `axes`, both with the axes kept; two passes, so that nothing cancels."""
    f = Formula(builder, tensor.dtype)
    count = element_count(builder, tensor, axes, tensor.dtype)
    mean = f("div", kept_dims(reduced(builder, "sum", tensor, axes, tensor.dtype), axes), count)
    centred = f("sub", tensor, mean)
    squares = kept_dims(reduced(builder, "sum", f("mul", centred, centred), axes, tensor.dtype), axes)
    divisor = count if correction == 0 else f("maximum", f("sub", count, correction), 0.0)
    return mean, f("div", squares, divisor)


@lowers("var.correction", "var_mean.correction", "var.dim", "std.correction")
def _variance(builder: Builder, node: Node) -> Tensor | list[Tensor]:
    tensor = builder.tensor(node, 0)
    axes = builder.dims(node, 1, "dim", len(tensor.shape))
    correction = builder.number(node, 2, "correction", 1.0)
    mean, variance = moments(builder, tensor, axes, correction)
    if "std" in node.op:
        variance = builder.map("sqrt", variance.dtype, variance)
    shapes = [builder.output_shape(node, i) for i in range(len(node.outputs))]
    results = [reshaped(t, s) for t, s in zip((variance, mean), shapes, strict=False)]
    return results if "var_mean" in node.op else results[0]


@lowers("linalg_vector_norm.default")
def _norm(builder: Builder, node: Node) -> Tensor:
    tensor = builder.cast(builder.tensor(node, 0), node.outputs[0].dtype)
    f = Formula(builder, tensor.dtype)
    order = builder.number(node, 1, "ord", 2.0)
    axes = builder.dims(node, 2, "dim", len(tensor.shape))
    magnitude = f("abs", tensor)
    kind: ReduceKind = "max" if order == math.inf else "min" if order == -math.inf else "sum"
    terms = {
        2.0: lambda: f("mul", tensor, tensor),
        1.0: lambda: magnitude,
        0.0: lambda: f.choose(f.test("ne", tensor, 0.0), 1.0, 0.0),
    }
    term = magnitude if math.isinf(order) else terms.get(order, lambda: f("pow", magnitude, order))()
    result = reduced(builder, kind, term, axes, tensor.dtype)
    if order == 2.0:
        result = f("sqrt", result)
    elif not math.isinf(order) and order not in (0.0, 1.0):
        result = f("pow", result, 1.0 / order)
    return _kept(builder, node, result, axes, 3)


@lowers("logsumexp.default")
def _logsumexp(builder: Builder, node: Node) -> Tensor:
    tensor = builder.cast(builder.tensor(node, 0), node.outputs[0].dtype)
    axes = builder.dims(node, 1, "dim", len(tensor.shape))
    f = Formula(builder, tensor.dtype)
    top = kept_dims(reduced(builder, "max", tensor, axes, tensor.dtype), axes)
    terms = f("exp_below_zero", f("sub", tensor, top))
    total = kept_dims(reduced(builder, "sum", terms, axes, tensor.dtype), axes)
    endless = f.test("eq", f("abs", top), math.inf)
    return reshaped(f.choose(endless, top, f("add", f("log", total), top)), builder.output_shape(node))


@lowers("cumsum.default", "cumprod.default")
def _scan(builder: Builder, node: Node) -> Tensor:
    dtype = node.outputs[0].dtype
    tensor = builder.cast(builder.tensor(node, 0), dtype)
    if not tensor.shape:
        return tensor
    axis = builder.integer(node, 1, "dim", 0) % len(tensor.shape)
    kind: ScanKind = "sum" if "cumsum" in node.op else "prod"
    return scanned(builder, kind, tensor, axis)


@lowers("cummax.default", "cummin.default")
def _scan_with_index(builder: Builder, node: Node) -> list[Tensor]:
    raise Unsupported("running maximum with positions")


def scanned(builder: Builder, kind: ScanKind, tensor: Tensor, axis: int) -> Tensor:
    """The running combination along `axis`."""
    return whole(Scan(builder.fresh("scan"), tensor.dtype, tensor.shape, kind, tensor.access, axis))


def variable_of(expression: Expr) -> Atom | None:
    """The loop variable that an index is, if it is nothing more."""
    atom = expression.single
    return atom if atom is not None and atom.kind == "var" else None


def reads(access: Access) -> Tensor:
    """A tensor that is exactly an access (over its own variables)."""
    return Tensor(access, access.value.shape, access.value.dtype)
