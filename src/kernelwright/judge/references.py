"""The process that runs a task's reference, seen from the judge: restarted when it dies, its failures typed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from kernelwright.core.errors import InternalError, TaskError, TaskFault
from kernelwright.judge.processes import Ending, Runner, RunnerEnded, ServerHandle
from kernelwright.judge.protocol import Limits
from kernelwright.judge.regions import Region, layout
from kernelwright.judge.wire import Message
from kernelwright.tasks.arrays import Array
from kernelwright.tasks.model import Task

QUESTION_SECONDS = 300.0
"""Longest that the reference may take for one question (the oracle calls it about ten times)."""


class ReferenceProcess:
    """Asks a runner of the role `reference`, which is started on first use."""

    def __init__(self, server: ServerHandle, limits: Limits, threads: int, task: Task | None) -> None:
        self._server = server
        self._limits = limits
        self._settings = {"threads": threads, "timed": False, "task": task.to_json() if task else None}
        self._task = task
        self._runner: Runner | None = None
        self._folder: Path | None = None
        self._killed = False

    def ask(self, message: Message, descriptors: Sequence[int] = (), *, seconds: float = QUESTION_SECONDS) -> Message:
        """The answer.

        Raises:
            TaskError: the reference hangs, crashes, lacks memory, or raised one itself.
            InternalError: something of ours failed in there.
        """
        try:
            answer = self.runner.ask(message, seconds=seconds, descriptors=descriptors)
        except RunnerEnded as ended:
            self.close()
            raise task_fault(ended.ending, seconds) from None
        return answered(answer)

    @property
    def runner(self) -> Runner:
        """A living runner."""
        if self._runner is None:
            self._folder = Path(tempfile.mkdtemp(prefix="kernelwright-"))
            self._runner = self._server.spawn(
                "reference",
                folder=self._folder,
                memory_bytes=max(self._limits.memory_bytes, 8 << 30),
                output_bytes=self._limits.output_bytes,
                settings=self._settings,
            )
        if self._killed:
            self.close()
            raise InternalError("the session was closed")
        return self._runner

    def own_inputs(self, axes: dict[str, int], seeds: Sequence[int]) -> list[list[Array]]:
        """The task's own inputs, one set for each seed."""
        region, sets = self.own_region(axes, seeds)
        region.close()
        return sets

    def own_region(self, axes: dict[str, int], seeds: Sequence[int]) -> tuple[Region, list[list[Array]]]:
        """The same, with the region that holds them."""
        assert self._task is not None
        specs = [(spec.shape(axes), spec.dtype) for spec in self._task.kernel_inputs]
        region = Region(layout(specs * len(seeds)))
        self.ask({"do": "own", "axes": axes, "seeds": list(seeds)}, [region.descriptor])
        arrays = region.arrays()
        width = len(specs)
        return region, [arrays[n * width : (n + 1) * width] for n in range(len(seeds))]

    def kill(self) -> None:
        """End it for good, from another thread than the one that asks; that one is told, and closes it."""
        self._killed = True
        runner = self._runner
        if runner is not None:
            runner.kill()

    def close(self) -> None:
        """End the process and remove its folder."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def answered(answer: Message) -> Message:
    """The answer, or what it says went wrong as an exception."""
    if "task_error" in answer:
        told = answer["task_error"]
        reason: TaskFault = next((r for r in get_args(TaskFault) if r == told["reason"]), "reference_raises")
        raise TaskError(reason, str(told["message"]), hint=str(told["hint"]))
    if "raised" in answer:
        raise _raised(answer["raised"])
    return answer


def _raised(told: dict[str, Any]) -> TaskError | InternalError:
    words = f"{told['type']}: {told['message']} ({told['place']})"
    if told["memory"]:
        return TaskError("out_of_memory", f"the reference needs more memory than it may have: {words}")
    return InternalError(f"while asking the reference: {words}")


def task_fault(ending: Ending, seconds: float) -> TaskError:
    """How the end of a reference's process reads as a fault of the task."""
    tail = f"; it printed: {ending.output[-300:].strip()}" if ending.output.strip() else ""
    match ending.kind:
        case "timed_out":
            return TaskError(
                "reference_hangs",
                f"the reference did not finish within {seconds:g} s{tail}",
                hint="make the inputs smaller",
            )
        case "signalled" if ending.code == 9:
            return TaskError("out_of_memory", f"the reference's process was killed (out of memory?){tail}")
        case "signalled":
            return TaskError("reference_crashes", f"the reference's process died of signal {ending.code}{tail}")
        case "server_died":
            return TaskError("reference_crashes", "the judge's server died while the reference was running")
    return TaskError("reference_crashes", f"the reference's process ended by itself with status {ending.code}{tail}")
