"""Workloads that are not the task's own: smaller ones to verify on, and hidden ones drawn from the judge's seed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from numpy.random import Generator

from kernelwright.core.dimensions import evaluate_shape
from kernelwright.tasks.model import Axis, Task, TensorSpec, Workload

_LARGEST = 1 << 20
"""Elements of any tensor in a hidden workload, where the axes allow."""
_SMALL = 1 << 16
_ODD_TARGETS = {1: (1021,), 2: (67, 259), 3: (5, 67, 131), 4: (3, 13, 29, 37)}
_SMALL_TARGETS = {1: (96,), 2: (16, 64), 3: (4, 16, 64), 4: (2, 8, 16, 16)}


def verification_workloads(axes: Sequence[Axis], specs: Sequence[TensorSpec]) -> tuple[Workload, ...]:
    """An odd-sized and a small round-sized workload, cheap to verify on; none where no axis varies."""
    free = [a for a in axes if a.varies]
    if not free:
        return ()
    default = {a.name: a.default for a in axes}
    made: list[Workload] = []
    for name, targets, odd, elements in (
        ("odd", _ODD_TARGETS, True, _LARGEST),
        ("small", _SMALL_TARGETS, False, _SMALL),
    ):
        wanted = targets.get(len(free)) or (3,) * len(free)
        sizes = {a.name: legal_size(a, min(t, 2 * a.default), odd=odd) for a, t in zip(free, wanted, strict=True)}
        bound = _shrunk({**default, **sizes}, free, specs, elements)
        if bound != default and bound not in [w.axes for w in made]:
            made.append(Workload(name=name, axes=bound))
    return tuple(made)


def hidden_workloads(task: Task, generator: Generator) -> tuple[Workload, ...]:
    """Two workloads at sizes that nobody could tune for, the first of them odd in every axis that allows it.

    Sizes are legal for the axes, and no tensor has more than about a million elements where the axes allow that. Empty
    where no axis of the task varies.
    """
    free = [a for a in task.axes if a.varies]
    seen = [w.axes for w in task.workloads]
    default = {a.name: a.default for a in task.axes}
    specs = (*task.kernel_inputs, *task.outputs)
    made: list[Workload] = []
    for index in range(2):
        for _ in range(8):
            sizes = {a.name: _random_size(a, generator, odd=index == 0, axes=len(free)) for a in free}
            bound = _shrunk({**default, **sizes}, free, specs, _LARGEST)
            if free and bound not in seen:
                seen.append(bound)
                made.append(Workload(name=f"hidden{index + 1}", axes=bound, hidden=True))
                break
    return tuple(made)


def legal_size(axis: Axis, target: int, *, odd: bool) -> int:
    """The legal size nearest to `target`; an odd multiple of the axis's step where `odd` and that exists."""
    step = axis.multiple
    top = axis.maximum if axis.maximum is not None else max(axis.default, target) + step
    lowest, highest = max(1, -(-axis.minimum // step)), max(1, top // step)
    factor = max(lowest, min(highest, round(target / step)))
    if odd and factor % 2 == 0:
        factor = factor + 1 if factor < highest else max(factor - 1, lowest)
    return factor * step


def _random_size(axis: Axis, generator: Generator, *, odd: bool, axes: int) -> int:
    ceiling = {1: 20000, 2: 1500, 3: 160}.get(axes, 48)
    high = max(axis.multiple * 4, min(ceiling, 2 * axis.default))
    return legal_size(axis, int(2 ** generator.uniform(1.5, max(2.0, math.log2(high)))), odd=odd)


def _shrunk(
    binding: dict[str, int], free: Sequence[Axis], specs: Sequence[TensorSpec], elements: int
) -> dict[str, int]:
    """Halve the largest axis until every tensor fits."""
    for _ in range(64):
        if max((_count(s, binding) for s in specs), default=0) <= elements:
            return binding
        for axis in sorted(free, key=lambda a: -binding[a.name]):
            size = legal_size(axis, binding[axis.name] // 2, odd=binding[axis.name] // axis.multiple % 2 == 1)
            if size < binding[axis.name]:
                binding = {**binding, axis.name: size}
                break
        else:
            return binding
    return binding


def _count(spec: TensorSpec, binding: dict[str, int]) -> int:
    count = 1
    for size in evaluate_shape(spec.dims, binding):
        count *= size
    return count
