"""What was asked of a model, what it cost and what became of it."""

from __future__ import annotations

from typing import Literal

from kernelwright.agents.model.client import FailureKind
from kernelwright.agents.model.parsing import Fault
from kernelwright.core.records import SCHEMA_VERSION, Record


class ModelCall(Record):
    """One call, as the ledger keeps it. Holds neither prompt nor key."""

    schema_version: int = SCHEMA_VERSION
    task: str
    """Id of the task."""
    model: str
    role: str
    prompt: str
    """Name of the prompt of this turn."""
    prompt_version: int
    rendered: str
    """Hash of everything that was sent."""
    question: str
    """The same for an equal question in another run, where measured times differ."""
    turn: int
    """1 for the question, 2 for the one repair of an ill-formed answer."""
    seconds: float
    input_tokens: int
    output_tokens: int
    tokens_estimated: bool
    """Whether the server reported no counts, and four bytes were taken as one token."""
    cost_usd: float | None
    """None where no price is known."""
    outcome: Literal["candidate"] | Fault | FailureKind
    """`candidate`, the fault of an ill-formed answer, or the kind of failure of the call."""
    reason: str = ""
    candidate: str | None = None
    """Id of the candidate that was made."""
    matched: Literal["", "exact", "same_question", "same_role"] = ""
    """For a replayed answer, how the recorded request fits."""


class ModelUsage(Record):
    """Sums over calls."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """None where the price is unknown."""
    seconds: float = 0.0
    failures: int = 0
    """Calls without a candidate."""

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


def total(calls: tuple[ModelCall, ...], *, priced: bool) -> ModelUsage:
    """The sums; the cost is a number only where the price is known (`priced`)."""
    return ModelUsage(
        calls=len(calls),
        input_tokens=sum(c.input_tokens for c in calls),
        output_tokens=sum(c.output_tokens for c in calls),
        cost_usd=sum(c.cost_usd or 0.0 for c in calls) if priced else None,
        seconds=sum(c.seconds for c in calls),
        failures=sum(c.outcome != "candidate" for c in calls),
    )
