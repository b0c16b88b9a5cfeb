"""What a runner does with the reference: read the task, draw its own inputs, compute the oracle, time a baseline.

The reference is the user's code: it may hang, crash or ask for a GPU, so it runs in a process of its own as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.core.dtypes import DType
from kernelwright.judge.allocation import return_free_memory, set_lean_rule
from kernelwright.judge.regions import Layout, Region, layout
from kernelwright.judge.timed_calls import TimedCalls, ring_of
from kernelwright.judge.wire import Message
from kernelwright.tasks.arrays import from_torch, to_torch
from kernelwright.tasks.model import Task
from kernelwright.tasks.oracle import Illegal, compute
from kernelwright.tasks.request import TaskRequest

if TYPE_CHECKING:
    import torch

    from kernelwright.tasks.reference import Reference

COMPILE_MODES: dict[str, str | None] = {"eager": None, "compile": "default", "compile-max-autotune": "max-autotune"}


def inputs_layout(task: Task, axes: dict[str, int]) -> Layout:
    """Where the kernel inputs of one workload lie."""
    return layout([(spec.shape(axes), spec.dtype) for spec in task.kernel_inputs])


def outputs_layout(task: Task, axes: dict[str, int]) -> Layout:
    """Where a candidate's outputs for one workload lie."""
    return layout([(spec.shape(axes), spec.dtype) for spec in task.outputs])


def oracle_layout(task: Task, axes: dict[str, int]) -> Layout:
    """Where the oracle lies: for each output what is expected, what is allowed, and where exact values are stable."""
    parts: list[tuple[tuple[int, ...], DType]] = []
    for spec in task.outputs:
        shape = spec.shape(axes)
        parts += [
            (shape, DType.FLOAT64 if spec.dtype.is_floating else spec.dtype),
            (shape, DType.FLOAT32),
            (shape if not spec.dtype.is_floating else (0,), DType.BOOL),
        ]
    return layout(parts)


class ReferenceSide:
    """Answers questions about one task's reference."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import torch

        if not settings["timed"]:
            set_lean_rule()
        self._threads = int(settings["threads"])
        torch.set_num_threads(self._threads)
        torch.set_grad_enabled(False)
        self._task = Task.from_json(settings["task"]) if settings.get("task") else None
        self._loaded: Reference | None = None
        self._timed: TimedCalls | None = None

    def answer(self, question: Message, descriptors: Sequence[int]) -> Message:
        """Dispatch on the question's `do`."""
        handlers: dict[str, Callable[[Message, Sequence[int]], Message]] = {
            "describe": self._describe,
            "facts": self._facts,
            "own": self._own,
            "oracle": self._oracle,
            "trace": self._trace,
            "compile": self._compile,
            "lift": self._lift,
            "prepare": self._prepare,
            "sample": self._sample,
        }
        try:
            return handlers[question["do"]](question, descriptors)
        finally:
            if self._timed is None:
                return_free_memory()

    @property
    def task(self) -> Task:
        """The task that this runner was started for."""
        assert self._task is not None
        return self._task

    @property
    def reference(self) -> Reference:
        """Loaded on first use."""
        from kernelwright.tasks.loading import instantiate

        if self._loaded is None:
            self._loaded = instantiate(self.task)
        return self._loaded

    def _describe(self, question: Message, _: Sequence[int]) -> Message:
        from kernelwright.tasks.loading import describe

        os.chdir(question["folder"])
        return {"task": describe(TaskRequest.model_validate(question["request"])).to_json()}

    def _facts(self, question: Message, _: Sequence[int]) -> Message:
        """Which inputs the reference writes to, and which outputs share memory with which inputs."""
        tensors = [t.clone() for t in self.reference.own_inputs(question["axes"])]
        before = [t.clone() for t in tensors]
        result = self.reference._invoke(self.reference.module, tensors)
        outputs = list(result) if isinstance(result, list | tuple) else [result]
        written = [i for i, (a, b) in enumerate(zip(before, tensors, strict=True)) if not _same(a, b)]
        shared = [
            [o, i] for o, out in enumerate(outputs) for i, tensor in enumerate(tensors) if _share_memory(out, tensor)
        ]
        return {"written": written, "shared": shared}

    def _own(self, question: Message, descriptors: Sequence[int]) -> Message:
        """Write the task's own inputs into a region that holds one set for each seed."""
        axes, seeds = question["axes"], question["seeds"]
        specs = [(spec.shape(axes), spec.dtype) for spec in self.task.kernel_inputs]
        region = Region(layout(specs * len(seeds)), descriptors[0])
        region.close()
        for number, seed in enumerate(seeds):
            for index, tensor in enumerate(self.reference.own_inputs(axes, seed=seed)):
                region.array(number * len(specs) + index)[...] = from_torch(tensor)
        return {}

    def _oracle(self, question: Message, descriptors: Sequence[int]) -> Message:
        tensors = self._tensors(question["axes"], descriptors[0])
        found = compute(self.reference, tensors, self.task, seed=question["seed"])
        if isinstance(found, Illegal):
            os.close(descriptors[1])
            return {"illegal": found.reason}
        region = Region(oracle_layout(self.task, question["axes"]), descriptors[1])
        region.close()
        for index, output in enumerate(found.outputs):
            region.array(3 * index)[...] = output.expected
            region.array(3 * index + 1)[...] = output.allowed
            if output.stable is not None and not output.dtype.is_floating:
                region.array(3 * index + 2)[...] = output.stable
        return {"in_double": found.in_double, "note": found.note}

    def _trace(self, _: Message, __: Sequence[int]) -> Message:
        from kernelwright.tasks.tracing import trace

        found = trace(self.task, self.reference)
        return {"reason": found} if isinstance(found, str) else {"graph": found.to_json()}

    def _lift(self, question: Message, descriptors: Sequence[int]) -> Message:
        from kernelwright.judge.inductor import lift

        workloads = [self._tensors(axes, fd) for axes, fd in zip(question["workloads"], descriptors, strict=True)]
        found = lift(_WithTask(self.reference, self.task), workloads, tune=question["tune"])
        return {"reason": found} if isinstance(found, str) else {"candidates": [c.to_json() for c in found]}

    def _prepare(self, question: Message, descriptors: Sequence[int]) -> Message:
        """Make a baseline ready on a ring of inputs; compiled for these very shapes."""
        axes = question["axes"]
        ring = ring_of(self.task, axes, question["slots"], descriptors[0])
        call = self._callable(question["mode"], ring[0])
        arguments = len(self.reference.tensor_arguments)
        self._timed = TimedCalls(call, [tensors[:arguments] for tensors in ring])
        self._timed.sample([0, 1 % len(ring)])
        return {}

    def _callable(self, name: str, tensors: Sequence[torch.Tensor]) -> Callable[..., Any]:
        import torch

        call: Callable[..., Any] = self.reference.eager_callable(list(tensors))
        mode = COMPILE_MODES[name]
        if mode is None:
            return call
        torch._dynamo.reset()
        compiled: Callable[..., Any] = torch.compile(call, mode=mode, dynamic=False)
        return compiled

    def _compile(self, question: Message, _: Sequence[int]) -> Message:
        """Compile for each of these workloads and call it once: from now on the code is in torch's cache on disk."""
        arguments = len(self.reference.tensor_arguments)
        for axes in question["workloads"]:
            tensors = self.reference.own_inputs(axes)
            self._callable(question["mode"], tensors)(*tensors[:arguments])
        return {}

    def _sample(self, question: Message, _: Sequence[int]) -> Message:
        assert self._timed is not None
        return {"ns": self._timed.sample(question["slots"])}

    def _tensors(self, axes: dict[str, int], descriptor: int) -> list[torch.Tensor]:
        region = Region(inputs_layout(self.task, axes), descriptor, private=True)
        region.close()
        return [to_torch(a, s.dtype) for a, s in zip(region.arrays(), self.task.kernel_inputs, strict=True)]


class _WithTask:
    """A reference beside the task that it belongs to, as `inductor.lift` wants it."""

    def __init__(self, reference: Reference, task: Task) -> None:
        self.task = task
        self._reference = reference

    def as_module(self) -> Any:
        return self._reference.as_module()


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(
        np.array_equal(from_torch(one).reshape(-1).view(np.uint8), from_torch(other).reshape(-1).view(np.uint8))
    )


def _share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(one.numel()) and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
