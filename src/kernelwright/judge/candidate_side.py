"""What a runner does with a candidate: load it, call it on inputs in shared memory, copy its outputs out, time calls."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.core.errors import CandidateError
from kernelwright.judge.allocation import poison_allocations
from kernelwright.judge.guarded_memory import GuardedAllocator
from kernelwright.judge.reference_side import inputs_layout, outputs_layout
from kernelwright.judge.regions import Bytes, Region
from kernelwright.judge.timed_calls import TimedCalls, ring_of
from kernelwright.judge.wire import Message
from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.languages.python import library_record
from kernelwright.platforms.languages.python.loading import PythonKernel, load, tensor_arguments
from kernelwright.tasks.arrays import from_torch, to_torch
from kernelwright.tasks.model import Task

if TYPE_CHECKING:
    import torch

_SETTLING_SECONDS = 0.004
_WATCHED_SECONDS = 0.012
Kernel = Callable[..., Any]


class CandidateSide:
    """Answers questions about one candidate."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import torch

        self._threads = int(settings["threads"])
        torch.set_num_threads(self._threads)
        torch.set_grad_enabled(False)
        self._task = Task.from_json(settings["task"])
        self._candidate = Candidate.from_json(settings["candidate"])
        self._library: str = settings["library"]
        self._pattern: Bytes = np.frombuffer(bytes.fromhex(settings["canary"]), np.uint8)
        self._guarded: GuardedAllocator | None = None
        self._python: PythonKernel | None = None
        self._plan: Any = None
        self._timed: TimedCalls | None = None
        self._previous: list[torch.Tensor] = []
        self._extension_failures: list[str] = []

    def answer(self, question: Message, descriptors: Sequence[int]) -> Message:
        """Dispatch on the question's `do`."""
        handlers: dict[str, Callable[[Message, Sequence[int]], Message]] = {
            "load": self._load,
            "run": self._run,
            "prepare": self._prepare,
            "sample": self._sample,
            "fetch": self._fetch,
        }
        return handlers[question["do"]](question, descriptors)

    def _load(self, _: Message, __: Sequence[int]) -> Message:
        if self._candidate.language == "cpp":
            self._plan = self._compiled_plan(guarded=True)
            return {}
        from kernelwright.judge.reference_init import constructor_arguments

        _keep_no_shared_headers()
        self._watch_extensions()
        try:
            self._python = load(
                self._candidate.sources,
                self._candidate.entry,
                Path("candidate").absolute(),
                self._task,
                constructor_arguments(self._task),
            )
        except CandidateError as error:
            return {"invalid": str(error)}
        return {"redefined": list(self._python.redefined), "extension_failures": self._extension_failures}

    def _compiled_plan(self, *, guarded: bool) -> Any:
        from kernelwright.platforms.languages.cpp.host import CompiledPlan

        if guarded:
            self._guarded = GuardedAllocator(self._pattern)
        return CompiledPlan(
            self._library,
            self._candidate.plan.model_dump(mode="json"),
            [spec.model_dump(mode="json") for spec in self._task.kernel_inputs],
            [spec.model_dump(mode="json") for spec in self._task.outputs],
            self._threads,
            self._guarded if guarded else None,
        )

    def _run(self, question: Message, descriptors: Sequence[int]) -> Message:
        """One verification call: poisoned memory, outputs checked for what they are and copied out at once."""
        axes = question["axes"]
        inputs = Region(inputs_layout(self._task, axes), descriptors[0])
        outputs = Region(outputs_layout(self._task, axes), descriptors[1])
        inputs.close()
        outputs.close()
        tensors = [to_torch(a, s.dtype) for a, s in zip(inputs.arrays(), self._task.kernel_inputs, strict=True)]
        operations: list[str] = []
        try:
            call, arguments = self._ready(tensors)
        except CandidateError as error:
            return {"invalid": str(error)}
        poison_allocations(question["poison"])
        try:
            if question["record"]:
                with library_record.recorded() as operations:
                    result = call(*arguments)
            else:
                result = call(*arguments)
            answer = self._taken(result, outputs, axes)
        finally:
            poison_allocations(0xFF)
        answer["computed_by_library"] = list(operations)
        answer["shared"] = self._shared(result, tensors)
        answer["out_of_bounds"] = self._guarded.damaged() if self._guarded else False
        if question["watch"]:
            answer["still_working"] = _still_working()
        return answer

    def _ready(self, tensors: Sequence[torch.Tensor]) -> tuple[Kernel, Sequence[Any]]:
        if self._python is None:
            if self._guarded:
                self._guarded.forget()
            return self._plan, tensors
        self._python.hold(tensors[tensor_arguments(self._task) :])
        return self._python.call, self._python.arguments(tensors)

    def _taken(self, result: Any, region: Region, axes: dict[str, int]) -> Message:
        """Copy the outputs into shared memory, or say what is wrong with them."""
        found = self._as_list(result)
        if isinstance(found, str):
            return {"wrong_type": found}
        for index, (tensor, spec) in enumerate(zip(found, self._task.outputs, strict=True)):
            problem, kind = _fault(tensor, spec.name, str(spec.dtype), spec.shape(axes))
            if problem:
                return {kind: problem}
            region.array(index)[...] = from_torch(tensor)
        reused = any(_overlap(a, b) for a in found for b in self._previous)
        self._previous = list(found)
        return {"reused": reused}

    def _as_list(self, result: Any) -> list[Any] | str:
        import torch

        count = len(self._task.outputs)
        if isinstance(result, torch.Tensor) and count == 1 and (self._python is None or not self._task.returns_tuple):
            return [result]
        several = self._python is None or self._task.returns_tuple
        if isinstance(result, tuple | list) and several:
            return list(result) if len(result) == count else f"returned {len(result)} outputs where {count} are due"
        due = f"a tuple of {count} tensors" if self._task.returns_tuple else "one tensor"
        return f"returned {_words(result)} where {due} is due"

    def _shared(self, result: Any, tensors: Sequence[torch.Tensor]) -> list[list[int]]:
        """Pairs (output, input) that share memory."""
        found = self._as_list(result)
        if isinstance(found, str):
            return []
        held = list(tensors)
        pairs = [[o, i] for o, out in enumerate(found) for i, t in enumerate(held) if _overlap(out, t)]
        if self._python is not None and self._python.instance is not None:
            own = [*self._python.instance.parameters(), *self._python.instance.buffers()]
            pairs += [[o, len(held)] for o, out in enumerate(found) for t in own if _overlap(out, t)]
        return pairs

    def _prepare(self, question: Message, descriptors: Sequence[int]) -> Message:
        """Make the candidate ready on a ring of inputs, with ordinary memory, and warm it up."""
        self._previous = []
        ring = ring_of(self._task, question["axes"], question["slots"], descriptors[0])
        if self._python is None:
            self._guarded = None
            self._timed = TimedCalls(self._compiled_plan(guarded=False), ring)
        else:
            self._python.hold(ring[0][tensor_arguments(self._task) :])
            self._timed = TimedCalls(self._python.call, [tuple(self._python.arguments(t)) for t in ring])
        self._timed.sample([0, 1 % len(ring)])
        return {}

    def _sample(self, question: Message, _: Sequence[int]) -> Message:
        assert self._timed is not None
        return {"ns": self._timed.sample(question["slots"])}

    def _fetch(self, question: Message, descriptors: Sequence[int]) -> Message:
        """The outputs of the last timed call."""
        assert self._timed is not None
        region = Region(outputs_layout(self._task, question["axes"]), descriptors[0])
        region.close()
        return self._taken(self._timed.last, region, question["axes"])

    def _watch_extensions(self) -> None:
        """Note the builds that fail while the candidate loads, also those whose error it swallows."""
        from torch.utils import cpp_extension

        inner = getattr(cpp_extension, "_run_ninja_build", None)
        if inner is None:
            return
        failures = self._extension_failures

        def watched(*arguments: Any, **keywords: Any) -> Any:
            try:
                return inner(*arguments, **keywords)
            except Exception as error:
                failures.append(str(error)[:8000])
                raise

        cpp_extension._run_ninja_build = watched


def _keep_no_shared_headers() -> None:
    """Precompiled headers live in one folder for everybody, which candidates may not write to."""
    os.environ["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"
    config: Any = sys.modules.get("torch._inductor.config")
    if config is not None:
        config.cpp_cache_precompile_headers = False


def _fault(tensor: Any, name: str, dtype: str, shape: tuple[int, ...]) -> tuple[str, str]:
    """What is wrong with an output before its values are looked at, and whether that is its type or its shape."""
    import torch

    if type(tensor) is not torch.Tensor:
        return f"`{name}` is {_words(tensor)} where a plain torch.Tensor is due", "wrong_type"
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return (
            f"`{name}` is a {tensor.layout} tensor on {tensor.device} where a dense one on the CPU is due",
            "wrong_type",
        )
    if str(tensor.dtype) != f"torch.{dtype}":
        return (
            f"`{name}` has element type {str(tensor.dtype).removeprefix('torch.')} where {dtype} is due",
            "wrong_shape",
        )
    if tuple(tensor.shape) != shape:
        return f"`{name}` has shape {tuple(tensor.shape)} where {shape} is due", "wrong_shape"
    if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
        return f"`{name}` is an expanded view: its memory is smaller than its shape", "wrong_type"
    return "", ""


def _words(value: Any) -> str:
    kind = type(value)
    return f"a {kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else f"a {kind.__name__}"


def _overlap(one: Any, other: Any) -> bool:
    """Whether two tensors share bytes (their own extents, not their whole storages)."""
    if not one.numel() or not other.numel():
        return False
    a, b = one.data_ptr(), other.data_ptr()
    return bool(a < b + _extent(other) and b < a + _extent(one))


def _extent(tensor: Any) -> int:
    last = sum((size - 1) * abs(stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((last + 1) * tensor.element_size())


def _still_working() -> float:
    """CPU seconds that this process burns while it should be idle; spinning OpenMP threads get time to settle."""
    time.sleep(_SETTLING_SECONDS)
    begun = time.process_time()
    time.sleep(_WATCHED_SECONDS)
    return time.process_time() - begun
