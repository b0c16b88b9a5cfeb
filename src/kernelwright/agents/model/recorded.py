"""Answers kept in a file, one JSON line each, and given again without a model.

A line holds hashes of the request, the role that asked, and the answer: no prompt, no address, no key.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict, deque
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from kernelwright.agents.model.client import Answer, CallFailure, Completion, ModelClient, ModelRequest
from kernelwright.core.errors import EnvironmentProblem, UsageError
from kernelwright.core.records import SCHEMA_VERSION, Record


class RecordedCall(Record):
    """One line of a recording."""

    schema_version: int = SCHEMA_VERSION
    model: str
    role: str
    rendered: str
    """`ModelRequest.rendered`."""
    question: str
    """`ModelRequest.question`."""
    answer: Answer


class RecordingClient:
    """Passes requests on, and appends each answer to a file before it returns it."""

    def __init__(self, inner: ModelClient, path: Path) -> None:
        self._inner = inner
        self._path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("a", encoding="utf-8").close()
        except OSError as error:
            raise EnvironmentProblem(
                f"cannot record to {path}: {error.strerror or error}", hint="choose another file"
            ) from error

    def complete(self, request: ModelRequest, *, deadline: float) -> Answer:
        """As the inner client answers."""
        answer = self._inner.complete(request, deadline=deadline)
        call = RecordedCall(
            model=request.model,
            role=request.role,
            rendered=request.rendered,
            question=request.question,
            answer=answer,
        )
        line = json.dumps(call.model_dump(mode="json"), ensure_ascii=True) + "\n"
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(line)
        return answer


class ReplayClient:
    """Answers from a recording only.

    Each recorded answer is given once. A request takes the oldest unused one that was recorded for exactly the same
    request, else for the same question (same prompt, task and parents, with other measured times), else, because the
    choice of a parent follows measured times as well, for the same role. `Completion.matched` says which.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._calls = _read(path)
        self._used: set[int] = set()
        self._places: dict[tuple[str, str], deque[int]] = defaultdict(deque)
        for index, call in enumerate(self._calls):
            for key in (("exact", call.rendered), ("same_question", call.question), ("same_role", call.role)):
                self._places[key].append(index)

    def complete(self, request: ModelRequest, *, deadline: float) -> Answer:
        """The recorded answer, or a failure that names the request."""
        del deadline
        with self._lock:
            levels: tuple[tuple[Literal["exact", "same_question", "same_role"], str], ...] = (
                ("exact", request.rendered),
                ("same_question", request.question),
                ("same_role", request.role),
            )
            for level, key in levels:
                if (index := self._take((level, key))) is not None:
                    answer = self._calls[index].answer
                    return answer.replace(matched=level) if isinstance(answer, Completion) else answer
        return CallFailure(
            failure="not_recorded",
            reason=f"{self._path} has no unused answer to this request: role {request.role}, "
            f"question {request.question[:12]}, rendered {request.rendered[:12]}",
        )

    def _take(self, key: tuple[str, str]) -> int | None:
        places = self._places[key]
        while places:
            index = places.popleft()
            if index not in self._used:
                self._used.add(index)
                return index
        return None


def _read(path: Path) -> list[RecordedCall]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the recording {path}: {error}", hint="make one with --record FILE") from error
    calls: list[RecordedCall] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            calls.append(RecordedCall.from_json(line))
        except ValidationError as error:
            # A process killed while it wrote leaves a torn last line, which costs that one answer only.
            if number == len(lines):
                break
            raise UsageError(
                f"{path}, line {number}: not a recorded answer: {error.errors()[0]['msg']}",
                hint="a recording is a file that --record wrote",
            ) from error
    return calls
