"""What the loop knows at a step: a fold over the run's records, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from kernelwright.agents.proposing import Attempt
from kernelwright.archive.records import lower_speedup
from kernelwright.core.records import SCHEMA_VERSION, Record
from kernelwright.judge.evaluation import Evaluation, Passed
from kernelwright.platforms.candidates import Candidate


class StepRecord(Record):
    """What a step proposed; a line of `steps.jsonl`, written before any of it is judged."""

    schema_version: int = SCHEMA_VERSION
    step: int
    """0-based."""
    name: str
    """Of the step in the preset."""
    phase: int = 0
    """0-based phase of a generations schedule."""
    proposer: str
    operator: str
    seen: int
    """Attempts that were judged when this step was decided."""
    parents: tuple[str, ...] = ()
    drafts: tuple[Candidate, ...] = ()
    """What passed the screens, in the order in which it will be judged."""
    screened: dict[str, str] = {}
    """Candidate id to the screen that took it out."""
    failure: str = ""
    """Why the proposer broke, where it did."""


@dataclass
class SearchState:
    """Steps and attempts so far. Schedules and populations are functions of it."""

    steps: list[StepRecord] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    queue: list[Candidate] = field(default_factory=list)
    """Proposed, in order, and not judged yet."""
    best: Attempt | None = None

    def add_attempt(self, attempt: Attempt) -> None:
        """Take a verdict in."""
        self.attempts.append(attempt)
        mine = fitness(attempt.evaluation)
        if mine is not None and (self.best is None or mine > (fitness(self.best.evaluation) or 0.0)):
            self.best = attempt


def fitness(evaluation: Evaluation) -> float | None:
    """What selection maximises: the lower end of the speedup's interval, so that noise alone wins nothing.

    0 for a right candidate that was not timed, None for one that is not right: failures are no low scores, they have none.
    """
    if not isinstance(evaluation, Passed):
        return None
    return lower_speedup(evaluation) or 0.0


def keyed_random(seed: int, step: int, purpose: str) -> Random:
    """The generator of one decision. It depends on nothing that happened before, so a resumed run draws the same."""
    return Random(f"{seed}:{step}:{purpose}")
