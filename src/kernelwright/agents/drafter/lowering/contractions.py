"""Matrix products and attention: operands are views of tensors in memory, epilogues are fused around them later."""

from __future__ import annotations

from kernelwright.agents.drafter.index import ZERO, Expr, coefficient, flatten, substitute
from kernelwright.agents.drafter.lowering.registry import Builder, Unsupported, broadcast, lowers, materialised
from kernelwright.agents.drafter.lowering.views import permuted, reshaped
from kernelwright.agents.drafter.values import Access, Attention, Contraction, Shape, Tensor, axis_variables, whole
from kernelwright.core.dtypes import DType
from kernelwright.tasks.graph import Node


def contracted(builder: Builder, left: Tensor, right: Tensor) -> Tensor:
    """[batch.., m, k] @ [batch.., k, n] (equal batch dimensions)."""
    if left.dtype not in (DType.FLOAT32, DType.FLOAT64, DType.BFLOAT16, DType.FLOAT16):
        raise Unsupported("a matrix product of integers")
    shape = (*left.shape[:-1], right.shape[-1])
    left, right = (t if strided(t) else materialised(builder, t) for t in (left, right))
    return whole(
        Contraction(builder.fresh("product"), left.dtype, shape, left.access, right.access, left.shape[-1])
    )


def strided(tensor: Tensor) -> bool:
    """Whether the elements lie at fixed strides, its leading dimensions as one."""
    steps = strides(tensor.access, tensor.shape)
    if steps is None:
        return False
    *batch, _, _ = steps
    sizes = tensor.shape[: len(batch)]
    return all(batch[i] == batch[i + 1] * sizes[i + 1] for i in range(len(batch) - 1))


def strides(access: Access, shape: Shape) -> list[Expr] | None:
    """The distance in memory of neighbours along each dimension of a view; None where it is not fixed."""
    offset = flatten(access.index, access.value.shape)
    found: list[Expr] = []
    for place in axis_variables(shape):
        atom = place.single
        step = ZERO if atom is None else coefficient(offset, atom)
        if step is None or step.variables() or any(a.kind in ("element", "wrap") for a in step.atoms()):
            return None
        found.append(step)
    return found


def base_offset(access: Access, shape: Shape) -> Expr:
    """Where the view's first element lies."""
    offset = flatten(access.index, access.value.shape)
    return substitute(offset, {a: ZERO for p in axis_variables(shape) if (a := p.single) is not None})


@lowers("mm.default", "bmm.default", "matmul.default")
def _product(builder: Builder, node: Node) -> Tensor:
    left, right = builder.tensor(node, 0), builder.tensor(node, 1)
    if len(left.shape) != len(right.shape) or len(left.shape) < 2:
        raise Unsupported("operands of different rank")
    return contracted(builder, left, right)


@lowers("mv.default", "dot.default")
def _vector_product(builder: Builder, node: Node) -> Tensor:
    from kernelwright.agents.drafter.lowering.reductions import reduced

    left, right = builder.tensor(node, 0), builder.tensor(node, 1)
    products = builder.map("mul", left.dtype, left, right)
    return reduced(builder, "sum", products, (len(products.shape) - 1,), left.dtype)


@lowers("addmm.default", "baddbmm.default", "addmv.default")
def _added_product(builder: Builder, node: Node) -> Tensor:
    if "addmv" in node.op:
        raise Unsupported("a vector product with a sum")
    bias, left, right = (builder.tensor(node, i) for i in range(3))
    result = contracted(builder, left, right)
    beta, alpha = builder.number(node, 3, "beta", 1.0), builder.number(node, 4, "alpha", 1.0)
    if alpha != 1.0:
        result = builder.map("mul", result.dtype, result, builder.scalar(alpha, result.dtype))
    if beta == 0.0:
        return result
    if beta != 1.0:
        bias = builder.map("mul", bias.dtype, bias, builder.scalar(beta, bias.dtype))
    return builder.map("add", result.dtype, result, broadcast(bias, result.shape))


@lowers("linear.default")
def _linear(builder: Builder, node: Node) -> Tensor:
    tensor, weight, bias = builder.tensor(node, 0), builder.tensor(node, 1), builder.optional_tensor(node, 2, "bias")
    from kernelwright.agents.drafter.index import product

    rows = reshaped(tensor, (product(tensor.shape[:-1]), tensor.shape[-1]))
    result = contracted(builder, rows, permuted(weight, [1, 0]))
    if bias is not None:
        result = builder.map("add", result.dtype, result, broadcast(bias, result.shape))
    return reshaped(result, (*tensor.shape[:-1], weight.shape[0]))


@lowers("scaled_dot_product_attention.default", "_scaled_dot_product_flash_attention_for_cpu.default")
def _attention(builder: Builder, node: Node) -> Tensor | list[Tensor | None]:
    query, keys, content = (builder.tensor(node, i) for i in range(3))
    flash = "flash" in node.op
    causal = builder.flag(node, 4 if flash else 5, "is_causal")
    if builder.number(node, 3 if flash else 4, "dropout_p", 0.0) != 0.0:
        raise Unsupported("dropout")
    mask = builder.optional_tensor(node, 99 if flash else 3, "attn_mask")
    if mask is not None and mask.dtype is DType.BOOL:
        zero, low = builder.scalar(0.0, query.dtype), builder.scalar(float("-inf"), query.dtype)
        mask = builder.map("where", query.dtype, mask, zero, low)
    scale = builder.literal(node, 99, "scale", None)
    if any(len(t.shape) != 4 for t in (query, keys, content)) or query.shape[:2] != keys.shape[:2]:
        raise Unsupported("heads that are shared or missing")
    result = whole(
        Attention(
            builder.fresh("attention"),
            query.dtype,
            (*query.shape[:3], content.shape[3]),
            query.access,
            keys.access,
            content.access,
            None if mask is None else broadcast(mask, (*query.shape[:3], keys.shape[2])).access,
            causal,
            float(scale) if isinstance(scale, int | float) else None,
        )
    )
    return [result, *([None] * (len(node.outputs) - 1))]

