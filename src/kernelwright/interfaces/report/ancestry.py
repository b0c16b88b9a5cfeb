"""How the best candidate came to be: its ancestors in this run, oldest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.archive.records import LedgerAttempt
from kernelwright.interfaces.report.figures import interval, one_line, times
from kernelwright.interfaces.report.kinds import Kind, kind_of
from kernelwright.interfaces.report.progress_chart import speed_of
from kernelwright.platforms.candidates import Candidate, ParameterValue

_MISSING = "unset"


@dataclass(frozen=True)
class Ancestor:
    """One candidate on the way to the best."""

    index: int
    made: str
    """Proposer and operator."""
    parents: tuple[str, ...]
    """`#3`, or the head of an id where the parent is of another run."""
    plan: str
    changes: tuple[tuple[str, str, str], ...]
    """Parameter, its value in the first parent, its value here."""
    kind: Kind
    speedup: str
    is_best: bool


def lineage(best: LedgerAttempt, by_candidate: Mapping[str, LedgerAttempt]) -> list[Ancestor]:
    """The best and everything that it was made from, in the order of evaluation."""
    found: dict[str, LedgerAttempt] = {}
    wanted = [best.evaluation.candidate]
    while wanted:
        identity = wanted.pop()
        attempt = by_candidate.get(identity)
        if attempt is not None and identity not in found:
            found[identity] = attempt
            wanted += attempt.candidate.origin.parents
    ordered = sorted(found.values(), key=lambda a: a.index)
    return [_ancestor(a, by_candidate, is_best=a is best) for a in ordered]


def _ancestor(attempt: LedgerAttempt, by_candidate: Mapping[str, LedgerAttempt], *, is_best: bool) -> Ancestor:
    origin = attempt.candidate.origin
    parents = [by_candidate.get(p) for p in origin.parents]
    speed = speed_of(attempt.evaluation)
    return Ancestor(
        index=attempt.index,
        made=one_line(" · ".join(dict.fromkeys(filter(None, (origin.proposer, origin.operator)))), 80),
        parents=tuple(
            f"#{p.index}" if p else f"{i[:8]} (not of this run)" for i, p in zip(origin.parents, parents, strict=True)
        ),
        plan=one_line(origin.plan),
        changes=changes(attempt.candidate, parents[0].candidate) if parents and parents[0] else (),
        kind=kind_of(attempt.evaluation),
        speedup=f"{times(speed.speedup)} ({interval(speed.speedup_ci)})" if speed else "",
        is_best=is_best,
    )


def changes(candidate: Candidate, parent: Candidate) -> tuple[tuple[str, str, str], ...]:
    """What differs from a parent: template first, then parameters."""
    before: dict[str, ParameterValue] = {"template": parent.origin.template, **parent.parameters}
    after: dict[str, ParameterValue] = {"template": candidate.origin.template, **candidate.parameters}
    return tuple(
        (one_line(name, 60), _shown(before.get(name)), _shown(after.get(name)))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )


def _shown(value: ParameterValue | None) -> str:
    return _MISSING if value is None or value == "" else one_line(value, 80)
