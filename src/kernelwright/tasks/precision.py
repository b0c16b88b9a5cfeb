"""Running user code in float64 although it names narrower types: casts to them are read as casts to float64."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any


@contextmanager
def everything_in_double() -> Iterator[None]:
    """Inside, `x.float()`, `dtype=torch.bfloat16` and new tensors without a type all give float64.

    A reference that rounds on purpose is thus judged against its unrounded value; its own rounding then shows in the
    measured error of the reference, which widens the allowance.
    """
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _mode()():
            yield
    finally:
        torch.set_default_dtype(before)


@lru_cache(maxsize=1)
def _mode() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    narrow = {torch.float32, torch.float16, torch.bfloat16}
    casts = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}

    def widened(value: Any) -> Any:
        return torch.float64 if isinstance(value, torch.dtype) and value in narrow else value

    class Double(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in casts:
                return torch.Tensor.double(args[0])
            words = {k: widened(v) for k, v in (kwargs or {}).items()}
            return func(*(widened(a) for a in args), **words)

    return Double
