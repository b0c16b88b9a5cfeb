"""Views and data movement: permute, reshape, expand, slice, select, cat, flip, pad. No kernel moves data for them alone."""

from __future__ import annotations

from kernelwright.agents.drafter.index import ONE, ZERO, Expr, as_expr, flatten, floordiv, substitute, unflatten
from kernelwright.agents.drafter.lowering.registry import Builder, Unsupported, broadcast, lowers, viewed
from kernelwright.agents.drafter.values import Guarded, Shape, Tensor, axis_variables, whole
from kernelwright.tasks.graph import DimRef, ListArg, LiteralArg, Node


@lowers("clone.default", "alias.default", "detach.default", "lift_fresh_copy.default", "contiguous.default")
def _identity(builder: Builder, node: Node) -> Tensor:
    return builder.tensor(node, 0)


@lowers("view.default", "_unsafe_view.default", "reshape.default", "squeeze.dims", "squeeze.dim", "squeeze.default")
@lowers("unsqueeze.default", "flatten.using_ints")
def _reshape(builder: Builder, node: Node) -> Tensor:
    return reshaped(builder.tensor(node, 0), builder.output_shape(node))


def reshaped(tensor: Tensor, shape: Shape) -> Tensor:
    """The same elements in row-major order under another shape."""
    if shape == tensor.shape:
        return tensor
    variables = axis_variables(shape)
    own = [s for s in tensor.shape if s != ONE]
    if own == [s for s in shape if s != ONE]:
        kept = iter([v for v, s in zip(variables, shape, strict=True) if s != ONE])
        return viewed(tensor, shape, [ZERO if s == ONE else next(kept) for s in tensor.shape])
    return viewed(tensor, shape, unflatten(flatten(variables, shape), tensor.shape))


@lowers("permute.default")
def _permute(builder: Builder, node: Node) -> Tensor:
    tensor = builder.tensor(node, 0)
    return permuted(tensor, [d % len(tensor.shape) for d in builder.integers(node, 1, "dims", ())])


def permuted(tensor: Tensor, order: list[int]) -> Tensor:
    """Dimension `order[i]` of the tensor becomes dimension i."""
    shape = tuple(tensor.shape[d] for d in order)
    variables = axis_variables(shape)
    return viewed(tensor, shape, [variables[order.index(d)] for d in range(len(order))])


@lowers("transpose.int", "t.default")
def _transpose(builder: Builder, node: Node) -> Tensor:
    tensor = builder.tensor(node, 0)
    order = list(range(len(tensor.shape)))
    if len(order) > 1:
        first, second = (builder.integer(node, 1, "dim0", 0), builder.integer(node, 2, "dim1", 1))
        order[first], order[second] = order[second], order[first]
    return permuted(tensor, order)


@lowers("expand.default")
def _expand(builder: Builder, node: Node) -> Tensor:
    return broadcast(builder.tensor(node, 0), builder.output_shape(node))


@lowers("slice.Tensor")
def _slice(builder: Builder, node: Node) -> Tensor:
    tensor = builder.tensor(node, 0)
    axis = builder.integer(node, 1, "dim", 0) % len(tensor.shape)
    start, step = _start(builder, node, tensor.shape[axis]), builder.integer(node, 4, "step", 1)
    shape = builder.output_shape(node)
    positions = list(axis_variables(shape))
    positions[axis] = positions[axis] * step + start
    return viewed(tensor, shape, positions)


def _start(builder: Builder, node: Node, extent: Expr) -> Expr:
    arg = builder.argument(node, 2, "start")
    if arg is None or (isinstance(arg, LiteralArg) and arg.value is None):
        return ZERO
    if isinstance(arg, DimRef) and not isinstance(arg.expression, int):
        return builder.extent(arg)
    start = builder.integer(node, 2, "start", 0)
    return extent + start if start < 0 else as_expr(start)


@lowers("select.int")
def _select(builder: Builder, node: Node) -> Tensor:
    tensor = builder.tensor(node, 0)
    axis = builder.integer(node, 1, "dim", 0) % len(tensor.shape)
    arg = builder.argument(node, 2, "index")
    where = builder.extent(arg)
    if where.constant is not None and where.constant < 0:
        where = where + tensor.shape[axis]
    shape = tensor.shape[:axis] + tensor.shape[axis + 1 :]
    variables = axis_variables(shape)
    return viewed(tensor, shape, [*variables[:axis], where, *variables[axis:]])


@lowers("diagonal.default")
def _diagonal(builder: Builder, node: Node) -> Tensor:
    tensor, rank = builder.tensor(node, 0), len(builder.tensor(node, 0).shape)
    offset = builder.integer(node, 1, "offset", 0)
    first, second = (builder.integer(node, 2 + i, n, i) % rank for i, n in enumerate(("dim1", "dim2")))
    shape = builder.output_shape(node)
    *kept, place = axis_variables(shape)
    rest = iter(kept)
    along = {first: place + max(-offset, 0), second: place + max(offset, 0)}
    return viewed(tensor, shape, [along[a] if a in along else next(rest) for a in range(rank)])


@lowers("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
@lowers("upsample_nearest1d.default", "upsample_nearest2d.default", "upsample_nearest3d.default")
def _nearest(builder: Builder, node: Node) -> Tensor:
    tensor, shape = builder.tensor(node, 0), builder.output_shape(node)
    positions = list(axis_variables(shape))
    for axis in range(2, len(shape)):
        factor = next((f for f in range(1, 9) if tensor.shape[axis] * f == whole_size(shape[axis])), None)
        if factor is None:
            raise Unsupported("a scale that is not a small integer")
        positions[axis] = floordiv(positions[axis], factor)
    return viewed(tensor, shape, positions)


def whole_size(extent: Expr) -> Expr:
    """A size with its sum opened, where it is one."""
    atom = extent.single
    return atom.args[0] if atom is not None and atom.kind == "dim" else extent


@lowers("flip.default")
def _flip(builder: Builder, node: Node) -> Tensor:
    tensor = builder.tensor(node, 0)
    axes = builder.dims(node, 1, "dims", len(tensor.shape))
    positions = [
        tensor.shape[a] - 1 - v if a in axes and v != ZERO else v for a, v in enumerate(axis_variables(tensor.shape))
    ]
    return viewed(tensor, tensor.shape, positions)


@lowers("cat.default")
def _cat(builder: Builder, node: Node) -> Tensor:
    arg = node.args[0]
    if not isinstance(arg, ListArg):
        raise Unsupported("its tensors are not a list")
    dtype, shape = node.outputs[0].dtype, builder.output_shape(node)
    parts = [builder.cast(builder.operand(item, dtype), dtype) for item in arg.items]
    parts = [p for p in parts if p.shape != (ZERO,)]
    axis = builder.integer(node, 1, "dim", 0) % len(shape)
    begins: list[Expr] = [ZERO]
    for part in parts:
        begins.append(begins[-1] + part.shape[axis])
    return joined(builder, parts, begins, shape, axis)


def joined(builder: Builder, parts: list[Tensor], begins: list[Expr], shape: Shape, axis: int) -> Tensor:
    """Parts one after the other along `axis`."""
    variables = axis_variables(shape)
    result: Tensor | None = None
    for part, begin in reversed(list(zip(parts, begins[:-1], strict=True))):
        positions = list(variables)
        positions[axis] = variables[axis] - begin
        seen = viewed(part, shape, positions)
        if result is None:
            result = seen
            continue
        bound = (variables[axis], ZERO, begin + part.shape[axis])
        guarded = Guarded(builder.fresh("cat"), part.dtype, shape, (bound,), seen.access, result.access)
        result = whole(guarded)
    if result is None:
        raise Unsupported("nothing to join")
    return result


@lowers("constant_pad_nd.default")
def _pad(builder: Builder, node: Node) -> Tensor:
    tensor = builder.tensor(node, 0)
    pads = builder.integers(node, 1, "pad", ())
    fill = builder.cast(builder.scalar(builder.number(node, 2, "value", 0.0), tensor.dtype), tensor.dtype)
    shape = builder.output_shape(node)
    positions = list(axis_variables(shape))
    bounds: list[tuple[Expr, Expr, Expr]] = []
    for back, before in enumerate(pads[::2]):
        axis = len(shape) - 1 - back
        if pads[2 * back] or pads[2 * back + 1]:
            positions[axis] = positions[axis] - before
            bounds.append((positions[axis], ZERO, tensor.shape[axis]))
    inside = viewed(tensor, shape, positions)
    outside = broadcast(fill, shape)
    return whole(Guarded(builder.fresh("pad"), tensor.dtype, shape, tuple(bounds), inside.access, outside.access))


@lowers("split_with_sizes.default", "unbind.int", "chunk.default")
@lowers("split.Tensor")
def _split(builder: Builder, node: Node) -> list[Tensor]:
    tensor = builder.tensor(node, 0)
    position = 1 if node.op == "aten.unbind.int" else 2
    axis = builder.integer(node, position, "dim", 0) % len(tensor.shape)
    begin, results = ZERO, []
    for place in range(len(node.outputs)):
        shape = builder.output_shape(node, place)
        variables = list(axis_variables(shape))
        if node.op == "aten.unbind.int":
            results.append(viewed(tensor, shape, [*variables[:axis], as_expr(place), *variables[axis:]]))
            continue
        variables[axis] = variables[axis] + begin
        results.append(viewed(tensor, shape, variables))
        begin = begin + shape[axis]
    return results


@lowers("pixel_shuffle.default")
def _pixel_shuffle(builder: Builder, node: Node) -> Tensor:
    tensor = builder.tensor(node, 0)
    factor = builder.integer(node, 1, "upscale_factor", 1)
    *batch, channels, height, width = tensor.shape
    split = (*batch, floordiv(channels, factor * factor), as_expr(factor), as_expr(factor), height, width)
    lead = len(batch)
    order = [*range(lead + 1), lead + 3, lead + 1, lead + 4, lead + 2]
    return reshaped(permuted(reshaped(tensor, split), order), builder.output_shape(node))


@lowers("repeat.default")
def _repeat(builder: Builder, node: Node) -> Tensor:
    tensor = builder.tensor(node, 0)
    shape = builder.output_shape(node)
    lead = len(shape) - len(tensor.shape)
    positions = []
    for axis, extent in enumerate(tensor.shape):
        place = axis_variables(shape)[lead + axis]
        whole_extent = shape[lead + axis]
        positions.append(ZERO if extent == ONE else place if extent == whole_extent else _remainder(place, extent))
    return viewed(tensor, shape, positions)


def _remainder(place: Expr, extent: Expr) -> Expr:
    return substitute(place - floordiv(place, extent) * extent, {})
