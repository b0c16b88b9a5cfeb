"""How an operation would come out if every intermediate result were rounded differently, as in somebody else's kernel.

Stochastic arithmetic (Vignes, "A stochastic arithmetic for reliable scientific computation", 1993): each floating
result on the way is moved by a relative amount. It finds integers and flags that hang on near-ties which moving the
inputs cannot part, such as the index of the largest tanh(x) where tanh has saturated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_EXACT = frozenset(
    {
        "abs",
        "neg",
        "relu",
        "sign",
        "sgn",
        "floor",
        "ceil",
        "round",
        "trunc",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "clamp",
        "clamp_min",
        "clamp_max",
        "hardtanh",
        "amax",
        "amin",
        "max",
        "min",
        "aminmax",
        "topk",
        "sort",
        "kthvalue",
        "median",
        "mode",
        "cummax",
        "cummin",
        "max_pool2d_with_indices",
        "max_pool3d_with_indices",
        "adaptive_max_pool2d",
        "adaptive_max_pool3d",
        "clone",
        "_to_copy",
        "copy",
        "cat",
        "stack",
        "where",
        "gather",
        "index",
        "index_select",
        "take",
        "embedding",
        "flip",
        "roll",
        "repeat",
        "repeat_interleave",
        "constant_pad_nd",
        "reflection_pad1d",
        "reflection_pad2d",
        "replication_pad1d",
        "replication_pad2d",
        "tril",
        "triu",
        "masked_fill",
        "masked_select",
        "scatter",
        "index_put",
        "slice_scatter",
        "select_scatter",
        "unfold",
        "im2col",
        "_unsafe_view",
        "_reshape_copy",
        "fill",
        "nan_to_num",
    }
)
"""Operations whose results are values that they were given, or small exact changes of them: nobody rounds there."""


def signs_of_values(values: torch.Tensor, salt: int) -> torch.Tensor:
    """-1 or 1 in float64 for each float64 value; equal values get equal signs, so that ties stay ties."""
    import torch

    bits = values.contiguous().view(torch.int64)
    chosen = ((bits ^ (bits >> 29)) * (2 * salt + 1) >> 33) & 1
    return chosen.double() * 2 - 1


@contextmanager
def rounded_otherwise(salt: int, size: float) -> Iterator[None]:
    """Inside, each float64 result x of an operation that rounds becomes x * (1 ± `size`)."""
    with _mode()(salt, size):
        yield


@lru_cache(maxsize=1)
def _mode() -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Rounded(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self, salt: int, size: float) -> None:
            super().__init__()
            self._salt, self._size = salt, size

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if not _rounds(func, args):
                return result
            if isinstance(result, tuple | list):
                return type(result)(self._moved(r) for r in result)
            return self._moved(result)

        def _moved(self, value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or value.dtype is not torch.float64:
                return value
            return value * (1 + self._size * signs_of_values(value, self._salt))

    return Rounded


def _rounds(function: Any, arguments: Any) -> bool:
    """Whether it computes new values: no view, nothing in place, no constant, no selection."""
    import torch

    schema = function._schema
    if schema.is_mutable or any(r.alias_info is not None for r in schema.returns):
        return False
    if schema.name.partition("::")[2] in _EXACT:
        return False
    given = [a for part in arguments for a in (part if isinstance(part, tuple | list) else (part,))]
    return any(isinstance(a, torch.Tensor) and a.is_floating_point() for a in given)
