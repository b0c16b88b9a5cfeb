"""What can come of an attempt, each with its words, its colour and its shape: colour alone says nothing to many."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.judge.evaluation import Evaluation, Passed


@dataclass(frozen=True)
class Kind:
    """One of the outcomes that the charts tell apart."""

    key: str
    words: str
    shape: str
    """A shape of `plotting.marker`."""
    tone: str
    """A colour of the style sheet: `good`, `even`, `slow`, `bad`, `quiet`. Kinds share colours but no shape."""
    timed: bool = False


KINDS = {
    kind.key: kind
    for kind in (
        Kind("faster", "faster", "circle", "good", timed=True),
        Kind("inconclusive", "no clear difference", "diamond", "even", timed=True),
        Kind("slower", "slower", "triangle", "slow", timed=True),
        Kind("untimed", "right, not timed", "ring", "quiet"),
        Kind("incorrect", "wrong result", "cross", "bad"),
        Kind("rejected", "rejected by a guard", "barred", "bad"),
        Kind("build_failed", "does not build", "square", "bad"),
        Kind("crashed", "crashed", "plus", "bad"),
        Kind("timed_out", "over a limit", "hourglass", "bad"),
        Kind("invalid", "not a candidate", "bar", "bad"),
        Kind("judge_error", "judge failed", "asterisk", "bad"),
    )
}


def kind_of(evaluation: Evaluation) -> Kind:
    """The kind of a verdict."""
    if isinstance(evaluation, Passed):
        return KINDS[evaluation.speed.verdict if evaluation.speed else "untimed"]
    return KINDS[evaluation.outcome]
