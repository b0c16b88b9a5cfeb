"""Tensors as numpy storage: every `DType` has one, bfloat16 as its `uint16` bits. Torch is imported only where it is met."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelwright.core.dtypes import DType
from kernelwright.core.errors import TaskError

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy type that holds elements of `dtype`; `uint16` for bfloat16."""
    return np.dtype(np.uint16) if dtype is DType.BFLOAT16 else np.dtype(dtype.value)


def to_float64(array: Array, dtype: DType) -> NDArray[np.float64]:
    """The values of storage as float64; exact for every type but int64 beyond 2**53."""
    if dtype is DType.BFLOAT16:
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def from_float64(values: Array, dtype: DType) -> Array:
    """Storage of `dtype` with the nearest values (ties to even; bfloat16 through float32, as torch does).

    Values beyond the largest finite one become infinite; NaN stays NaN.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if dtype is not DType.BFLOAT16:
            return values.astype(storage_dtype(dtype))
        single = np.ascontiguousarray(values, dtype=np.float32)
        bits = single.view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        return np.where(np.isnan(single), np.uint32(0x7FC0), rounded).astype(np.uint16)


def torch_dtype(dtype: DType) -> torch.dtype:
    """Torch's own type object."""
    import torch

    found = getattr(torch, dtype.value)
    assert isinstance(found, torch.dtype)
    return found


def dtype_of(tensor: torch.Tensor, name: str) -> DType:
    """The element type of a torch tensor.

    Raises:
        TaskError: complex, quantized and other types that kernels here do not know; `name` says which tensor it was.
    """
    word = str(tensor.dtype).removeprefix("torch.")
    try:
        return DType(word)
    except ValueError:
        raise TaskError(
            "unsupported_dtype",
            f"`{name}` has element type {word}; supported are {', '.join(DType)}",
            hint="give the operation real-valued inputs and outputs of one of these types",
        ) from None


def to_torch(array: Array, dtype: DType) -> torch.Tensor:
    """A tensor over the same memory (a copy only where the array is not contiguous or not writable)."""
    import torch

    ready = array if array.flags.c_contiguous and array.flags.writeable else np.array(array, order="C")
    if dtype is DType.BFLOAT16:
        return torch.from_numpy(ready.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(ready)


def from_torch(tensor: torch.Tensor) -> Array:
    """Storage of a CPU tensor over the same memory (a copy only where it is not contiguous)."""
    import torch

    ready = tensor.detach().contiguous()
    if ready.dtype is torch.bfloat16:
        return np.asarray(ready.view(torch.int16).numpy()).view(np.uint16)
    return np.asarray(ready.numpy())
