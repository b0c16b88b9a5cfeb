"""What a run tells whoever watches it; `interfaces` shows these as a live table, plain lines or JSON lines."""

from __future__ import annotations

from typing import Literal, Protocol

from kernelwright.agents.proposing import Attempt
from kernelwright.agents.run import Finalist, RunConfig, RunResult
from kernelwright.core.records import Record
from kernelwright.judge.evaluation import BaselineTiming
from kernelwright.platforms.device import Device
from kernelwright.tasks.model import Task


class RunStarted(Record):
    kind: Literal["run_started"] = "run_started"
    run: str
    folder: str
    config: RunConfig
    task: Task
    device: Device
    resumed_evaluations: int = 0
    """Attempts that an earlier start of this run already made."""


class PhaseStarted(Record):
    """Something that takes a while has begun."""

    kind: Literal["phase_started"] = "phase_started"
    phase: Literal["audit", "oracle", "baselines", "trace", "search", "finalists", "export"]
    detail: str = ""


class BaselinesMeasured(Record):
    kind: Literal["baselines_measured"] = "baselines_measured"
    baselines: tuple[BaselineTiming, ...]


class AttemptJudged(Record):
    kind: Literal["attempt_judged"] = "attempt_judged"
    index: int
    """1-based number of the evaluation in this run."""
    attempt: Attempt
    best: Attempt | None
    """The best so far, this attempt included."""
    elapsed_seconds: float


class FinalistMeasured(Record):
    kind: Literal["finalist_measured"] = "finalist_measured"
    finalist: Finalist


class Note(Record):
    """Something that the user should know: a part left to the library, a proposer that has nothing to say."""

    kind: Literal["note"] = "note"
    text: str


class RunFinished(Record):
    kind: Literal["run_finished"] = "run_finished"
    result: RunResult


Event = RunStarted | PhaseStarted | BaselinesMeasured | AttemptJudged | FinalistMeasured | Note | RunFinished


class Observer(Protocol):
    """Watches a run. An exception in an observer ends the run as an internal error."""

    def on_event(self, event: Event) -> None: ...
