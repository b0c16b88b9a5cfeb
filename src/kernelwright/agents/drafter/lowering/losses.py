"""Losses that the trace keeps whole."""

from __future__ import annotations

from kernelwright.agents.drafter.lowering.gathering import element
from kernelwright.agents.drafter.lowering.pointwise import Formula
from kernelwright.agents.drafter.lowering.reductions import element_count, reduced
from kernelwright.agents.drafter.lowering.registry import Builder, broadcast, lowers, viewed
from kernelwright.agents.drafter.values import Tensor, axis_variables
from kernelwright.core.dtypes import DType
from kernelwright.tasks.graph import Node

_NONE, _MEAN = 0, 1


@lowers("mse_loss.default", "smooth_l1_loss.default", "huber_loss.default", "l1_loss.default")
def _difference_loss(builder: Builder, node: Node) -> Tensor:
    f = Formula(builder, node.outputs[0].dtype)
    gap = f("sub", *(builder.cast(builder.tensor(node, i), f.dtype) for i in range(2)))
    magnitude = f("abs", gap)
    limit = builder.number(node, 3, "beta" if "smooth" in node.op else "delta", 1.0)
    if "mse" in node.op:
        term = f("mul", gap, gap)
    elif "l1_loss" in node.op and ("smooth" not in node.op or limit == 0):
        term = magnitude
    else:
        square, line = f("mul", f("mul", gap, gap), 0.5), f("sub", magnitude, 0.5 * limit)
        smooth = "smooth" in node.op
        inside = f("div", square, limit) if smooth else square
        outside = line if smooth else f("mul", line, limit)
        term = f.choose(f.test("lt" if smooth else "le", magnitude, limit), inside, outside)
    return _joined(builder, f, term, builder.integer(node, 2, "reduction", _MEAN))


def _joined(builder: Builder, f: Formula, term: Tensor, reduction: int) -> Tensor:
    if reduction == _NONE:
        return term
    axes = tuple(range(len(term.shape)))
    total = reduced(builder, "sum", term, axes, f.dtype) if axes else term
    return f("div", total, element_count(builder, term, axes, f.dtype)) if reduction == _MEAN else total


@lowers("nll_loss_forward.default", "nll_loss2d_forward.default")
def _nll(builder: Builder, node: Node) -> list[Tensor | None]:
    scores, target, weight = (builder.optional_tensor(node, i) for i in range(3))
    assert scores is not None
    assert target is not None
    f = Formula(builder, scores.dtype)
    reduction = builder.integer(node, 3, "reduction", _MEAN)
    ignored = builder.scalar(builder.integer(node, 4, "ignore_index", -100), target.dtype)
    valid = builder.map("ne", DType.BOOL, target, ignored)
    safe = builder.map("where", target.dtype, valid, target, builder.scalar(0, target.dtype))
    positions = list(axis_variables(target.shape))
    class_axis = 1 if len(scores.shape) > 1 else 0
    positions.insert(class_axis, element(safe))
    loss = f("neg", viewed(scores, target.shape, positions))
    one = broadcast(f.number(1.0), target.shape)
    share = one if weight is None else viewed(weight, target.shape, [element(safe)])
    share = f.choose(valid, share, 0.0)
    loss = f.choose(valid, loss if weight is None else f("mul", loss, share), 0.0)
    if reduction == _NONE:
        return [loss, builder.scalar(0.0, f.dtype)]
    axes = tuple(range(len(target.shape)))
    total = reduced(builder, "sum", loss, axes, f.dtype) if axes else loss
    shares = reduced(builder, "sum", share, axes, f.dtype) if axes else share
    return [f("div", total, shares) if reduction == _MEAN else total, shares]
