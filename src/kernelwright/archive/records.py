"""What the ledger and a run's folder hold, as records."""

from __future__ import annotations

from typing import Any

from kernelwright.core.records import SCHEMA_VERSION, Record
from kernelwright.judge.evaluation import Evaluation, Passed
from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.device import Device
from kernelwright.tasks.model import Task


class RunHeader(Record):
    """What a run was asked; `run.json` of its folder."""

    schema_version: int = SCHEMA_VERSION
    run: str
    """A sortable time stamp and a few random letters."""
    config: dict[str, Any]
    """The resolved configuration (`agents.run.RunConfig` as JSON values)."""
    task: Task
    device: Device
    versions: dict[str, str]
    """Of kernelwright, Python and the libraries that decide the result."""
    started_at: str
    """ISO 8601, UTC."""


class LedgerAttempt(Record):
    """One judged candidate of a run; a line of `attempts.jsonl` and a row of the ledger."""

    schema_version: int = SCHEMA_VERSION
    run: str
    index: int
    """1-based number of the evaluation in the run."""
    step: int
    """0-based step of the search that proposed it."""
    elapsed_seconds: float
    """Working time of the run when the verdict came, without pauses between an interruption and `--resume`."""
    candidate: Candidate
    evaluation: Evaluation


class LedgerFinalist(Record):
    """A candidate measured again after the search; a line of `finalists.jsonl`."""

    schema_version: int = SCHEMA_VERSION
    run: str
    rank: int
    """0-based place in the search's own ranking."""
    candidate: str
    """Id of the candidate."""
    elapsed_seconds: float
    evaluation: Evaluation


class LedgerModelCall(Record):
    """What one call of a language model cost; a line of `calls.jsonl`. Holds neither prompt nor key."""

    schema_version: int = SCHEMA_VERSION
    run: str
    index: int
    """1-based number of the call in the run."""
    step: int
    model: str
    role: str
    prompt_hash: str
    """Hash of everything that was sent."""
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    """None where no price is known."""
    seconds: float
    outcome: str
    candidate: str | None = None
    record: dict[str, Any] = {}
    """Everything else that the proposer said about the call."""


class RunSummary(Record):
    """A run as a list shows it."""

    run: str
    task: str
    task_name: str
    device: str
    device_name: str
    preset: str
    seed: int
    folder: str
    started_at: str
    finished_at: str | None
    """None while it works, or when it was killed."""
    outcome: str | None
    stop_reason: str | None
    best: str | None
    speedup: float | None
    """Of the best candidate, measured again where there was a finalist."""
    evaluations: int
    """Attempts in the ledger."""


class Kernel(Record):
    """The best that the ledger knows for a task on a device."""

    run: str
    candidate: Candidate
    evaluation: Evaluation
    remeasured: bool
    """Whether `evaluation` is a finalist's, measured again after its search."""


class LineageEntry(Record):
    """One ancestor of a candidate."""

    candidate: str
    parents: tuple[str, ...]
    proposer: str
    operator: str
    outcome: str
    speedup: float | None
    generation: int
    """0 for the candidate itself, 1 for its parents, …"""


def lower_speedup(evaluation: Evaluation) -> float | None:
    """Lower end of the speedup's 95 % interval; None for everything that is not right and timed."""
    if not isinstance(evaluation, Passed) or evaluation.speed is None:
        return None
    return evaluation.speed.speedup_ci[0]
