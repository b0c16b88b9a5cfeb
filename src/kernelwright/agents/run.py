"""`RunConfig` and `RunResult`: one search, what it was asked and what came out."""

from __future__ import annotations

from typing import Literal

from kernelwright.core.records import SCHEMA_VERSION, Record
from kernelwright.judge.evaluation import BaselineTiming, Evaluation, Rule
from kernelwright.judge.protocol import TimingPlan
from kernelwright.tasks.request import TaskRequest


class Budget(Record):
    """What a run may spend; the first limit that is reached ends it. None is no limit."""

    evaluations: int | None = 60
    wall_seconds: float | None = 150.0
    tokens: int | None = None
    cost_usd: float | None = None


class ModelConfig(Record):
    """A language model as proposer. The key comes from the environment and is never stored."""

    name: str
    record: str | None = None
    replay: str | None = None
    deadline_seconds: float = 120.0
    """One deadline a call, retries included."""
    temperature: float = 0.7
    only: bool = False
    """Whether the model works instead of (True) or beside (False) the built-in proposers."""


class RunConfig(Record):
    """The resolved configuration; stored in the run's folder, compared key by key on resume."""

    schema_version: int = SCHEMA_VERSION
    request: TaskRequest
    preset: str = "evolve"
    seed: int = 0
    budget: Budget = Budget()
    rule: Rule = Rule.OWN_KERNEL
    model: ModelConfig | None = None
    timing: TimingPlan = TimingPlan()
    finalists: int = 3
    target_roofline_fraction: float = 0.95
    """Stop early when the best candidate reaches this."""
    serial: bool = False
    """Build and judge one candidate at a time, so that a run can be reproduced exactly."""


StopReason = Literal[
    "evaluations", "wall_seconds", "tokens", "cost", "near_roofline", "exhausted", "interrupted", "failed"
]


class Finalist(Record):
    """A candidate measured again, in fresh processes, after the search."""

    candidate: str
    evaluation: Evaluation


class RunResult(Record):
    """What a run came to."""

    schema_version: int = SCHEMA_VERSION
    run: str
    """Id of the run: a sortable time stamp and a few random letters."""
    outcome: Literal["improved", "baseline_kept", "failed"]
    """`improved`: a finalist is significantly faster than the best baseline, measured again."""
    reason: str
    """One sentence."""
    stop_reason: StopReason
    task: str
    device: str
    best: str | None
    """Id of the best candidate (also when the baseline is kept and it was right but not faster)."""
    finalists: tuple[Finalist, ...] = ()
    baselines: tuple[BaselineTiming, ...] = ()
    evaluations: int
    seconds: float
    tokens: int = 0
    cost_usd: float = 0.0
