"""Arithmetic of one graph node: how many scalar operations its definition asks for.

Conventions, after the usual ones for rooflines: an addition, multiplication, comparison or conversion of one element is
one operation, a multiply-add two; moving, reshaping or selecting elements is none. Functions that a processor computes
by polynomial carry a fixed weight, about the vector instructions of a good implementation; they are weights, not measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod

from kernelwright.tasks.graph import Arg, DimRef, ListArg, LiteralArg, Node, ValueRef

Shape = tuple[int, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


MOVES = frozenset(
    _words(
        "view _unsafe_view reshape permute transpose t expand expand_as unsqueeze squeeze slice select clone contiguous alias "
        "detach lift_fresh_copy split split_with_sizes unbind chunk cat stack copy constant_pad_nd pad flip roll repeat narrow "
        "gather index index_select embedding take_along_dim full full_like zeros zeros_like ones ones_like arange eye empty "
        "empty_like scalar_tensor scatter slice_scatter select_scatter as_strided unfold diagonal diag_embed tril triu "
        "where masked_fill _to_copy to view_as sym_size lift_fresh squeeze_copy pixel_shuffle _reshape_alias movedim"
    )
)
"""Operations that move or choose elements and compute nothing."""

_DIVISION = 4
_TRANSCENDENTAL = 8
WEIGHTS: dict[str, int] = {
    **dict.fromkeys(("div", "sqrt", "rsqrt", "reciprocal", "fmod", "remainder", "floor_divide"), _DIVISION),
    **dict.fromkeys(
        _words(
            "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sigmoid erf erfc sinh cosh asin acos atan atan2 "
            "asinh acosh atanh pow erfinv lgamma digamma"
        ),
        _TRANSCENDENTAL,
    ),
    **dict.fromkeys(
        ("gelu", "silu", "softplus", "logit", "elu", "celu", "selu", "log_sigmoid", "mish"), _TRANSCENDENTAL + 2
    ),
    **dict.fromkeys(
        ("hardswish", "hardsigmoid", "hardtanh", "clamp", "addcmul", "lerp", "huber_loss", "smooth_l1_loss"), 2
    ),
}
"""Operations per output element of pointwise functions that cost more than one."""

REDUCTIONS: dict[str, int] = {
    **dict.fromkeys(
        _words(
            "sum mean prod amax amin max min argmax argmin any all cumsum cumprod cummax cummin nansum median count_nonzero "
            "aminmax trace topk kthvalue"
        ),
        1,
    ),
    **dict.fromkeys(("var", "std", "var_mean", "linalg_vector_norm", "norm", "dist"), 3),
    **dict.fromkeys(("logsumexp", "logcumsumexp"), _TRANSCENDENTAL + 3),
    **dict.fromkeys(("_softmax", "_log_softmax", "softmax", "log_softmax"), _TRANSCENDENTAL + 4),
    **dict.fromkeys(
        ("native_layer_norm", "native_group_norm", "layer_norm", "group_norm", "_fused_rms_norm", "rms_norm"), 7
    ),
    **dict.fromkeys(
        ("_native_batch_norm_legit_no_training", "_native_batch_norm_legit", "native_batch_norm", "batch_norm"), 2
    ),
}
"""Operations per *input* element of functions that read each element of their first argument."""


@dataclass(frozen=True)
class OperationCount:
    """Scalar operations of one node; `product` when they are multiply-adds of a matrix product, convolution or attention."""

    operations: int
    product: bool = False


def count(node: Node, shapes: Mapping[str, Shape], axes: Mapping[str, int]) -> OperationCount:
    """The operations of `node`, given the shape of every value it reads and of its results."""
    name = base_name(node.op)
    inputs = [shapes[ref] for ref in references(node.args) if ref in shapes]
    outputs = [shapes[spec.name] for spec in node.outputs]
    output = outputs[0] if outputs else ()
    if name in MOVES:
        return OperationCount(0)
    if name in _PRODUCTS and inputs:
        return OperationCount(_PRODUCTS[name](node, inputs, output), product=True)
    if name == "sort" and inputs:
        return OperationCount(int(prod(inputs[0]) * log2(max(2, inputs[0][-1] if inputs[0] else 2))))
    if name in REDUCTIONS and inputs and not _is_binary_extremum(name, inputs):
        return OperationCount(REDUCTIONS[name] * prod(inputs[0]))
    if "pool" in name:
        return OperationCount(_pooling(node, inputs, output))
    return OperationCount(WEIGHTS.get(name, 1) * prod(output))


def base_name(op: str) -> str:
    """`aten.add.Tensor` to `add`."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def references(args: Sequence[Arg]) -> list[str]:
    """Names of all values in an argument list, lists included."""
    found: list[str] = []
    for arg in args:
        match arg:
            case ValueRef(name=name):
                found.append(name)
            case ListArg(items=items):
                found.extend(references(items))
            case _:
                pass
    return found


def _is_binary_extremum(name: str, inputs: Sequence[Shape]) -> bool:
    return name in ("max", "min") and len(inputs) > 1


def _matmul(node: Node, inputs: Sequence[Shape], output: Shape) -> int:
    first, second = inputs[0], inputs[1]
    if len(first) == 1 and len(second) == 1:
        return 2 * first[0]
    return 2 * prod(output) * first[-1]


def _added_matmul(node: Node, inputs: Sequence[Shape], output: Shape) -> int:
    return _matmul(node, inputs[1:], output) + prod(output)


def _linear(node: Node, inputs: Sequence[Shape], output: Shape) -> int:
    bias = prod(output) if len(inputs) > 2 else 0
    return 2 * prod(output) * inputs[0][-1] + bias


def _convolution(node: Node, inputs: Sequence[Shape], output: Shape) -> int:
    image, weight = inputs[0], inputs[1]
    bias = prod(output) if len(inputs) > 2 else 0
    if _literal(node, 6, default=False):
        # Transposed: every input element meets every weight of its channel.
        return 2 * prod(image) * prod(weight[1:]) + bias
    return 2 * prod(output) * prod(weight[1:]) + bias


def _attention(node: Node, inputs: Sequence[Shape], output: Shape) -> int:
    query, key, value = inputs[:3]
    rows, columns = query[-2], key[-2]
    causal = _causal(node)
    pairs = sum(min(row + 1, columns) for row in range(rows)) if causal else rows * columns
    per_pair = 2 * query[-1] + 2 * value[-1] + REDUCTIONS["_softmax"]
    return prod(query[:-2]) * pairs * per_pair


def _causal(node: Node) -> bool:
    given = node.kwargs.get("is_causal")
    if isinstance(given, LiteralArg):
        return bool(given.value)
    # scaled_dot_product_attention(q, k, v, mask, dropout, causal); the flash and fused forms have no mask there.
    positions = (5,) if base_name(node.op) == "scaled_dot_product_attention" else (4, 3)
    for position in positions:
        value = _literal(node, position, default=None)
        if isinstance(value, bool):
            return value
    return False


def _pooling(node: Node, inputs: Sequence[Shape], output: Shape) -> int:
    if not inputs:
        return prod(output)
    if "adaptive" in node.op or len(node.args) < 2 or not isinstance(node.args[1], ListArg):
        return prod(inputs[0])
    kernel = [item.value for item in node.args[1].items if isinstance(item, LiteralArg) and isinstance(item.value, int)]
    kernel += [
        item.expression for item in node.args[1].items if isinstance(item, DimRef) and isinstance(item.expression, int)
    ]
    spatial = 3 if "3d" in node.op else 2 if "2d" in node.op else 1
    window = prod(kernel) if len(kernel) == spatial else (kernel[0] if kernel else 1) ** spatial
    return prod(output) * window


def _literal(node: Node, position: int, *, default: bool | None) -> bool | int | float | str | None:
    arg = node.args[position] if position < len(node.args) else None
    return arg.value if isinstance(arg, LiteralArg) else default


_PRODUCTS: dict[str, Callable[[Node, Sequence[Shape], Shape], int]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "matmul", "inner"), _matmul),
    **dict.fromkeys(("addmm", "baddbmm", "addmv", "addbmm"), _added_matmul),
    "linear": _linear,
    **dict.fromkeys(("convolution", "conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(
        (
            "scaled_dot_product_attention",
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_fused_attention_overrideable",
            "_scaled_dot_product_attention_math",
        ),
        _attention,
    ),
}
PRODUCTS = frozenset(_PRODUCTS)
"""Operations that are made of multiply-adds."""
