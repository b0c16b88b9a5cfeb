"""The head of the page: what came out, in figures and in words."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.interfaces.report.figures import count, duration, interval, one_line, percent, times
from kernelwright.interfaces.report.kinds import kind_of
from kernelwright.interfaces.report.progress_chart import speed_of
from kernelwright.interfaces.report.reading import RunRecords
from kernelwright.interfaces.wording import BASELINE_WORDS, baseline_of
from kernelwright.judge.evaluation import Passed

_STOPPED = {
    "evaluations": "its evaluations were spent",
    "wall_seconds": "its time was spent",
    "tokens": "its tokens were spent",
    "cost": "its money was spent",
    "near_roofline": "the best kernel is close to the roofline",
    "exhausted": "there was nothing more to try",
    "interrupted": "it was interrupted",
    "failed": "it could not go on",
}
_OUTCOMES = {
    "improved": ("good", "Improved"),
    "baseline_kept": ("even", "Baseline kept"),
    "failed": ("bad", "Failed"),
}


@dataclass(frozen=True)
class Figure:
    """One tile: a number with what it is."""

    name: str
    value: str
    detail: str


@dataclass(frozen=True)
class Head:
    """What a reader sees first."""

    tone: str
    outcome: str
    sentence: str
    figures: tuple[Figure, ...]
    warnings: tuple[str, ...]


def head(run: RunRecords) -> Head:
    """The head of a run's page."""
    tone, outcome = _OUTCOMES[run.result.outcome] if run.result else ("quiet", "Unfinished")
    return Head(
        tone=tone,
        outcome=outcome,
        sentence=_sentence(run),
        figures=(_speedup(run), _roofline(run), _evaluations(run), _time(run)),
        warnings=(*_state(run), *_limits(run), *run.problems),
    )


def _sentence(run: RunRecords) -> str:
    if run.result is not None:
        reason = one_line(run.result.reason, 500).rstrip(".")
        return f"{reason[:1].upper()}{reason[1:]}."
    if run.best is None:
        return "No candidate was right and timed so far."
    return "The best candidate so far. It was measured once, in the search; only a second measurement decides."


def _state(run: RunRecords) -> tuple[str, ...]:
    if run.result is None:
        return (
            "This run has no result yet: it is still working, or it was killed. The page shows what it had on disk;"
            " --resume continues a run that was killed.",
        )
    if run.result.stop_reason == "interrupted":
        return ("This run was interrupted. Everything up to then is kept, and --resume continues it.",)
    return ()


def _limits(run: RunRecords) -> tuple[str, ...]:
    if isinstance(run.best_evaluation, Passed) and run.best_evaluation.specialised:
        return ("The best candidate works only for the task's own sizes; it refuses all others.",)
    return ()


def _speedup(run: RunRecords) -> Figure:
    speed = speed_of(run.best_evaluation) if run.best_evaluation else None
    if speed is None:
        return Figure("Speedup", "–", "nothing right was timed")
    over = BASELINE_WORDS.get(baseline_of(speed), "") if speed.workloads else "the best baseline"
    again = "measured again" if run.best_is_measured_again else "measured once"
    return Figure("Speedup", times(speed.speedup), f"95 % interval {interval(speed.speedup_ci)}, over {over}, {again}")


def _roofline(run: RunRecords) -> Figure:
    speed = speed_of(run.best_evaluation) if run.best_evaluation else None
    if speed is None:
        return Figure("Of the roofline", "–", "nothing right was timed")
    bounds = list(dict.fromkeys(w.bound for w in speed.workloads))
    return Figure(
        "Of the roofline",
        percent(speed.roofline_fraction),
        f"bound by {' and '.join(bounds)}" if bounds else "of the shortest possible time",
    )


def _evaluations(run: RunRecords) -> Figure:
    right = sum(kind_of(a.evaluation).tone != "bad" for a in run.attempts)
    faster = sum(kind_of(a.evaluation).key == "faster" for a in run.attempts)
    total = run.result.evaluations if run.result else len(run.attempts)
    return Figure("Evaluations", f"{total:,}", f"{right:,} right, {faster:,} faster than the best baseline")


def _time(run: RunRecords) -> Figure:
    if run.result is None:
        return Figure("Time", duration(run.seconds), "until the last verdict")
    detail = f"ended: {_STOPPED[run.result.stop_reason]}"
    if run.result.tokens:
        detail += f"; {count(run.result.tokens, 'token')} of a model"
    return Figure("Time", duration(run.seconds), detail)
