"""What the search and the command line ask of a judge. `judge.local.LocalJudge` is the one on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from kernelwright.core.records import Record
from kernelwright.judge.evaluation import BaselineTiming, Evaluation, Rule
from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.device import Device
from kernelwright.tasks.graph import Graph
from kernelwright.tasks.model import Task
from kernelwright.tasks.request import TaskRequest


class Limits(Record):
    """What a candidate may use."""

    build_seconds: float = 120.0
    load_seconds: float = 60.0
    call_seconds: float = 20.0
    """One call of the candidate during verification; scaled up where the reference itself is slow."""
    evaluation_seconds: float = 180.0
    memory_bytes: int = 8 << 30
    """Address space above what the warm server already maps."""
    output_bytes: int = 1 << 20
    """Standard output and error that are kept; the rest is counted and dropped."""


class TimingPlan(Record):
    """How long timing may take."""

    pairs: int = 25
    """Interleaved pairs wanted per workload; 0: a right candidate is not timed."""
    seconds: float = 1.5
    """Stop adding pairs after this long per workload, but never below `minimum_pairs`."""
    minimum_pairs: int = 7
    ring_bytes: int = 512 << 20
    """Rotating inputs: enough copies to pass this footprint, at least two."""


class TaskSession(Protocol):
    """A task made ready: oracle computed, baselines measured, hidden workloads drawn."""

    @property
    def task(self) -> Task: ...

    @property
    def device(self) -> Device: ...

    def graph(self) -> Graph | str:
        """The reference as core ATen operations, or the reason why it cannot be traced."""
        ...

    def inductor_sources(self) -> Sequence[Candidate] | str:
        """What torch.compile generates for the timed workloads, as `python` candidates; or the reason why not."""
        ...

    def baselines(self) -> Sequence[BaselineTiming]:
        """Every mode on every timed workload; measured once, on first use."""
        ...

    def build(self, candidate: Candidate) -> None:
        """Build ahead into the cache. Thread-safe; pauses while anything is being timed. Never raises for a bad candidate."""
        ...

    def evaluate(
        self,
        candidate: Candidate,
        *,
        rule: Rule = Rule.OWN_KERNEL,
        timing: TimingPlan | None = None,
        allowed_library: tuple[str, ...] = (),
    ) -> Evaluation:
        """The verdict. Never raises for anything that the candidate does; a fresh process each time.

        `allowed_library` names ATen operations that this run leaves to the library because no proposer covers them,
        beside those that the task allows.
        """
        ...


class Judge(Protocol):
    """Owns the truth: oracle, secret seed, hidden workloads, clock, verdict."""

    def describe(self, request: TaskRequest) -> Task:
        """Read a task in the sandbox.

        Raises:
            TaskError: it is unusable; the reason says why.
        """
        ...

    def open(self, task: Task) -> AbstractContextManager[TaskSession]:
        """Prepare a task.

        Raises:
            TaskError: the task audit refuses it.
        """
        ...
