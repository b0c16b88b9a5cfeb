"""Matrix products and attention: operands are views of tensors in memory, epilogues are fused around them later."""

from __future__ import annotations

from kernelwright.agents.drafter.fusion import Walk
from kernelwright.agents.drafter.index import ONE, ZERO, Expr, coefficient, flatten, substitute
from kernelwright.agents.drafter.lowering.normalization import normal_weights
from kernelwright.agents.drafter.lowering.pointwise import Formula
from kernelwright.agents.drafter.lowering.registry import Builder, Unsupported, broadcast, lowers, materialised, viewed
from kernelwright.agents.drafter.lowering.views import permuted, reshaped
from kernelwright.agents.drafter.values import Access, Attention, Contraction, Shape, Tensor, axis_variables, whole
from kernelwright.core.dtypes import DType
from kernelwright.tasks.graph import Node


def contracted(builder: Builder, left: Tensor, right: Tensor) -> Tensor:
    """[batch.., m, k] @ [batch.., k, n] (equal batch dimensions)."""
    if left.dtype not in (DType.FLOAT32, DType.FLOAT64, DType.BFLOAT16, DType.FLOAT16):
        raise Unsupported("a matrix product of integers")
    attention = _as_attention(builder, left, right)
    if attention is not None:
        return attention
    shape = (*left.shape[:-1], right.shape[-1])
    left, right = (t if strided(t) else materialised(builder, t) for t in (left, right))
    return whole(Contraction(builder.fresh("product"), left.dtype, shape, left.access, right.access, left.shape[-1]))


def _as_attention(builder: Builder, left: Tensor, right: Tensor) -> Tensor | None:
    """softmax(something made of q k^T) @ v as one attention, where `left` is such a softmax."""
    taken = builder.softmaxes.get(id(left.value))
    if taken is None or left.dtype is DType.FLOAT64 or len(left.shape) not in (2, 3) or len(taken.shape) < 2:
        return None
    scores = viewed(taken, left.shape, left.access.index)
    walk = Walk(set())
    walk.visit(scores.value, scores.access.index)
    products = {id(v): (v, i) for v, i in walk.hits}
    if len(products) != 1 or len(walk.hits) != 1:
        return None
    product, place = walk.hits[0]
    if not isinstance(product, Contraction) or place != axis_variables(left.shape) or product.shape != left.shape:
        return None
    assert product.left is not None
    assert product.right is not None
    *batch, queries, keys = left.shape
    query = Tensor(product.left, (*batch, queries, product.inner), left.dtype)
    turned = Tensor(product.right, (*batch, product.inner, keys), left.dtype)
    last = len(left.shape) - 1
    operands = (query, permuted(turned, [*range(last - 1), last, last - 1]), right)
    four = [reshaped(t, _apart(t.shape)) for t in operands]
    if any(strides(t.access, t.shape) is None for t in four[:2]):
        return None
    content = four[2] if strides(four[2].access, four[2].shape) is not None else materialised(builder, four[2])
    shape = (*four[0].shape[:3], content.shape[3])
    spelled = reshaped(scores, (*shape[:3], keys))
    accesses = (four[0].access, four[1].access, content.access, spelled.access)
    sizes = (ONE, keys, product.inner)
    name = builder.fresh("attention")
    result = whole(Attention(name, left.dtype, shape, *accesses, sizes, product, causal=False, scale=1.0))
    return reshaped(result, (*left.shape[:-1], right.shape[-1]))


def _apart(shape: Shape) -> Shape:
    """[batch, 1, length, width]."""
    return (shape[0] if len(shape) == 3 else ONE, ONE, *shape[-2:])


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
    if builder.number(node, 3 if flash else 4, "dropout_p", 0.0) != 0.0:
        raise Unsupported("dropout")
    mask = builder.optional_tensor(node, 99 if flash else 3, "attn_mask")
    if mask is not None and mask.dtype is DType.BOOL:
        zero, low = builder.scalar(0.0, query.dtype), builder.scalar(float("-inf"), query.dtype)
        mask = builder.map("where", query.dtype, mask, zero, low)
    scale = builder.literal(node, 99, "scale", None)
    factor = float(scale) if isinstance(scale, int | float) else None
    causal = builder.flag(node, 4 if flash else 5, "is_causal")
    shape = builder.output_shape(node)
    if query.dtype is DType.FLOAT64:
        result = _spelled_out(builder, query, keys, content, mask, causal=causal, scale=factor)
    else:
        four = [reshaped(t, _four(t.shape)) for t in (query, keys, content)]
        result = attended(builder, four[0], four[1], four[2], mask, causal=causal, scale=factor)
        result = reshaped(result, shape)
    return [result, *([None] * (len(node.outputs) - 1))]


def _four(shape: Shape) -> Shape:
    """[batch, heads, length, width] of what may lack heads or batch."""
    if len(shape) > 4 or len(shape) < 2:
        raise Unsupported("more than one batch dimension")
    *lead, length, width = shape
    return (*lead, *([ONE] * (2 - len(lead))), length, width)


def attended(
    builder: Builder,
    query: Tensor,
    keys: Tensor,
    content: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    scale: float | None,
) -> Tensor:
    """Attention over [batch, heads, length, width]; several query heads may share a head of keys."""
    if query.shape[0] != keys.shape[0] or keys.shape[:3] != content.shape[:3]:
        raise Unsupported("batches that differ")
    query, keys, content = (
        t if strides(t.access, t.shape) is not None else materialised(builder, t) for t in (query, keys, content)
    )
    wide = None if mask is None else broadcast(mask, (*query.shape[:3], keys.shape[2]))
    shape = (*query.shape[:3], content.shape[3])
    accesses = (query.access, keys.access, content.access, None if wide is None else wide.access)
    sizes = (keys.shape[1], keys.shape[2], query.shape[3])
    return whole(Attention(builder.fresh("attention"), query.dtype, shape, *accesses, sizes, None, causal, scale))


def _spelled_out(
    builder: Builder,
    query: Tensor,
    keys: Tensor,
    content: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    scale: float | None,
) -> Tensor:
    """Attention as two products and a softmax, in the type of the data."""
    f = Formula(builder, query.dtype)
    if query.shape[:-2] != keys.shape[:-2]:
        raise Unsupported("heads that are shared, in float64")
    last = len(keys.shape) - 1
    turned = permuted(keys, [*range(last - 1), last, last - 1])
    scores = contracted(builder, query, turned)
    if scale is None:
        width = builder.cast(builder.position(query.shape[-1], ()), f.dtype)
        scores = f("mul", scores, f("rsqrt", width))
    else:
        scores = f("mul", scores, scale)
    if causal:
        *_, row, column = axis_variables(scores.shape)
        behind = builder.position(column - row, scores.shape)
        seen = builder.map("le", DType.BOOL, behind, builder.scalar(0, DType.INT64))
        scores = f.choose(seen, scores, float("-inf"))
    if mask is not None:
        scores = f("add", scores, builder.cast(mask, f.dtype))
    return contracted(builder, normal_weights(builder, scores, last), content)
