"""Elementwise operations: most are a row of a table, the rest are compositions."""

from __future__ import annotations

import math
from collections.abc import Callable

from kernelwright.agents.drafter.lowering.registry import Builder, Unsupported, converted, lowers, promoted
from kernelwright.agents.drafter.values import Scalar, Tensor
from kernelwright.core.dtypes import DType
from kernelwright.tasks.graph import Arg, DimRef, LiteralArg, Node, ValueRef

_UNARY_FLOAT = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "sigmoid",
    "erf",
    "erfc",
]
_UNARY_SAME = ["neg", "abs", "floor", "ceil", "trunc", "round", "sign"]
_ARITHMETIC = {"mul": "mul", "maximum": "maximum", "minimum": "minimum"}
_COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
_FLOAT_BINARY = {"pow": "pow", "atan2": "atan2"}


def _unary(function: str) -> Callable[[Builder, Node], Tensor]:
    def lowering(builder: Builder, node: Node) -> Tensor:
        dtype = node.outputs[0].dtype
        return builder.map(function, dtype, builder.cast(builder.tensor(node, 0), dtype))

    return lowering


for _name in (*_UNARY_FLOAT, *_UNARY_SAME):
    lowers(f"{_name}.default")(_unary(_name))
lowers("special_erf.default")(_unary("erf"))


def _both(builder: Builder, node: Node) -> tuple[Tensor, Tensor]:
    dtype = node.outputs[0].dtype
    first, second = builder.operand(node.args[0], dtype), builder.operand(node.args[1], dtype)
    return builder.cast(first, dtype), builder.cast(second, dtype)


def _binary(function: str) -> Callable[[Builder, Node], Tensor]:
    def lowering(builder: Builder, node: Node) -> Tensor:
        return builder.map(function, node.outputs[0].dtype, *_both(builder, node))

    return lowering


for _name, _function in _ARITHMETIC.items():
    for _overload in ("Tensor", "Scalar", "default"):
        lowers(f"{_name}.{_overload}")(_binary(_function))
lowers("atan2.default")(_binary("atan2"))
for _overload in ("Tensor", "Scalar"):
    lowers(f"fmod.{_overload}")(_binary("fmod"))
    lowers(f"remainder.{_overload}")(_binary("remainder"))


@lowers("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar")
def _add(builder: Builder, node: Node) -> Tensor:
    dtype = node.outputs[0].dtype
    first, second = _both(builder, node)
    alpha = builder.literal(node, 2, "alpha", 1)
    if alpha != 1 and isinstance(alpha, int | float):
        second = builder.map("mul", dtype, second, builder.scalar(converted(alpha, dtype), dtype))
    if dtype is DType.BOOL:
        return builder.map("or", dtype, first, second)
    return builder.map("add" if ".add." in node.op else "sub", dtype, first, second)


@lowers("rsub.Scalar", "rsub.Tensor")
def _rsub(builder: Builder, node: Node) -> Tensor:
    first, second = _both(builder, node)
    return builder.map("sub", node.outputs[0].dtype, second, first)


@lowers("div.Tensor", "div.Scalar", "true_divide.Tensor")
def _divide(builder: Builder, node: Node) -> Tensor:
    return builder.map("div", node.outputs[0].dtype, *_both(builder, node))


@lowers("div.Tensor_mode", "div.Scalar_mode", "floor_divide.default")
def _divide_rounded(builder: Builder, node: Node) -> Tensor:
    dtype = node.outputs[0].dtype
    mode = builder.literal(node, 2, "rounding_mode", "floor" if "floor_divide" in node.op else None)
    first, second = _both(builder, node)
    if not dtype.is_floating:
        return builder.map({"floor": "floordiv_int", "trunc": "div"}[str(mode)], dtype, first, second)
    if mode == "floor":
        remainder = builder.map("remainder", dtype, first, second)
        exact = builder.map("div", dtype, builder.map("sub", dtype, first, remainder), second)
        return builder.map("round", dtype, exact)
    quotient = builder.map("div", dtype, first, second)
    return quotient if mode is None else builder.map("trunc", dtype, quotient)


def _comparison(function: str) -> Callable[[Builder, Node], Tensor]:
    def lowering(builder: Builder, node: Node) -> Tensor:
        dtype = _common(builder, node, node.args[:2])
        first, second = (builder.cast(builder.operand(a, dtype), dtype) for a in node.args[:2])
        return builder.map(function, DType.BOOL, first, second)

    return lowering


for _name in _COMPARISONS:
    for _overload in ("Tensor", "Scalar"):
        lowers(f"{_name}.{_overload}")(_comparison(_name))


def _common(builder: Builder, node: Node, args: tuple[Arg, ...]) -> DType:
    kinds: list[tuple[DType, int, bool]] = []
    for arg in args:
        match arg:
            case ValueRef(name=name):
                tensor = builder.env[name]
                kinds.append((tensor.dtype, len(tensor.shape), False))
            case LiteralArg(value=bool()):
                kinds.append((DType.BOOL, 0, True))
            case LiteralArg(value=int()) | DimRef():
                kinds.append((DType.INT64, 0, True))
            case LiteralArg(value=float()):
                kinds.append((DType.FLOAT32, 0, True))
            case _:
                raise Unsupported(f"operand of {node.op}")
    return promoted(kinds)


def _logical(function: str) -> Callable[[Builder, Node], Tensor]:
    def lowering(builder: Builder, node: Node) -> Tensor:
        operands = [builder.cast(builder.operand(a, DType.BOOL), DType.BOOL) for a in node.args]
        return builder.map(function, DType.BOOL, *operands)

    return lowering


for _name in ("and", "or", "xor", "not"):
    lowers(f"logical_{_name}.default")(_logical(_name))
    if _name != "not":
        for _overload in ("Tensor", "Scalar"):
            lowers(f"bitwise_{_name}.{_overload}")(_binary(_name))
lowers("bitwise_not.default")(_unary("not"))


@lowers("isnan.default", "isinf.default")
def _classify(builder: Builder, node: Node) -> Tensor:
    tensor = builder.tensor(node, 0)
    if not tensor.dtype.is_floating:
        return builder.map(
            "cast", DType.BOOL, builder.map("mul", tensor.dtype, tensor, builder.scalar(0, tensor.dtype))
        )
    return builder.map(node.op.split(".")[1], DType.BOOL, tensor)


@lowers("where.self", "where.ScalarOther", "where.ScalarSelf")
def _where(builder: Builder, node: Node) -> Tensor:
    dtype = node.outputs[0].dtype
    mask = builder.cast(builder.tensor(node, 0), DType.BOOL)
    first, second = (builder.cast(builder.operand(a, dtype), dtype) for a in node.args[1:3])
    return builder.map("where", dtype, mask, first, second)


@lowers("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(builder: Builder, node: Node) -> Tensor:
    dtype = node.outputs[0].dtype
    value = builder.cast(builder.operand(node.args[2], dtype), dtype)
    mask = builder.cast(builder.tensor(node, 1), DType.BOOL)
    return builder.map("where", dtype, mask, value, builder.tensor(node, 0))


@lowers("_to_copy.default", "convert_element_type.default", "type_as.default", "to.dtype")
def _cast(builder: Builder, node: Node) -> Tensor:
    return builder.cast(builder.tensor(node, 0), node.outputs[0].dtype)


@lowers("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _power(builder: Builder, node: Node) -> Tensor:
    dtype = node.outputs[0].dtype
    base, exponent = _both(builder, node)
    power = exponent.value.number if isinstance(exponent.value, Scalar) else None
    if power is not None and float(power).is_integer() and 0 <= power <= 8:
        return _repeated(builder, dtype, base, int(power))
    if not dtype.is_floating:
        raise Unsupported("an integer power that varies")
    if power is not None and power in (0.5, -0.5, -1, -2):
        function = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal", -2: "reciprocal"}[float(power)]
        if power == -2:
            base = builder.map("mul", dtype, base, base)
        return builder.map(function, dtype, base)
    return builder.map("pow", dtype, base, exponent)


def _repeated(builder: Builder, dtype: DType, base: Tensor, power: int) -> Tensor:
    if power == 0:
        return builder.map("where", dtype, builder.scalar(True, DType.BOOL), builder.scalar(1, dtype), base)
    result: Tensor | None = None
    square = base
    while power:
        if power & 1:
            result = square if result is None else builder.map("mul", dtype, result, square)
        power >>= 1
        if power:
            square = builder.map("mul", dtype, square, square)
    assert result is not None
    return result


@lowers("square.default")
def _square(builder: Builder, node: Node) -> Tensor:
    tensor = builder.cast(builder.tensor(node, 0), node.outputs[0].dtype)
    return builder.map("mul", tensor.dtype, tensor, tensor)


@lowers("reciprocal.default")
def _reciprocal(builder: Builder, node: Node) -> Tensor:
    dtype = node.outputs[0].dtype
    return builder.map("reciprocal", dtype, builder.cast(builder.tensor(node, 0), dtype))


class Formula:
    """Small words for compositions in one dtype."""

    def __init__(self, builder: Builder, dtype: DType) -> None:
        self.builder, self.dtype = builder, dtype

    def number(self, value: float) -> Tensor:
        """A constant."""
        return self.builder.scalar(converted(value, self.dtype), self.dtype)

    def __call__(self, function: str, *operands: Tensor | float) -> Tensor:
        """An elementwise function in this dtype."""
        tensors = [o if isinstance(o, Tensor) else self.number(o) for o in operands]
        return self.builder.map(function, self.dtype, *tensors)

    def test(self, function: str, first: Tensor, second: Tensor | float) -> Tensor:
        """A comparison."""
        other = second if isinstance(second, Tensor) else self.number(second)
        return self.builder.map(function, DType.BOOL, first, other)

    def choose(self, mask: Tensor, yes: Tensor | float, no: Tensor | float) -> Tensor:
        """`yes` where `mask`, else `no`."""
        first, second = (o if isinstance(o, Tensor) else self.number(o) for o in (yes, no))
        return self.builder.map("where", self.dtype, mask, first, second)


@lowers("clamp.default", "clamp.Tensor", "clamp_min.default", "clamp_max.default", "hardtanh.default")
def _clamp(builder: Builder, node: Node) -> Tensor:
    dtype = node.outputs[0].dtype
    result = builder.cast(builder.tensor(node, 0), dtype)
    low, high = builder.argument(node, 1, "min"), builder.argument(node, 2, "max")
    if node.op == "aten.clamp_max.default":
        low, high = None, low
    if node.op == "aten.hardtanh.default":
        low, high = low or LiteralArg(value=-1.0), high or LiteralArg(value=1.0)
    for arg, function in ((low, "maximum"), (high, "minimum")):
        if arg is not None and not (isinstance(arg, LiteralArg) and arg.value is None):
            result = builder.map(function, dtype, result, builder.cast(builder.operand(arg, dtype), dtype))
    return result


@lowers("relu.default", "relu6.default")
def _relu(builder: Builder, node: Node) -> Tensor:
    f = Formula(builder, node.outputs[0].dtype)
    positive = f("maximum", builder.tensor(node, 0), 0.0)
    return f("minimum", positive, 6.0) if "relu6" in node.op else positive


@lowers("gelu.default")
def _gelu(builder: Builder, node: Node) -> Tensor:
    approximate = builder.literal(node, 1, "approximate", "none")
    function = "gelu_tanh" if approximate == "tanh" else "gelu_erf"
    return builder.map(function, node.outputs[0].dtype, builder.tensor(node, 0))


lowers("silu.default")(_unary("silu"))


@lowers("mish.default")
def _mish(builder: Builder, node: Node) -> Tensor:
    f = Formula(builder, node.outputs[0].dtype)
    x = builder.tensor(node, 0)
    return f("mul", x, f("tanh", f("softplus", x)))


@lowers("softplus.default")
def _softplus(builder: Builder, node: Node) -> Tensor:
    f = Formula(builder, node.outputs[0].dtype)
    beta, threshold = builder.number(node, 1, "beta", 1.0), builder.number(node, 2, "threshold", 20.0)
    x = builder.tensor(node, 0)
    scaled = x if beta == 1.0 else f("mul", x, beta)
    soft = f("softplus", scaled)
    return f.choose(f.test("gt", scaled, threshold), x, soft if beta == 1.0 else f("div", soft, beta))


@lowers("leaky_relu.default")
def _leaky(builder: Builder, node: Node) -> Tensor:
    f = Formula(builder, node.outputs[0].dtype)
    x = builder.tensor(node, 0)
    return f.choose(f.test("gt", x, 0.0), x, f("mul", x, builder.number(node, 1, "negative_slope", 0.01)))


@lowers("prelu.default", "_prelu_kernel.default")
def _prelu(builder: Builder, node: Node) -> Tensor:
    f = Formula(builder, node.outputs[0].dtype)
    x, slope = builder.tensor(node, 0), builder.tensor(node, 1)
    return f.choose(f.test("gt", x, 0.0), x, f("mul", x, slope))


@lowers("elu.default", "celu.default", "selu.default")
def _elu(builder: Builder, node: Node) -> Tensor:
    f = Formula(builder, node.outputs[0].dtype)
    x = builder.tensor(node, 0)
    alpha, scale, inner = (builder.number(node, 1 + i, n, 1.0) for i, n in enumerate(("alpha", "scale", "input_scale")))
    if "celu" in node.op:
        scale, inner = 1.0, 1.0 / alpha
    if "selu" in node.op:
        alpha, scale, inner = 1.6732632423543772, 1.0507009873554805, 1.0
    negative = f("mul", f("expm1", x if inner == 1.0 else f("mul", x, inner)), alpha * scale)
    return f.choose(f.test("gt", x, 0.0), x if scale == 1.0 else f("mul", x, scale), negative)


@lowers("hardsigmoid.default", "hardswish.default")
def _hard(builder: Builder, node: Node) -> Tensor:
    f = Formula(builder, node.outputs[0].dtype)
    x = builder.tensor(node, 0)
    gate = f("minimum", f("maximum", f("add", x, 3.0), 0.0), 6.0)
    return f("div", gate if "sigmoid" in node.op else f("mul", x, gate), 6.0)


@lowers("log_sigmoid_forward.default", "logsigmoid.default")
def _log_sigmoid(builder: Builder, node: Node) -> Tensor | list[Tensor | None]:
    f = Formula(builder, node.outputs[0].dtype)
    result = f("neg", f("softplus", f("neg", builder.tensor(node, 0))))
    return [result, None] if len(node.outputs) > 1 else result


@lowers("hardshrink.default", "softshrink.default", "threshold.default")
def _shrink(builder: Builder, node: Node) -> Tensor:
    f = Formula(builder, node.outputs[0].dtype)
    x, limit = builder.tensor(node, 0), builder.number(node, 1, "lambd", 0.5)
    if "threshold" in node.op:
        return f.choose(f.test("le", x, limit), builder.number(node, 2, "value", 0.0), x)
    if "hardshrink" in node.op:
        return f.choose(f.test("le", f("abs", x), limit), 0.0, x)
    low = f.choose(f.test("lt", x, -limit), f("add", x, limit), f("mul", x, 0.0))
    return f.choose(f.test("gt", x, limit), f("sub", x, limit), low)


@lowers("logit.default")
def _logit(builder: Builder, node: Node) -> Tensor:
    if builder.literal(node, 1, "eps", None) is not None:
        raise Unsupported("a clamped logit")
    f = Formula(builder, node.outputs[0].dtype)
    x = builder.tensor(node, 0)
    return f("sub", f("log", x), f("log1p", f("neg", x)))


@lowers("addcmul.default", "addcdiv.default")
def _addc(builder: Builder, node: Node) -> Tensor:
    f = Formula(builder, node.outputs[0].dtype)
    base, first, second = (builder.cast(builder.tensor(node, i), f.dtype) for i in range(3))
    term = f("mul" if "cmul" in node.op else "div", first, second)
    value = builder.number(node, 3, "value", 1.0)
    return f("add", base, term if value == 1.0 else f("mul", term, value))


@lowers("lerp.Scalar", "lerp.Tensor")
def _lerp(builder: Builder, node: Node) -> Tensor:
    f = Formula(builder, node.outputs[0].dtype)
    start, end = builder.tensor(node, 0), builder.tensor(node, 1)
    weight = builder.cast(builder.operand(node.args[2], f.dtype), f.dtype)
    return f("add", start, f("mul", weight, f("sub", end, start)))


@lowers("hypot.default", "asinh.default", "acosh.default", "atanh.default", "logaddexp.default", "frac.default")
def _compositions(builder: Builder, node: Node) -> Tensor:
    f = Formula(builder, node.outputs[0].dtype)
    x = builder.cast(builder.tensor(node, 0), f.dtype)
    name = node.op.split(".")[1]
    if name == "frac":
        return f("sub", x, f("trunc", x))
    if name == "atanh":
        return f("mul", f("log1p", f("div", f("mul", x, 2.0), f("sub", f.number(1.0), x))), 0.5)
    if name == "logaddexp":
        y = builder.tensor(node, 1)
        gap = f("neg", f("abs", f("sub", x, y)))
        top = f("maximum", x, y)
        return f.choose(f.test("eq", x, y), f("add", x, math.log(2.0)), f("add", top, f("log1p", f("exp", gap))))
    if name == "hypot":
        return _hypotenuse(f, f("abs", x), f("abs", builder.cast(builder.tensor(node, 1), f.dtype)))
    return _inverse_hyperbolic(f, x, cosine=name == "acosh")


def _hypotenuse(f: Formula, first: Tensor, second: Tensor) -> Tensor:
    """sqrt(a^2 + b^2) of magnitudes, scaled so that no square overflows; infinite where either is, even beside NaN."""
    top = f.choose(f.test("lt", first, second), second, first)
    low = f.choose(f.test("lt", first, second), first, second)
    ratio = f.choose(f.test("gt", top, 0.0), f("div", low, top), 0.0)
    scaled = f("mul", top, f("sqrt", f("add", f("mul", ratio, ratio), 1.0)))
    for side in (first, second):
        scaled = f.choose(f.test("eq", side, math.inf), math.inf, f.choose(f.test("ne", side, side), side, scaled))
    return f.choose(f.test("eq", first, math.inf), math.inf, scaled)


_SQUARES_OVERFLOW = 1e8
"""Beyond this, x^2 + 1 is x^2 in every type, and x^2 may be infinite."""


def _inverse_hyperbolic(f: Formula, x: Tensor, *, cosine: bool) -> Tensor:
    """asinh or acosh through log1p of what is small near zero (or near one), log(2x) where x is large."""
    size = x if cosine else f("abs", x)
    large = f("add", f("log", size), math.log(2.0))
    if cosine:
        above = f("sub", x, 1.0)
        near = f("log1p", f("add", above, f("sqrt", f("mul", above, f("add", above, 2.0)))))
        inside = f.choose(f.test("gt", size, _SQUARES_OVERFLOW), large, near)
        return f.choose(f.test("lt", x, 1.0), math.nan, inside)
    square = f("mul", size, size)
    root = f("add", f("sqrt", f("add", square, 1.0)), 1.0)
    near = f("log1p", f("add", size, f("div", square, root)))
    return f("mul", f("sign", x), f.choose(f.test("gt", size, _SQUARES_OVERFLOW), large, near))


@lowers("__lshift__.Scalar", "__rshift__.Scalar", "bitwise_left_shift.Tensor_Scalar")
@lowers("bitwise_right_shift.Tensor_Scalar")
def _shift(builder: Builder, node: Node) -> Tensor:
    tensor, dtype = builder.tensor(node, 0), node.outputs[0].dtype
    by = builder.integer(node, 1, "other", 0)
    if not 0 <= by < 8 * dtype.itemsize - 1:
        raise Unsupported("a shift by all bits")
    left = "lshift" in node.op or "left" in node.op
    return builder.map("mul" if left else "floordiv_int", dtype, tensor, builder.scalar(2**by, dtype))
