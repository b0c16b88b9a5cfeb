"""The untrusted side: a forked process that answers the judge's questions, one after the other.

What it says is a claim; whatever decides a verdict is checked by the judge on bytes in shared memory.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kernelwright.core.errors import TaskError
from kernelwright.core.text import trimmed
from kernelwright.judge.candidate_side import CandidateSide
from kernelwright.judge.reference_side import ReferenceSide
from kernelwright.judge.wire import Channel, Closed, Message
from kernelwright.tasks.failures import is_memory_failure


class Side(Protocol):
    """Answers questions of one kind of runner."""

    def answer(self, question: Message, descriptors: Sequence[int]) -> Message:
        """The answer to one question; may raise anything."""
        ...


ROLES: dict[str, Callable[[dict[str, Any]], Side]] = {"reference": ReferenceSide, "candidate": CandidateSide}


def serve(role: str, channel: Channel, settings: dict[str, Any]) -> None:
    """Answer until the judge says `end` or hangs up."""
    side: Side | None = None
    while True:
        try:
            question = channel.receive()
        except Closed:
            return
        if question["do"] == "end":
            return
        descriptors = channel.take_descriptors()
        try:
            side = side or ROLES[role](settings)
            answer = side.answer(question, descriptors)
        except TaskError as error:
            answer = {"task_error": {"reason": error.reason, "message": error.message, "hint": error.hint}}
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is the answer
            answer = {"raised": told(error)}
        channel.send(answer)


def told(error: BaseException) -> dict[str, Any]:
    """An exception as plain data: type, message, innermost place, whether memory was short, and a compiler's log."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "candidate" in frame.filename] or frames
    chain = _chain(error)
    log = next((text for e in chain if (text := build_log(e))), "")
    return {
        "type": type(error).__name__,
        "message": trimmed(str(error) if not log else str(error).splitlines()[0], limit=2000),
        "place": f"{own[-1].filename.rsplit('/', 1)[-1]}:{own[-1].lineno}" if own else "",
        "memory": any(is_memory_failure(e) for e in chain),
        "unsupported": type(error).__name__ == "Unsupported",
        "build_log": trimmed(log, limit=8000),
    }


def build_log(error: BaseException) -> str:
    """The compiler's output, where `error` says that an extension did not build; else an empty string."""
    words = str(error)
    if "Error building extension" in words or type(error).__name__ in ("CppCompileError", "CalledProcessError"):
        return words
    return ""


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and len(found) < 8:
        found.append(current)
        current = current.__cause__ or current.__context__
    return found
