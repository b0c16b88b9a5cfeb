"""Which ATen operations really ran during a call: recorded by torch's own profiler, below Python and torch.compile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_FREE = frozenset(
    """
    empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros ones ones_like new_ones
    full full_like new_full zero_ fill_ fill copy_ clone contiguous to _to_copy type_as _copy_from_and_resize set_
    resize_ resize_as_ view view_as reshape reshape_as _reshape_alias _unsafe_view unflatten flatten as_strided
    alias detach detach_ lift_fresh permute transpose transpose_ t numpy_T adjoint mT mH movedim swapaxes expand
    expand_as squeeze squeeze_ unsqueeze unsqueeze_ slice select narrow split split_with_sizes chunk unbind
    diagonal unfold broadcast_to broadcast_tensors item _local_scalar_dense is_nonzero resolve_conj resolve_neg
    conj view_as_real is_contiguous size stride numel is_floating_point is_complex result_type arange
    scalar_tensor tensor atleast_1d atleast_2d requires_grad_ _has_compatible_shallow_copy_type record_stream
    is_same_size cpu pin_memory is_pinned
    """.split()  # noqa: SIM905 - read as a list of words
)
"""Allocation, filling, views, copies and casts: nobody's kernel, free under every rule."""


@contextlib.contextmanager
def recorded() -> Iterator[list[str]]:
    """A list that, after the block, holds the ATen operations that ran in it, such as `aten.mm`, each once."""
    from torch.autograd import profiler

    names: list[str] = []
    with profiler.profile(use_kineto=False) as profile:
        yield names
    events = profile.function_events or ()
    names += dict.fromkeys(e.name.replace("::", ".", 1) for e in events if e.name.startswith("aten::"))


def computing(names: list[str]) -> tuple[str, ...]:
    """Those that compute something."""
    return tuple(name for name in names if name.removeprefix("aten.") not in _FREE)


def not_allowed(names: tuple[str, ...], allowed: tuple[str, ...]) -> tuple[str, ...]:
    """Those that the task does not leave to the library; `aten.mm` also stands for its overloads."""
    plain = {a if a.count(".") < 2 else a.rsplit(".", 1)[0] for a in allowed}
    return tuple(name for name in names if name not in plain)
