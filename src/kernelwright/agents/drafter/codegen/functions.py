"""C++ text of elementwise functions and constants. The same text serves whole vectors and single numbers."""

from __future__ import annotations

import math
from typing import Literal

from kernelwright.core.dtypes import DType

CType = Literal["float", "double", "int64_t", "int32_t", "mask"]
"""What a value is computed in: 16-bit floats in float, small integers in int32_t, truth values as masks."""

COMPUTE: dict[DType, CType] = {
    DType.FLOAT64: "double",
    DType.FLOAT32: "float",
    DType.FLOAT16: "float",
    DType.BFLOAT16: "float",
    DType.INT64: "int64_t",
    DType.INT32: "int32_t",
    DType.INT16: "int32_t",
    DType.INT8: "int32_t",
    DType.UINT8: "int32_t",
    DType.BOOL: "mask",
}

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
BITWISE = {"and": "&", "or": "|", "xor": "^"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
LOGICAL = {"and": "&&", "or": "||", "xor": "!="}
EXPENSIVE = frozenset(
    [
        "exp",
        "exp_below_zero",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
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
        "pow",
        "atan2",
        "fmod",
        "remainder",
        "silu",
        "gelu_erf",
        "gelu_tanh",
        "softplus",
    ]
)
"""Functions worth computing once and keeping."""
NAMED = EXPENSIVE | {
    "abs", "neg", "maximum", "minimum", "sqrt", "rsqrt", "reciprocal", "floor", "ceil", "trunc", "round", "sign",
    "isnan", "isinf",
}  # fmt: skip
"""Functions of kw_vector.h that are called by their name."""
_SMALL = {DType.INT16: "int16_t", DType.INT8: "int8_t", DType.UINT8: "uint8_t"}


def lane_type(ctype: CType) -> str:
    """The element type of a vector that holds such values."""
    return "int32_t" if ctype == "mask" else ctype


def constant(number: float | int | bool, ctype: CType) -> str:
    """A number as a C++ literal of that type."""
    if ctype == "mask":
        return "true" if number else "false"
    if ctype in ("float", "double"):
        return _floating(float(number), ctype)
    value = int(number)
    if ctype == "int64_t":
        return "INT64_MIN" if value == -(2**63) else f"INT64_C({value})"
    return "INT32_MIN" if value == -(2**31) else str(value)


def _floating(number: float, ctype: CType) -> str:
    single = ctype == "float"
    if math.isnan(number):
        return '__builtin_nanf("")' if single else '__builtin_nan("")'
    if math.isinf(number) or (single and abs(number) >= 3.4028235677973366e38):
        return ("-" if number < 0 else "") + ("__builtin_inff()" if single else "__builtin_inf()")
    text = repr(number)
    if "e" not in text and "." not in text:
        text += ".0"
    return f"{text}f" if single else text


def call(function: str, dtype: DType, source: CType, operands: list[str]) -> str:
    """The expression `function(operands)`; `source` is the type of the (last) operand, `dtype` that of the result."""
    target = COMPUTE[dtype]
    if function == "cast":
        return _conversion(dtype, source, operands[0])
    if function == "rounded":
        return f"rounded({operands[0]})"
    if function == "copy":
        return operands[0]
    if function in COMPARE:
        text = f"{operands[0]} {COMPARE[function]} {operands[1]}"
        return f"kw::cast<int32_t>({text})" if source in ("double", "int64_t") else text
    if target == "mask":
        return _truth(function, source, operands)
    if function in INFIX:
        return _wrapped(dtype, f"{operands[0]} {INFIX[function]} {operands[1]}")
    if function in BITWISE:
        return f"{operands[0]} {BITWISE[function]} {operands[1]}"
    if function == "not":
        return f"~{operands[0]}"
    if function == "where":
        return f"kw::select({', '.join(operands)})"
    if function == "floordiv_int":
        return f"floor_divide({', '.join(operands)})"
    if function in NAMED:
        name = f"{function}_int" if target in ("int32_t", "int64_t") and function == "remainder" else f"kw::{function}"
        return _wrapped(dtype, f"{name}({', '.join(operands)})")
    raise ValueError(f"no C++ for {function}")


def _truth(function: str, source: CType, operands: list[str]) -> str:
    if function in LOGICAL:
        return f"{operands[0]} {LOGICAL[function]} {operands[1]}"
    if function == "not":
        return f"!{operands[0]}"
    if function == "mul":
        return f"{operands[0]} && {operands[1]}"
    if function in ("isnan", "isinf"):
        text = f"kw::{function}({operands[0]})"
        return f"kw::cast<int32_t>({text})" if source == "double" else text
    if function == "where":
        mask, yes, no = operands
        return f"({mask} && {yes}) || (!{mask} && {no})"
    raise ValueError(f"no C++ for {function} of truth values")


def _conversion(dtype: DType, source: CType, operand: str) -> str:
    target = COMPUTE[dtype]
    if target == "mask":
        text = f"{operand} != 0"
        return f"kw::cast<int32_t>({text})" if source in ("double", "int64_t") else text
    if source == "mask":
        # A mask is -1 in a vector and 1 in a bool.
        return f"kw::cast<{target}>(flag({operand}))"
    if target == source:
        return _wrapped(dtype, operand) if source == "int32_t" else operand
    return _wrapped(dtype, f"kw::cast<{target}>({operand})")


def _wrapped(dtype: DType, text: str) -> str:
    """Small integers are computed in 32 bits and wrap as their own type does."""
    if dtype in _SMALL:
        return f"kw::cast<int32_t>(kw::cast<{_SMALL[dtype]}>({text}))"
    return text
