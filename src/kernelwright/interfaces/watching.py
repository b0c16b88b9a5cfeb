"""What an observer has learnt of a run so far, and single events as plain lines."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field

from kernelwright.agents.events import (
    AttemptJudged,
    BaselinesMeasured,
    Event,
    FinalistMeasured,
    Note,
    PhaseStarted,
    RunFinished,
    RunStarted,
)
from kernelwright.agents.proposing import Attempt
from kernelwright.interfaces.output import Output, folded
from kernelwright.interfaces.wording import (
    BASELINE_WORDS,
    change_words,
    microseconds,
    one_line,
    outcome_words,
    reason_of,
    speed_words,
)
from kernelwright.judge.evaluation import BaselineTiming, Passed
from kernelwright.platforms.candidates import Candidate

PHASES = {
    "audit": "reading the task",
    "oracle": "computing the oracle",
    "baselines": "measuring the baselines",
    "trace": "tracing the reference",
    "search": "searching",
    "finalists": "measuring the finalists again",
    "export": "exporting",
}
RECENT = 200
WIDTH = 80


@dataclass
class Watched:
    """Kept from event to event."""

    started: RunStarted | None = None
    phase: str = ""
    baselines: tuple[BaselineTiming, ...] = ()
    recent: deque[AttemptJudged] = field(default_factory=lambda: deque(maxlen=RECENT))
    candidates: dict[str, Candidate] = field(default_factory=dict)
    best: Attempt | None = None
    evaluations: int = 0
    elapsed_seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    finished: bool = False

    def take(self, event: Event) -> None:
        """Learn from an event."""
        match event:
            case RunStarted():
                self.started, self.evaluations = event, event.resumed_evaluations
            case PhaseStarted():
                self.phase = PHASES[event.phase]
            case BaselinesMeasured():
                self.baselines = event.baselines
            case AttemptJudged():
                self.recent.append(event)
                self.candidates[event.attempt.candidate.id] = event.attempt.candidate
                self.best, self.evaluations, self.elapsed_seconds = event.best, event.index, event.elapsed_seconds
            case Note():
                self.notes.append(event.text)
            case RunFinished():
                self.finished, self.phase = True, "done"
            case FinalistMeasured():
                pass

    def change(self, attempt: Attempt) -> str:
        """What an attempt tried."""
        candidate = attempt.candidate
        parents = [self.candidates[p] for p in candidate.origin.parents if p in self.candidates]
        if not parents and candidate.origin.operator == "random":
            # A random draw has no parent: it is told apart by what differs from the first of its template.
            parents = [c for c in self.candidates.values() if c.origin.template == candidate.origin.template]
        return change_words(candidate, parents[0] if parents and parents[0].id != candidate.id else None)


class PlainObserver:
    """One line an event, for pipes, logs and terminals without colours. No line depends on the terminal's width."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._watched = Watched()

    def on_event(self, event: Event) -> None:
        """Print it."""
        self._watched.take(event)
        for line in self._lines(event):
            (self._output.note if self._output.as_json else self._output.say)(line)

    def _lines(self, event: Event) -> list[str]:
        match event:
            case RunStarted():
                resumed = (
                    f", resumed after {event.resumed_evaluations} evaluations" if event.resumed_evaluations else ""
                )
                return [
                    f"task {one_line(event.task.name)} on {event.device.name}, {event.device.cores} cores{resumed}",
                    f"run  {event.folder}",
                    *(line for note in event.task.notes for line in folded(f"note: {note}")),
                ]
            case PhaseStarted():
                return [f"{PHASES[event.phase]}{f': {one_line(event.detail)}' if event.detail else ''}"]
            case BaselinesMeasured():
                return baseline_lines(event.baselines)
            case AttemptJudged():
                return [attempt_line(event, self._watched.change(event.attempt))]
            case FinalistMeasured():
                verdict = event.finalist.evaluation
                speed = verdict.speed if isinstance(verdict, Passed) else None
                return [
                    f"finalist {event.finalist.candidate[:8]}: {speed_words(speed) if speed else outcome_words(verdict)}"
                ]
            case Note():
                return folded(f"note: {event.text}")
        return []


def attempt_line(event: AttemptJudged, change: str) -> str:
    """An attempt in at most 80 characters: number, verdict, speedup, where it came from and what it tries."""
    verdict = event.attempt.evaluation
    origin = event.attempt.candidate.origin
    speed = verdict.speed if isinstance(verdict, Passed) else None
    figures = f"{speed.speedup:5.2f}x {speed.speedup_ci[0]:.2f}-{speed.speedup_ci[1]:.2f}" if speed else ""
    text = change if isinstance(verdict, Passed) else reason_of(verdict) or change
    source = one_line(origin_words(origin.proposer, origin.operator), 16)
    left = f"{event.index:4d} {one_line(outcome_words(verdict), 16):<16} {figures:<16} {source:<16} "
    return (left + one_line(text, max(8, WIDTH - len(left)))).rstrip()


def origin_words(proposer: str, operator: str) -> str:
    """`drafter`, `mutate`, `model repair`: proposer and operator without saying one thing twice."""
    return proposer if not operator or operator == proposer else f"{proposer} {operator}"


def baseline_lines(baselines: tuple[BaselineTiming, ...]) -> list[str]:
    """What PyTorch gives, one line a mode; several workloads as their geometric mean."""
    lines = []
    for mode in dict.fromkeys(b.mode for b in baselines):
        times = [b.median_us for b in baselines if b.mode == mode and b.median_us is not None]
        failures = [one_line(b.failure, 40) for b in baselines if b.mode == mode and b.median_us is None]
        words = microseconds(statistics.geometric_mean(times)) if times else ""
        failed = f"not available: {failures[0] or 'no reason given'}" if failures else ""
        lines.append(f"baseline {BASELINE_WORDS[mode]}: {'; '.join(w for w in (words, failed) if w)}")
    return lines
