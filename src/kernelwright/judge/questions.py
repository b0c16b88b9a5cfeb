"""A candidate's process, seen from the judge: questions, and what a wrong answer or a death means for the verdict."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelwright.core.text import strip_escapes, trimmed
from kernelwright.judge.baselines import SAMPLE_SECONDS, Ring
from kernelwright.judge.evaluation import (
    BuildFailed,
    Crashed,
    Guard,
    Incorrect,
    Invalid,
    JudgeError,
    Rejected,
    Stage,
    TimedOut,
)
from kernelwright.judge.processes import Ending, Runner, RunnerEnded
from kernelwright.judge.protocol import Limits
from kernelwright.judge.reference_side import inputs_layout, outputs_layout
from kernelwright.judge.regions import Bytes, Region, same_bytes
from kernelwright.judge.wire import Message
from kernelwright.platforms.languages.cpp.diagnostics import first_error
from kernelwright.tasks.arrays import Array
from kernelwright.tasks.model import Task

Failure = BuildFailed | Crashed | Incorrect | Invalid | JudgeError | Rejected | TimedOut
_OUT_OF_MEMORY_SIGNS = ("std::bad_alloc", "can't allocate memory", "Cannot allocate memory", "MemoryError")
_BUSY_SECONDS = 0.006
"""CPU time, in a window of 12 ms in which a candidate should be idle, above which work was left behind."""
_TAIL = 400


class Stopped(Exception):
    """The candidate's way ends here: `make` finishes the verdict, given what all verdicts share."""

    def __init__(self, make: Callable[..., Failure], **fields: Any) -> None:
        super().__init__(str(fields.get("reason", "")))
        self.make = make
        self.fields = fields

    @classmethod
    def guard(cls, guard: Guard, reason: str) -> Stopped:
        """A guard fired."""
        return cls(Rejected, guard=guard, reason=reason)

    def verdict(self, stage: Stage, **shared: Any) -> Failure:
        """The verdict, at the stage that it happened in."""
        return self.make(**{"stage": stage, **self.fields}, **shared)


class Refused(Exception):
    """The candidate says that it was not written for these inputs."""


@dataclass(frozen=True)
class Called:
    """What one verification call left."""

    outputs: list[Array]
    computed_by_library: tuple[str, ...]
    """Chains of ATen operations, outermost first, joined by `>`."""
    reused: bool
    shared: tuple[tuple[int, int], ...]
    """Pairs (output, input) over the same memory; an input's number beyond the last stands for the candidate's state."""


class CandidateProcess:
    """Asks a runner of the role `candidate`."""

    def __init__(self, runner: Runner, folder: Path, task: Task, limits: Limits, pattern: Bytes) -> None:
        self._runner = runner
        self._folder = folder
        self._task = task
        self._limits = limits
        self._pattern = pattern
        self.call_seconds = limits.call_seconds

    def load(self, seconds: float) -> Message:
        """Load the candidate; what it says about itself.

        Raises:
            Stopped: it does not load.
        """
        answer = self._ask({"do": "load"}, seconds=seconds)
        if "invalid" in answer:
            raise Stopped(Invalid, reason=_clean(answer["invalid"]))
        return answer

    def call(
        self,
        axes: dict[str, int],
        inputs: Sequence[Array],
        *,
        poison: int,
        record: bool = False,
        watch: bool = False,
        may_write: frozenset[int] = frozenset(),
    ) -> Called:
        """One verification call on a copy of these inputs.

        Raises:
            Stopped: it crashed, hung, wrote where it must not, or returned no tensors of the right kind.
            Refused: it was not written for these inputs.
        """
        given, taken = Region(inputs_layout(self._task, axes)), Region(outputs_layout(self._task, axes))
        given.fill_bands(self._pattern)
        taken.fill_bands(self._pattern)
        for place, array in zip(given.arrays(), inputs, strict=True):
            place[...] = array
        message = {"do": "run", "axes": axes, "poison": poison, "record": record, "watch": watch}
        try:
            answer = self._ask(message, [given.descriptor, taken.descriptor], seconds=self.call_seconds, refusable=True)
        finally:
            given.close()
            taken.close()
        self.refuse_running_processes()
        self._check_memory(given, taken, inputs, answer, may_write)
        self._check_kind(answer)
        return Called(
            outputs=taken.arrays(),
            computed_by_library=tuple(str(n) for n in answer.get("computed_by_library", ())),
            reused=bool(answer.get("reused")),
            shared=tuple((int(o), int(i)) for o, i in answer.get("shared", ())),
        )

    def prepare(self, axes: dict[str, int], ring: Ring) -> None:
        """Get ready to be timed on a ring of inputs; two calls warm it up.

        Raises:
            Stopped: as `call`.
        """
        message = {"do": "prepare", "axes": axes, "slots": ring.slots}
        self._ask(message, [ring.region.descriptor], seconds=3 * self.call_seconds)

    def sample(self, slots: Sequence[int]) -> tuple[int, int]:
        """Nanoseconds of calls on these slots: by the runner's clock, and seen from here.

        Raises:
            Stopped: as `call`.
        """
        begun = time.perf_counter_ns()
        answer = self._ask({"do": "sample", "slots": list(slots)}, seconds=SAMPLE_SECONDS)
        outside = time.perf_counter_ns() - begun
        inside = answer.get("ns")
        if not isinstance(inside, int) or inside <= 0:
            raise Stopped.guard(Guard.CLOCK_MISMATCH, f"the candidate's process reports a time of {inside!r} ns")
        return inside, outside

    def fetch(self, axes: dict[str, int]) -> list[Array]:
        """The outputs of the last timed call.

        Raises:
            Stopped: as `call`.
        """
        taken = Region(outputs_layout(self._task, axes))
        try:
            answer = self._ask({"do": "fetch", "axes": axes}, [taken.descriptor], seconds=self.call_seconds)
        finally:
            taken.close()
        self._check_kind(answer)
        return taken.arrays()

    def close(self) -> Ending:
        """End the process and remove its folder."""
        ending = self._runner.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        return ending

    def refuse_running_processes(self) -> None:
        """Stop at the first call that leaves processes behind: the next call would only add to them.

        Raises:
            Stopped: a process that the candidate started still runs.
        """
        running = sum(1 for _ in _descendants(self._runner.pid))
        if running:
            raise Stopped.guard(Guard.LEFT_BEHIND, f"{running} processes that it started are still running")

    @property
    def dropped_bytes(self) -> int:
        """What it printed beyond the limit."""
        return self._runner.dropped_bytes

    def _ask(
        self, message: Message, descriptors: Sequence[int] = (), *, seconds: float, refusable: bool = False
    ) -> Message:
        try:
            answer = self._runner.ask(message, seconds=seconds, descriptors=descriptors)
        except RunnerEnded as ended:
            raise _death(ended.ending, seconds) from None
        if "task_error" in answer:
            raise Stopped(JudgeError, reason=f"the task no longer loads: {answer['task_error']}")
        if "raised" in answer:
            told = answer["raised"] if isinstance(answer["raised"], dict) else {}
            raise _raised(told, self._runner.output, refusable=refusable)
        return answer

    def _check_memory(
        self, given: Region, taken: Region, inputs: Sequence[Array], answer: Message, may_write: frozenset[int]
    ) -> None:
        damaged = given.damaged_band(self._pattern)
        if damaged is not None:
            name = self._task.kernel_inputs[damaged].name
            raise Stopped.guard(Guard.OUT_OF_BOUNDS_WRITE, f"memory beside the input `{name}` was written to")
        if answer.get("out_of_bounds") or taken.damaged_band(self._pattern) is not None:
            raise Stopped.guard(Guard.OUT_OF_BOUNDS_WRITE, "memory beside an output or a work buffer was written to")
        for index, (array, place) in enumerate(zip(inputs, given.arrays(), strict=True)):
            if index not in may_write and not same_bytes(np.ascontiguousarray(array), place):
                name = self._task.kernel_inputs[index].name
                raise Stopped.guard(Guard.INPUT_MODIFIED, f"the input `{name}` was changed by the call")

    def _check_kind(self, answer: Message) -> None:
        if "invalid" in answer:
            raise Stopped(Invalid, stage=Stage.LOAD, reason=_clean(answer["invalid"]))
        if "wrong_type" in answer:
            raise Stopped.guard(Guard.WRONG_OUTPUT_TYPE, _clean(answer["wrong_type"]))
        if "wrong_shape" in answer:
            raise Stopped(Incorrect, reason=_clean(answer["wrong_shape"]))
        busy = answer.get("still_working", 0.0)
        if isinstance(busy, float) and busy > _BUSY_SECONDS:
            raise Stopped.guard(
                Guard.LEFT_BEHIND, f"{busy * 1000:.0f} ms of CPU time were used in 12 ms after the call had returned"
            )


def start_folder() -> Path:
    """A private scratch folder for one runner."""
    return Path(tempfile.mkdtemp(prefix="kernelwright-"))


def _death(ending: Ending, seconds: float) -> Stopped:
    """What the end of a candidate's process means."""
    tail = ending.output[-_TAIL:].strip()
    said = f"; it printed: {tail}" if tail else ""
    match ending.kind:
        case "server_died":
            return Stopped(JudgeError, reason="the judge's server died")
        case "timed_out":
            return Stopped(TimedOut, reason=f"no answer within {seconds:g} s{said}")
        case "garbled":
            return Stopped.guard(Guard.EARLY_EXIT, "the process answered with something that is no answer")
    if any(sign in ending.output for sign in _OUT_OF_MEMORY_SIGNS) or ending.code == signal.SIGKILL:
        return Stopped(TimedOut, limit="memory", reason=f"more memory than it may have{said}")
    if ending.kind == "signalled":
        return Stopped(Crashed, signal=ending.code, reason=f"died of {_signal_name(ending.code)}{said}")
    if ending.code == 0:
        return Stopped.guard(Guard.EARLY_EXIT, f"the process ended cleanly without an answer{said}")
    return Stopped(Crashed, reason=f"the process ended with status {ending.code}{said}")


def _raised(told: dict[str, Any], output: str, *, refusable: bool) -> Stopped | Refused:
    """What an exception in the candidate means."""
    kind, place = str(told.get("type", "")), str(told.get("place", ""))
    words = _clean(f"{kind}: {told.get('message', '')}" + (f" ({place})" if place else ""))
    log = str(told.get("build_log", ""))
    if log:
        return Stopped(BuildFailed, reason=_clean(first_error(log) or words), log=trimmed(strip_escapes(log)))
    if told.get("memory"):
        return Stopped(TimedOut, limit="memory", reason=f"more memory than it may have: {words}")
    if kind == "SystemExit":
        return Stopped.guard(Guard.EARLY_EXIT, f"the candidate asked the process to exit: {words}")
    if refusable:
        return Refused(words)
    return Stopped(Crashed, reason=words)


def _clean(words: object) -> str:
    return trimmed(strip_escapes(str(words)), limit=1200)


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def _descendants(pid: int) -> list[int]:
    """Living processes below `pid`."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are all we want
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] not in "ZX":
                parents.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    left = [pid]
    while left:
        below = parents.get(left.pop(), [])
        found += below
        left += below
    return found
