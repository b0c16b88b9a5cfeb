"""Timed calls inside a runner: rotating inputs, a clock bound before user code is loaded, the last result kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from kernelwright.judge.regions import Region, layout
from kernelwright.tasks.arrays import to_torch
from kernelwright.tasks.model import Task

if TYPE_CHECKING:
    import torch


class TimedCalls:
    """One callable over a ring of inputs."""

    def __init__(self, call: Callable[..., Any], ring: Sequence[tuple[torch.Tensor, ...]]) -> None:
        self._call = call
        self._ring = ring
        self.last: Any = None
        """What the last timed call returned."""

    def sample(self, slots: Sequence[int]) -> int:
        """Nanoseconds of calls with the inputs of these slots, one after the other."""
        call, ring = self._call, self._ring
        self.last = None
        result = None
        begun = perf_counter_ns()
        for slot in slots:
            result = call(*ring[slot])
        ended = perf_counter_ns()
        self.last = result
        return ended - begun


def ring_of(task: Task, axes: dict[str, int], slots: int, descriptor: int) -> list[tuple[torch.Tensor, ...]]:
    """The ring's inputs over a private mapping: what one runner writes, no other sees."""
    specs = [(spec.shape(axes), spec.dtype) for spec in task.kernel_inputs]
    region = Region(layout(specs * slots), descriptor, private=True)
    region.close()
    region.populate()
    arrays = region.arrays()
    width = len(specs)
    return [
        tuple(
            to_torch(array, spec.dtype)
            for array, spec in zip(arrays[slot * width : (slot + 1) * width], task.kernel_inputs, strict=True)
        )
        for slot in range(slots)
    ]
