"""What was tried and what came of it, grouped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.agents.state import StepRecord
from kernelwright.archive.records import LedgerAttempt
from kernelwright.interfaces.report.figures import clean, one_line
from kernelwright.interfaces.report.kinds import KINDS, Kind, kind_of
from kernelwright.judge.evaluation import BuildFailed, Evaluation, Passed, Rejected

REASONS = 3
"""Different reasons shown of one group."""


@dataclass(frozen=True)
class Reason:
    """Why one attempt failed."""

    index: int
    stage: str
    text: str
    log: str


@dataclass(frozen=True)
class Group:
    """Attempts with the same outcome, and the same guard where one fired."""

    kind: Kind
    guard: str
    count: int
    share: float
    """Of all attempts, 0 to 1."""
    reasons: tuple[Reason, ...]
    """The first of each sort."""


def groups(attempts: Sequence[LedgerAttempt]) -> list[Group]:
    """By outcome and guard, in the order of `KINDS`."""
    members: dict[tuple[str, str], list[LedgerAttempt]] = {}
    for attempt in attempts:
        members.setdefault((kind_of(attempt.evaluation).key, _guard(attempt.evaluation)), []).append(attempt)
    order = list(KINDS)
    return [
        Group(
            kind=KINDS[key],
            guard=guard.replace("_", " "),
            count=len(found),
            share=len(found) / len(attempts),
            reasons=_reasons(found),
        )
        for (key, guard), found in sorted(members.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
    ]


def _guard(evaluation: Evaluation) -> str:
    return str(evaluation.guard) if isinstance(evaluation, Rejected) else ""


def _reasons(attempts: Sequence[LedgerAttempt]) -> tuple[Reason, ...]:
    different: dict[str, Reason] = {}
    for attempt in attempts:
        evaluation = attempt.evaluation
        text = evaluation.untimed if isinstance(evaluation, Passed) else evaluation.reason
        shown = one_line(text, 320)
        if shown and shown not in different:
            log = clean(evaluation.log, 6000) if isinstance(evaluation, BuildFailed) else ""
            stage = "" if isinstance(evaluation, Passed) else str(evaluation.stage)
            different[shown] = Reason(attempt.index, stage, shown, log)
        if len(different) == REASONS:
            break
    return tuple(different.values())


def screened(steps: Sequence[StepRecord]) -> list[tuple[str, int]]:
    """What never came to the judge: the screen, and how many candidates it took out."""
    counts = Counter(one_line(screen, 120) for step in steps for screen in step.screened.values())
    return counts.most_common()


def broken_steps(steps: Sequence[StepRecord]) -> list[tuple[str, str]]:
    """Proposers that broke: (proposer and operator, why)."""
    return [(one_line(f"{s.proposer} {s.operator}", 80), one_line(s.failure, 500)) for s in steps if s.failure]
