"""Which ATen operations really ran during a call: recorded by torch's own profiler, below Python and torch.compile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

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
    """A list that, after the block, holds the ATen operations that computed something in it, each once.

    An operation that computes through others is given with them, outermost first: `aten.linear>aten.addmm`.
    """
    from torch.autograd import profiler

    chains: list[str] = []
    with profiler.profile(use_kineto=False) as profile:
        yield chains
    events = [e for e in profile.function_events or () if _computes(e)]
    inner = {id(ancestor) for e in events for ancestor in _ancestors(e)}
    leaves = (e for e in events if id(e) not in inner)
    chains += dict.fromkeys(
        ">".join(e.name.replace("::", ".", 1) for e in (*reversed(list(_ancestors(leaf))), leaf)) for leaf in leaves
    )


def not_allowed(chains: tuple[str, ...], allowed: tuple[str, ...]) -> tuple[str, ...]:
    """The outermost operations of the chains in which nothing is left to the library.

    `aten.mm` in `allowed` also stands for its overloads.
    """
    plain = {a if a.count(".") < 2 else a.rsplit(".", 1)[0] for a in allowed}
    refused = (chain.split(">") for chain in chains)
    return tuple(dict.fromkeys(names[0] for names in refused if plain.isdisjoint(names)))


def _computes(event: Any) -> bool:
    return bool(event.name.startswith("aten::")) and event.name.removeprefix("aten::") not in _FREE


def _ancestors(event: Any) -> Iterator[Any]:
    parent = event.cpu_parent
    while parent is not None:
        if _computes(parent):
            yield parent
        parent = parent.cpu_parent
