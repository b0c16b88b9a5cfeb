"""Element types, free of torch and numpy so that records can name them."""

from __future__ import annotations

from enum import StrEnum


class DType(StrEnum):
    """Element types of inputs and outputs; the value is torch's own name for it."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _ITEMSIZE[self]

    @property
    def is_floating(self) -> bool:
        """Whether values are rounded (IEEE or bfloat16)."""
        return self in _EPSILON

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger value (2**-(mantissa bits)); 0 for exact types."""
        return _EPSILON.get(self, 0.0)

    @property
    def code(self) -> int:
        """The number that stands for this type in the C interface (`kernelwright.h`)."""
        return list(DType).index(self)

    @property
    def c_name(self) -> str:
        """The C++ type of one element in `kernelwright.h`."""
        return _C_NAME[self]


_ITEMSIZE = {
    DType.FLOAT64: 8,
    DType.FLOAT32: 4,
    DType.FLOAT16: 2,
    DType.BFLOAT16: 2,
    DType.INT64: 8,
    DType.INT32: 4,
    DType.INT16: 2,
    DType.INT8: 1,
    DType.UINT8: 1,
    DType.BOOL: 1,
}
_EPSILON = {
    DType.FLOAT64: 2.0**-52,
    DType.FLOAT32: 2.0**-23,
    DType.FLOAT16: 2.0**-10,
    DType.BFLOAT16: 2.0**-7,
}
_C_NAME = {
    DType.FLOAT64: "double",
    DType.FLOAT32: "float",
    DType.FLOAT16: "kw_float16",
    DType.BFLOAT16: "kw_bfloat16",
    DType.INT64: "int64_t",
    DType.INT32: "int32_t",
    DType.INT16: "int16_t",
    DType.INT8: "int8_t",
    DType.UINT8: "uint8_t",
    DType.BOOL: "uint8_t",
}
