"""What PyTorch already gives: eager, torch.compile and its max-autotune mode, each in a process of its own."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from kernelwright.core.errors import KernelwrightError, TaskError
from kernelwright.core.text import trimmed
from kernelwright.judge.ahead import Ahead
from kernelwright.judge.evaluation import BaselineTiming
from kernelwright.judge.gate import TimingGate
from kernelwright.judge.processes import Runner, RunnerEnded, ServerHandle
from kernelwright.judge.protocol import Limits, TimingPlan
from kernelwright.judge.references import ReferenceProcess, answered, task_fault
from kernelwright.judge.regions import Region
from kernelwright.tasks.arrays import Array
from kernelwright.tasks.model import Task, Workload

Mode = Literal["eager", "compile", "compile-max-autotune"]
MODES: tuple[Mode, ...] = get_args(Mode)
PREPARE_SECONDS = 240.0
SAMPLE_SECONDS = 60.0
_SAMPLES = 9
_BUDGET_NS = 1_500_000_000
_MOST_SLOTS = 24
_SHORT_NS = 200_000
"""A sample is at least about this long: shorter calls are repeated within it."""
_MOST_CALLS = 64


@dataclass
class Ring:
    """Rotating inputs of one timed workload: different values, own addresses, together larger than the caches."""

    workload: Workload
    region: Region
    inputs: list[list[Array]]

    @property
    def slots(self) -> int:
        """How many sets of inputs there are."""
        return len(self.inputs)


def make_ring(task: Task, reference: ReferenceProcess, workload: Workload, plan: TimingPlan, seed: int) -> Ring:
    """Draw the ring's inputs with the task's own generator, a different seed for each slot."""
    size = sum(_bytes(spec.shape(workload.axes)) * spec.dtype.itemsize for spec in task.kernel_inputs)
    slots = min(_MOST_SLOTS, max(2, -(-plan.ring_bytes // max(1, size))))
    region, inputs = reference.own_region(workload.axes, [seed + n for n in range(slots)])
    region.seal()
    return Ring(workload, region, inputs)


def _bytes(shape: tuple[int, ...]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count


def calls_per_sample(ns_per_call: float) -> int:
    """How many calls make a sample long enough for the clock."""
    return max(1, min(_MOST_CALLS, round(_SHORT_NS / max(1.0, ns_per_call))))


@dataclass
class LiveBaseline:
    """A baseline's process, ready to be timed on one workload."""

    mode: Mode
    runner: Runner
    folder: Path
    slots: int

    def sample(self, slots: list[int]) -> int:
        """Nanoseconds of calls on these slots.

        Raises:
            TaskError: the baseline died.
        """
        try:
            return int(answered(self.runner.ask({"do": "sample", "slots": slots}, seconds=SAMPLE_SECONDS))["ns"])
        except RunnerEnded as ended:
            raise task_fault(ended.ending, SAMPLE_SECONDS) from None

    def close(self) -> None:
        """End the process."""
        self.runner.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class Baselines:
    """All modes on all timed workloads, measured once; the best one of each workload stays alive for pairing."""

    task: Task
    server: ServerHandle
    limits: Limits
    gate: TimingGate
    threads: int
    ahead: Ahead
    modes: Sequence[Mode] = MODES
    measured: list[BaselineTiming] = field(default_factory=list)
    _live: dict[str, LiveBaseline] = field(default_factory=dict)

    def best(self, ring: Ring) -> LiveBaseline:
        """The fastest mode on this workload, alive.

        Raises:
            TaskError: not even eager runs.
        """
        name = ring.workload.name
        if name not in self._live:
            self._live[name] = self._measure(ring)
        live = self._live[name]
        if live.runner.ended:
            live.close()
            self._live[name] = self._start(live.mode, ring)
        return self._live[name]

    def _measure(self, ring: Ring) -> LiveBaseline:
        """Time every mode; keep the best alive."""
        best: tuple[float, LiveBaseline] | None = None
        failure: KernelwrightError | None = None
        for mode in self.modes:
            refusal = self.ahead.failure(mode)
            if refusal:
                self._note(mode, ring, None, trimmed(refusal, limit=600))
                continue
            try:
                live = self._start(mode, ring)
                median_us = self._median_us(live)
            except KernelwrightError as error:
                failure = failure or error
                self._note(mode, ring, None, trimmed(error.message, limit=600))
                continue
            self._note(mode, ring, median_us, "")
            if best is None or median_us < best[0]:
                loser, best = best, (median_us, live)
            else:
                loser = (median_us, live)
            if loser is not None:
                loser[1].close()
        if best is None:
            raise failure or TaskError("reference_raises", "no baseline runs")
        return best[1]

    def _note(self, mode: Mode, ring: Ring, median_us: float | None, failure: str) -> None:
        self.measured.append(
            BaselineTiming(mode=mode, workload=ring.workload.name, median_us=median_us, failure=failure)
        )

    def _start(self, mode: Mode, ring: Ring) -> LiveBaseline:
        folder = Path(tempfile.mkdtemp(prefix="kernelwright-"))
        runner = self.server.spawn(
            "reference",
            folder=folder,
            memory_bytes=max(self.limits.memory_bytes, 8 << 30),
            output_bytes=self.limits.output_bytes,
            settings={"threads": self.threads, "timed": True, "task": self.task.to_json()},
        )
        message = {"do": "prepare", "mode": mode, "axes": ring.workload.axes, "slots": ring.slots}
        try:
            answered(runner.ask(message, seconds=PREPARE_SECONDS, descriptors=[ring.region.descriptor]))
        except RunnerEnded as ended:
            shutil.rmtree(folder, ignore_errors=True)
            raise task_fault(ended.ending, PREPARE_SECONDS) from None
        except KernelwrightError:
            runner.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return LiveBaseline(mode, runner, folder, ring.slots)

    def _median_us(self, live: LiveBaseline) -> float:
        with self.gate.exclusive():
            first = live.sample([0])
            calls = calls_per_sample(first)
            samples: list[float] = []
            spent = 0
            for number in range(_SAMPLES):
                slots = [(number * calls + k) % live.slots for k in range(calls)]
                ns = live.sample(slots)
                spent += ns
                samples.append(ns / calls / 1000)
                if spent > _BUDGET_NS and len(samples) >= 3:
                    break
        return statistics.median(samples)

    def close(self) -> None:
        """End every process."""
        for live in self._live.values():
            live.close()
        self._live.clear()
