"""Softmax and the normalisations, as reductions and elementwise steps."""

from __future__ import annotations

from kernelwright.agents.drafter.index import ONE, as_expr, floordiv, product
from kernelwright.agents.drafter.lowering.pointwise import Formula
from kernelwright.agents.drafter.lowering.reductions import element_count, kept_dims, moments, reduced
from kernelwright.agents.drafter.lowering.registry import Builder, lowers
from kernelwright.agents.drafter.lowering.views import reshaped
from kernelwright.agents.drafter.values import Tensor
from kernelwright.core.dtypes import DType
from kernelwright.tasks.graph import ListArg, Node


@lowers("_softmax.default", "_log_softmax.default", "softmax.int", "log_softmax.int", "_safe_softmax.default")
def _softmax(builder: Builder, node: Node) -> Tensor:
    tensor = builder.cast(builder.tensor(node, 0), node.outputs[0].dtype)
    f = Formula(builder, tensor.dtype)
    if not tensor.shape:
        return f("sub", f("add", tensor, 1.0), tensor)
    axis = builder.integer(node, 1, "dim", -1) % len(tensor.shape)
    top = kept_dims(reduced(builder, "max", tensor, (axis,), tensor.dtype), (axis,))
    shifted = f("sub", tensor, top)
    # Next to a sum of at least one, denormal terms do not matter; as results of a softmax they may.
    weights = f("exp_below_zero" if "log_softmax" in node.op else "exp", shifted)
    total = kept_dims(reduced(builder, "sum", weights, (axis,), tensor.dtype), (axis,))
    if "log_softmax" in node.op:
        return f("sub", shifted, f("log", total))
    result = f("mul", weights, f("reciprocal", total))
    if axis == len(tensor.shape) - 1 and "safe" not in node.op:
        builder.softmaxes[id(result.value)] = tensor
    if "safe" in node.op:
        dead = f.test("eq", top, float("-inf"))
        return f.choose(dead, 0.0, result)
    return result


def normal_weights(builder: Builder, tensor: Tensor, axis: int) -> Tensor:
    """The softmax of `tensor` along `axis`."""
    f = Formula(builder, tensor.dtype)
    top = kept_dims(reduced(builder, "max", tensor, (axis,), tensor.dtype), (axis,))
    weights = f("exp", f("sub", tensor, top))
    total = kept_dims(reduced(builder, "sum", weights, (axis,), tensor.dtype), (axis,))
    return f("mul", weights, f("reciprocal", total))


def _affine(f: Formula, tensor: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        tensor = f("mul", tensor, f.builder.cast(weight, f.dtype))
    if bias is not None:
        tensor = f("add", tensor, f.builder.cast(bias, f.dtype))
    return tensor


@lowers("native_layer_norm.default", "layer_norm.default")
def _layer_norm(builder: Builder, node: Node) -> Tensor | list[Tensor]:
    tensor = builder.tensor(node, 0)
    shape_arg = node.args[1]
    rank = len(shape_arg.items) if isinstance(shape_arg, ListArg) else 1
    axes = tuple(range(len(tensor.shape) - rank, len(tensor.shape)))
    f = Formula(builder, tensor.dtype)
    mean, variance = moments(builder, tensor, axes, 0.0)
    scale = f("rsqrt", f("add", variance, builder.number(node, 4, "eps", 1e-5)))
    normal = f("mul", f("sub", tensor, mean), scale)
    weight, bias = builder.optional_tensor(node, 2, "weight"), builder.optional_tensor(node, 3, "bias")
    result = _affine(f, normal, weight, bias)
    statistics = [
        reshaped(builder.cast(t, spec.dtype), builder.output_shape(node, 1 + i))
        for i, (t, spec) in enumerate(zip((mean, scale), node.outputs[1:], strict=False))
    ]
    return [result, *statistics] if statistics else result


@lowers("rms_norm.default", "_fused_rms_norm.default")
def _rms_norm(builder: Builder, node: Node) -> Tensor | list[Tensor]:
    tensor = builder.tensor(node, 0)
    shape_arg = node.args[1]
    rank = len(shape_arg.items) if isinstance(shape_arg, ListArg) else 1
    axes = tuple(range(len(tensor.shape) - rank, len(tensor.shape)))
    f = Formula(builder, tensor.dtype)
    epsilon = builder.literal(node, 3, "eps", None)
    total = kept_dims(reduced(builder, "sum", f("mul", tensor, tensor), axes, tensor.dtype), axes)
    mean = f("div", total, element_count(builder, tensor, axes, tensor.dtype))
    default = max(tensor.dtype.epsilon, DType.FLOAT32.epsilon) if tensor.dtype is not DType.FLOAT64 else 2.0**-52
    offset = float(epsilon) if isinstance(epsilon, int | float) else default
    scale = f("rsqrt", f("add", mean, offset))
    result = _affine(f, f("mul", tensor, scale), builder.optional_tensor(node, 2, "weight"), None)
    if len(node.outputs) == 1:
        return result
    return [result, reshaped(builder.cast(scale, node.outputs[1].dtype), builder.output_shape(node, 1))]


@lowers("native_group_norm.default", "group_norm.default")
def _group_norm(builder: Builder, node: Node) -> Tensor | list[Tensor]:
    tensor = builder.tensor(node, 0)
    position, lead = (6, 2) if "native" in node.op else (1, 2)
    groups = builder.integer(node, position, "num_groups", 1)
    weight_at = 1 if "native" in node.op else lead
    weight = builder.optional_tensor(node, weight_at, "weight")
    bias = builder.optional_tensor(node, weight_at + 1, "bias")
    batch, channels, *space = tensor.shape
    per_group, inner = floordiv(channels, groups), product(space)
    split = reshaped(tensor, (batch, as_expr(groups), per_group, inner))
    f = Formula(builder, tensor.dtype)
    mean, variance = moments(builder, split, (2, 3), 0.0)
    epsilon = builder.number(node, 7 if "native" in node.op else 4, "eps", 1e-5)
    scale = f("rsqrt", f("add", variance, epsilon))
    normal = f("mul", f("sub", split, mean), scale)
    per_channel = (as_expr(groups), per_group, ONE)
    result = _affine(
        f,
        normal,
        None if weight is None else reshaped(weight, per_channel),
        None if bias is None else reshaped(bias, per_channel),
    )
    statistics = [
        reshaped(builder.cast(t, spec.dtype), builder.output_shape(node, 1 + i))
        for i, (t, spec) in enumerate(zip((mean, scale), node.outputs[1:], strict=False))
    ]
    out = reshaped(result, tensor.shape)
    return [out, *statistics] if statistics else out


@lowers("_native_batch_norm_legit_no_training.default")
def _batch_norm(builder: Builder, node: Node) -> list[Tensor | None]:
    tensor = builder.tensor(node, 0)
    f = Formula(builder, tensor.dtype)
    per_channel = (tensor.shape[1], *(ONE for _ in tensor.shape[2:]))

    def channel(position: int) -> Tensor | None:
        found = builder.optional_tensor(node, position)
        return None if found is None else reshaped(builder.cast(found, f.dtype), per_channel)

    mean, variance = channel(3), channel(4)
    assert mean is not None
    assert variance is not None
    scale = f("rsqrt", f("add", variance, builder.number(node, 6, "eps", 1e-5)))
    result = _affine(f, f("mul", f("sub", tensor, mean), scale), channel(1), channel(2))
    return [result, *([None] * (len(node.outputs) - 1))]


@lowers("_native_batch_norm_legit.no_stats", "_native_batch_norm_legit.default", "native_batch_norm.default")
def _batch_norm_training(builder: Builder, node: Node) -> list[Tensor]:
    from kernelwright.agents.drafter.lowering.registry import Unsupported

    if "no_stats" not in node.op:
        raise Unsupported("batch norm that updates its statistics")
    tensor = builder.tensor(node, 0)
    f = Formula(builder, tensor.dtype)
    axes = tuple(a for a in range(len(tensor.shape)) if a != 1)
    mean, variance = moments(builder, tensor, axes, 0.0)
    scale = f("rsqrt", f("add", variance, builder.number(node, 5, "eps", 1e-5)))
    per_channel = (tensor.shape[1], *(ONE for _ in tensor.shape[2:]))
    weight, bias = builder.optional_tensor(node, 1), builder.optional_tensor(node, 2)
    result = _affine(
        f,
        f("mul", f("sub", tensor, mean), scale),
        None if weight is None else reshaped(weight, per_channel),
        None if bias is None else reshaped(bias, per_channel),
    )
    return [result, reshaped(mean, (tensor.shape[1],)), reshaped(scale, (tensor.shape[1],))]
