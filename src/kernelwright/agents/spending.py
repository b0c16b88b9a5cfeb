"""What a run has spent, and whether it may go on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from kernelwright.agents.run import Budget, StopReason

FINALISTS_SHARE = 0.2
"""At most this part of the wall time is kept back for measuring the finalists again."""
FINALIST_EVALUATIONS = 2.5
"""A finalist's longer timing takes about as long as so many evaluations."""


class Clock:
    """Working time of a run, over all its starts."""

    def __init__(self) -> None:
        self._before = 0.0
        self._started = time.monotonic()

    def elapsed(self) -> float:
        """Seconds."""
        return self._before + time.monotonic() - self._started

    def resume_at(self, seconds: float) -> None:
        """Continue from what an earlier start had used, if that is more."""
        if seconds > self.elapsed():
            self._before = seconds
            self._started = time.monotonic()


@dataclass
class Spending:
    """Counts against a budget."""

    budget: Budget
    finalists: int
    clock: Clock = field(default_factory=Clock)
    evaluations: int = 0
    evaluation_seconds: float = 0.0
    tokens: int = 0
    cost_usd: float = 0.0

    def exhausted(self) -> StopReason | None:
        """The limit that is reached first; time for the finalists is kept back."""
        budget = self.budget
        if budget.evaluations is not None and self.evaluations >= budget.evaluations:
            return "evaluations"
        if budget.tokens is not None and self.tokens >= budget.tokens:
            return "tokens"
        if budget.cost_usd is not None and self.cost_usd >= budget.cost_usd:
            return "cost"
        if budget.wall_seconds is not None and self.clock.elapsed() >= budget.wall_seconds - self._kept_back():
            return "wall_seconds"
        return None

    def progress(self, *, serial: bool) -> float:
        """Part of the budget that is spent, 0 to 1. A serial run looks at no clock where it counts evaluations."""
        parts = [0.0]
        if self.budget.evaluations:
            parts.append(self.evaluations / self.budget.evaluations)
        if self.budget.wall_seconds and not (serial and self.budget.evaluations):
            parts.append(self.clock.elapsed() / self.budget.wall_seconds)
        return min(max(parts), 1.0)

    def _kept_back(self) -> float:
        if not self.evaluations or self.budget.wall_seconds is None:
            return 0.0
        wanted = self.finalists * FINALIST_EVALUATIONS * self.evaluation_seconds / self.evaluations
        return min(wanted, FINALISTS_SHARE * self.budget.wall_seconds)
