"""The end of a run: the best candidates are measured again, and only that decides."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.agents.population import members
from kernelwright.agents.preset import Population
from kernelwright.agents.proposing import Attempt
from kernelwright.agents.run import Finalist
from kernelwright.archive.records import lower_speedup
from kernelwright.judge.evaluation import Evaluation, Passed
from kernelwright.judge.protocol import TimingPlan

LONGER = 3
"""Finalists are timed this much longer: the search's own best is a maximum over noise and flatters itself."""


@dataclass(frozen=True)
class Verdict:
    """What a run came to."""

    winner: str | None
    """Id of the best candidate."""
    evaluation: Evaluation | None
    outcome: str
    reason: str


def longer(plan: TimingPlan) -> TimingPlan:
    """The timing of finalists."""
    return plan.replace(
        pairs=plan.pairs * LONGER, seconds=plan.seconds * LONGER, minimum_pairs=max(plan.minimum_pairs * 2, 15)
    )


def ranking(attempts: list[Attempt], count: int) -> list[Attempt]:
    """Candidates to measure again, best first: twice `count`, since some may not be right a second time."""
    timed = [a for a in attempts if lower_speedup(a.evaluation) is not None]
    return members(Population(kind="elite", size=2 * count), timed) if count else []


def passed_again(finalists: list[Finalist]) -> int:
    """How many were right and timed the second time too."""
    return sum(lower_speedup(f.evaluation) is not None for f in finalists)


def decide(best: Attempt | None, finalists: list[Finalist], attempts: int, hint: str) -> Verdict:
    """The winner by second measurement, and the outcome.

    Args:
        best: The search's own best.
        finalists: Second measurements.
        attempts: How many candidates were judged.
        hint: Why there was nothing to try, where that is known.
    """
    again = [f for f in finalists if lower_speedup(f.evaluation) is not None]
    if again:
        winner = max(again, key=lambda f: (_is_faster(f.evaluation), lower_speedup(f.evaluation) or 0.0))
        return _judged(winner)
    if finalists:
        reason = "no candidate that was right at first was right and timed when measured again"
        return Verdict(None, None, "failed", reason)
    if best is not None:
        passed = best.evaluation
        why = passed.untimed if isinstance(passed, Passed) and passed.speed is None else "it was not measured again"
        return Verdict(best.candidate.id, passed, "baseline_kept", f"a candidate is right, but {why}")
    if attempts:
        return Verdict(None, None, "failed", f"none of {attempts} candidates was right")
    return Verdict(None, None, "failed", f"no proposer had anything to try{f': {hint}' if hint else ''}")


def _judged(winner: Finalist) -> Verdict:
    assert isinstance(winner.evaluation, Passed) and winner.evaluation.speed is not None
    speed = winner.evaluation.speed
    low, high = speed.speedup_ci
    measured = f"{speed.speedup:.2f}x the best baseline (95 % interval {low:.2f} to {high:.2f}), measured again"
    if speed.verdict == "faster":
        return Verdict(winner.candidate, winner.evaluation, "improved", f"the best candidate runs at {measured}")
    reason = f"the best candidate is {speed.verdict}: {measured}"
    return Verdict(winner.candidate, winner.evaluation, "baseline_kept", reason)


def _is_faster(evaluation: Evaluation) -> bool:
    return isinstance(evaluation, Passed) and evaluation.speed is not None and evaluation.speed.verdict == "faster"
