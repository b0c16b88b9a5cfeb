"""What a language model is asked and what comes back. An expected failure is an answer too, never an exception."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

from pydantic import Field, TypeAdapter

from kernelwright.core.records import Record, content_id

Finish = Literal["stop", "length", "other"]
"""Why the text ended: the model was done, the limit of output tokens was reached, or anything else."""

FailureKind = Literal[
    "timed_out", "rate_limited", "refused", "unreachable", "server_error", "bad_response", "not_recorded"
]


class Message(Record):
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


class ModelRequest(Record):
    """One question to a model."""

    model: str
    messages: tuple[Message, ...]
    temperature: float
    max_output_tokens: int
    question: str
    """Hash of what is asked apart from measurements (prompt, version, task, parents, turn): the same in a repeated run,
    where times differ."""
    role: str
    """Name of the role that asks, such as `draft`."""

    @property
    def rendered(self) -> str:
        """Hash of everything that is sent."""
        return content_id(self.model_dump(mode="json", exclude={"question": True, "role": True}))


class Completion(Record):
    """The model's text. Token counts are the server's; None where it reports none."""

    kind: Literal["completion"] = "completion"
    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    finish: Finish = "stop"
    matched: Literal["", "exact", "same_question", "same_role"] = ""
    """For a replayed answer, how the recorded request fits this one; empty for a live answer."""


class CallFailure(Record):
    """Why there is no text."""

    kind: Literal["failure"] = "failure"
    failure: FailureKind
    reason: str
    """One sentence, free of keys."""


Answer = Annotated[Completion | CallFailure, Field(discriminator="kind")]
ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)


class ModelClient(Protocol):
    """Asks a model."""

    def complete(self, request: ModelRequest, *, deadline: float) -> Answer:
        """The answer within `deadline` seconds, retries included.

        Raises:
            EnvironmentProblem: the endpoint does not accept us (key, package, address); no further call can succeed.
        """
        ...
