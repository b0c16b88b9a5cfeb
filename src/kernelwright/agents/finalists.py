"""The end of a run: the best candidates are measured again, and only that decides."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.agents.population import members
from kernelwright.agents.preset import Population
from kernelwright.agents.proposing import Attempt
from kernelwright.agents.run import Finalist, StopReason
from kernelwright.archive.records import lower_speedup
from kernelwright.judge.evaluation import Evaluation, Passed, Speed, WorkloadTiming
from kernelwright.judge.protocol import TimingPlan

LONGER = 2
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


def confirmed(first: Evaluation, second: Evaluation) -> Evaluation:
    """One verdict from two measurements in processes of their own.

    Samples within a process share its memory placement and whatever else the machine did meanwhile, so their interval is
    too narrow: the interval of the whole spans both, and faster (or slower) is what both say.
    """
    if not (isinstance(first, Passed) and first.speed and isinstance(second, Passed) and second.speed):
        return second if isinstance(first, Passed) else first
    speed = _merged(first.speed, second.speed)
    rounds = (f"{s.speedup:.3f}x ({s.speedup_ci[0]:.3f} to {s.speedup_ci[1]:.3f})" for s in (first.speed, second.speed))
    seconds = {k: first.seconds.get(k, 0.0) + second.seconds.get(k, 0.0) for k in first.seconds | second.seconds}
    note = f"measured again in two processes: {', '.join(rounds)}"
    return second.replace(speed=speed, seconds=seconds, notes=(*second.notes, note))


def _merged(first: Speed, second: Speed) -> Speed:
    agreed = first.verdict if first.verdict == second.verdict else "inconclusive"
    return second.replace(
        verdict=agreed,
        speedup=math.sqrt(first.speedup * second.speedup),
        speedup_ci=_span(first.speedup_ci, second.speedup_ci),
        roofline_fraction=math.sqrt(first.roofline_fraction * second.roofline_fraction),
        workloads=tuple(_merged_workload(a, b) for a, b in zip(first.workloads, second.workloads, strict=True)),
    )


def _merged_workload(first: WorkloadTiming, second: WorkloadTiming) -> WorkloadTiming:
    return second.replace(
        candidate_us=first.candidate_us + second.candidate_us,
        baseline_us=first.baseline_us + second.baseline_us,
        speedup=math.sqrt(first.speedup * second.speedup),
        speedup_ci=_span(first.speedup_ci, second.speedup_ci),
        roofline_fraction=math.sqrt(first.roofline_fraction * second.roofline_fraction),
    )


def _span(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    return min(first[0], second[0]), max(first[1], second[1])


def decide(best: Attempt | None, finalists: list[Finalist], attempts: int, hint: str, *, stop: StopReason) -> Verdict:
    """The winner by second measurement, and the outcome.

    Args:
        best: The search's own best.
        finalists: Second measurements.
        attempts: How many candidates were judged.
        hint: Why there was nothing to try, where that is known.
        stop: What ended the search.
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
    if stop == "wall_seconds":
        reason = "the time ended before a first candidate was judged; preparing the task took all of it: raise --wall"
        return Verdict(None, None, "failed", reason)
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
