"""A language model as proposer: it drafts, repairs what failed, and improves what passed."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Literal

from kernelwright.agents.model.client import Answer, CallFailure, Completion, Message, ModelClient, ModelRequest
from kernelwright.agents.model.parsing import IllFormed, parse_answer
from kernelwright.agents.model.pricing import Price, price_of
from kernelwright.agents.model.prompting import TAGS, Role, opening_messages, prompt, render, roles
from kernelwright.agents.model.recorded import RecordingClient, ReplayClient
from kernelwright.agents.model.slots import fill
from kernelwright.agents.model.usage import ModelCall, ModelUsage, total
from kernelwright.agents.proposing import Attempt, Context
from kernelwright.agents.run import Budget, ModelConfig
from kernelwright.core.errors import UsageError
from kernelwright.core.records import content_id
from kernelwright.judge.evaluation import JudgeError, Passed
from kernelwright.platforms.candidates import Candidate, Language, Origin

UNLIMITED = Budget(evaluations=None, wall_seconds=None)


SILENT_CALLS = 3
"""After so many calls in a row without an answer the model is left alone for the rest of the run."""
BYTES_PER_TOKEN = 4
"""Estimate for servers that report no token counts."""


def make_client(config: ModelConfig, environment: Mapping[str, str] | None = None) -> ModelClient:
    """The client that a configuration asks for: replayed, or live and perhaps recorded.

    Raises:
        UsageError: record and replay together, or the recording cannot be read.
        EnvironmentProblem: the SDK or the key is missing, or the recording cannot be written.
    """
    if config.replay is not None:
        if config.record is not None:
            raise UsageError("--record and --replay exclude each other", hint="replay needs no model; record does")
        return ReplayClient(Path(config.replay))
    from kernelwright.agents.model.openai_client import OpenAIClient

    client = OpenAIClient(environment)
    return client if config.record is None else RecordingClient(client, Path(config.record))


class ModelProposer:
    """Asks a model for candidates. Deterministic where its client is (a replay); a live model is not."""

    name = "model"
    operators = ("draft", "repair", "improve")

    def __init__(
        self,
        config: ModelConfig,
        *,
        budget: Budget = UNLIMITED,
        language: Language = "cpp",
        client: ModelClient | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Raises as `make_client` does, and UsageError for a cost budget without a price."""
        self._config = config
        self._budget = budget
        self._language: Language = language
        self._price: Price | None = price_of(config.name, environment)
        if budget.cost_usd is not None and self._price is None:
            raise UsageError(
                f"a cost budget needs the price of {config.name}",
                hint="set KERNELWRIGHT_PRICE_INPUT and KERNELWRIGHT_PRICE_OUTPUT (dollars per million tokens)",
            )
        self._client = make_client(config, environment) if client is None else client
        self._calls: list[ModelCall] = []
        self._taken = 0
        self._silent_calls = 0
        self._notes: list[str] = []
        self._noted: set[str] = set()
        self._lock = threading.Lock()

    def usage(self) -> ModelUsage:
        """Sums over all calls so far."""
        with self._lock:
            return total(tuple(self._calls), priced=self._price is not None)

    def take_calls(self) -> tuple[ModelCall, ...]:
        """The calls since this was last asked, for the ledger."""
        with self._lock:
            fresh = tuple(self._calls[self._taken :])
            self._taken = len(self._calls)
            return fresh

    def take_notes(self) -> tuple[str, ...]:
        """What the user should know, since this was last asked: each kind of failure once."""
        with self._lock:
            notes, self._notes = tuple(self._notes), []
            return notes

    def exhausted(self) -> Literal["", "tokens", "cost", "no_answer"]:
        """Why no further call is made: a budget is spent, or several calls in a row went unanswered. Empty: it goes on."""
        if self._silent_calls >= SILENT_CALLS:
            return "no_answer"
        spent = self.usage()
        if self._budget.tokens is not None and spent.tokens >= self._budget.tokens:
            return "tokens"
        if self._budget.cost_usd is not None and (spent.cost_usd or 0.0) >= self._budget.cost_usd:
            return "cost"
        return ""

    def propose(self, context: Context, *, operator: str, count: int, rng: Random) -> Sequence[Candidate]:
        """Up to `count` candidates; none for an unknown operator, a parent that does not fit, or a spent budget.

        Raises:
            EnvironmentProblem: the endpoint does not accept us.
            UsageError: the endpoint does not know the model.
        """
        del rng
        role = roles().get(operator)
        if role is None:
            return ()
        parent = _parent(role, context)
        if role.parent != "none" and parent is None:
            return ()
        made: list[Candidate] = []
        for _ in range(count):
            if self.exhausted():
                break
            candidate = self._ask(operator, role, context, parent)
            if candidate is not None:
                made.append(candidate)
        return tuple(made)

    def _ask(self, operator: str, role: Role, context: Context, parent: Attempt | None) -> Candidate | None:
        language = parent.candidate.language if parent is not None else self._language
        values = {slot: fill(slot, context, parent, language) for slot in role.slots}
        messages = opening_messages(role, values, language)
        parents = () if parent is None else (parent.candidate.id,)
        for turn, asked in ((1, role.prompt), (2, "answer_again")):
            request = ModelRequest(
                model=self._config.name,
                messages=messages,
                temperature=self._config.temperature,
                max_output_tokens=role.max_output_tokens,
                question=_question(context, role, parents, turn, language),
                role=operator,
            )
            started = time.monotonic()
            answer = self._client.complete(request, deadline=self._config.deadline_seconds)
            result = self._read(answer, language, operator, parents)
            self._remember(
                request,
                answer,
                result,
                task=context.task.id,
                asked=asked,
                turn=turn,
                seconds=time.monotonic() - started,
            )
            if not isinstance(result, IllFormed):
                return None if isinstance(result, CallFailure) else result
            if self.exhausted():
                return None
            assert isinstance(answer, Completion)
            again = render("answer_again", {"reason": result.reason, "tag": TAGS[language]})
            messages = (
                *messages,
                Message(role="assistant", content=answer.text or "(empty)"),
                Message(role="user", content=again),
            )
        return None

    def _read(
        self, answer: Answer, language: Language, operator: str, parents: tuple[str, ...]
    ) -> Candidate | IllFormed | CallFailure:
        if isinstance(answer, CallFailure):
            return answer
        parsed = parse_answer(answer.text, finish=answer.finish, language=language)
        if isinstance(parsed, IllFormed):
            return parsed
        origin = Origin(proposer=self.name, operator=operator, parents=parents, plan=parsed.origin.plan)
        return parsed.replace(origin=origin)

    def _remember(
        self,
        request: ModelRequest,
        answer: Answer,
        result: Candidate | IllFormed | CallFailure,
        *,
        task: str,
        asked: str,
        turn: int,
        seconds: float,
    ) -> None:
        done = answer if isinstance(answer, Completion) else None
        given, made, estimated = _tokens(request, done)
        cost = None if self._price is None else self._price.cost_usd(given, made)
        outcome, reason, candidate = "candidate", "", None
        match result:
            case IllFormed():
                outcome, reason = result.fault, result.reason
            case CallFailure():
                outcome, reason = result.failure, result.reason
            case _:
                candidate = result.id
        call = ModelCall.model_validate(
            {
                "task": task,
                "model": request.model,
                "role": request.role,
                "prompt": asked,
                "prompt_version": prompt(asked).version,
                "rendered": request.rendered,
                "question": request.question,
                "turn": turn,
                "seconds": seconds,
                "input_tokens": given,
                "output_tokens": made,
                "tokens_estimated": estimated,
                "cost_usd": cost,
                "outcome": outcome,
                "reason": reason,
                "candidate": candidate,
                "matched": done.matched if done else "",
            }
        )
        with self._lock:
            self._calls.append(call)
            self._silent_calls = self._silent_calls + 1 if isinstance(result, CallFailure) else 0
            if isinstance(result, CallFailure):
                self._note(result.failure, f"no answer from the model ({result.failure}): {result.reason}")
            if self._silent_calls >= SILENT_CALLS:
                self._note("silent", f"the model is left alone after {SILENT_CALLS} calls in a row without an answer")

    def _note(self, key: str, text: str) -> None:
        if key not in self._noted:
            self._noted.add(key)
            self._notes.append(text)


def _tokens(request: ModelRequest, done: Completion | None) -> tuple[int, int, bool]:
    """Input and output tokens of a call, and whether they are estimated; a call without an answer counts none."""
    if done is None:
        return 0, 0, False
    if done.input_tokens is not None and done.output_tokens is not None:
        return done.input_tokens, done.output_tokens, False
    given = sum(len(m.content.encode("utf-8", "replace")) for m in request.messages)
    return -(-given // BYTES_PER_TOKEN), -(-len(done.text.encode("utf-8", "replace")) // BYTES_PER_TOKEN), True


def _parent(role: Role, context: Context) -> Attempt | None:
    """The attempt that the role works on: the first parent that fits; for `improve`, else the best."""
    for attempt in context.parents:
        if role.parent == ("passed" if isinstance(attempt.evaluation, Passed) else "failed"):
            # Our own failure says nothing that could be repaired.
            return None if isinstance(attempt.evaluation, JudgeError) else attempt
    return context.best if role.parent == "passed" else None


def _question(context: Context, role: Role, parents: tuple[str, ...], turn: int, language: Language) -> str:
    return content_id(
        {
            "prompt": role.prompt,
            "versions": [prompt("system").version, prompt(role.prompt).version],
            "task": context.task.id,
            "parents": list(parents),
            "turn": turn,
            "language": language,
        }
    )
