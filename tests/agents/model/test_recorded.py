"""Recording and replaying: what is kept, what is given again, and what is said when something is missing."""

from __future__ import annotations

import json

import pytest

from kernelwright.agents.model.client import Answer, CallFailure, Completion, Message, ModelRequest
from kernelwright.agents.model.recorded import RecordingClient, ReplayClient
from kernelwright.core.errors import EnvironmentProblem, UsageError


def request(content: str, question: str = "q", role: str = "draft") -> ModelRequest:
    return ModelRequest(
        model="m",
        messages=(Message(role="user", content=content),),
        temperature=0.5,
        max_output_tokens=10,
        question=question,
        role=role,
    )


class Counting:
    """Answers with a running number, and fails on demand."""

    def __init__(self) -> None:
        self.count = 0

    def complete(self, request: ModelRequest, *, deadline: float) -> Answer:
        self.count += 1
        if "fail" in request.messages[0].content:
            return CallFailure(failure="rate_limited", reason="slow down")
        return Completion(text=f"answer {self.count}", input_tokens=3, output_tokens=4)


def test_the_same_requests_get_the_same_answers(tmp_path):
    path = tmp_path / "folder" / "calls.jsonl"
    recording = RecordingClient(Counting(), path)
    asked = [request("a"), request("b", "r"), request("a"), request("fail", "s")]
    live = [recording.complete(r, deadline=1) for r in asked]
    replay = ReplayClient(path)
    again = [replay.complete(r, deadline=1) for r in asked]
    assert [a.replace(matched="") if isinstance(a, Completion) else a for a in again] == live
    assert [a.matched for a in again if isinstance(a, Completion)] == ["exact"] * 3


def test_an_answer_is_found_although_measured_times_differ(tmp_path):
    path = tmp_path / "calls.jsonl"
    recording = RecordingClient(Counting(), path)
    recording.complete(request("took 10 us", "question 1", "improve"), deadline=1)
    recording.complete(request("took 20 us", "question 2", "improve"), deadline=1)
    replay = ReplayClient(path)
    second = replay.complete(request("took 21 us", "question 2", "improve"), deadline=1)
    other = replay.complete(request("took 11 us", "question 3", "improve"), deadline=1)
    assert isinstance(second, Completion)
    assert isinstance(other, Completion)
    assert (second.text, second.matched) == ("answer 2", "same_question")
    assert (other.text, other.matched) == ("answer 1", "same_role")


def test_what_was_not_recorded_is_named(tmp_path):
    path = tmp_path / "calls.jsonl"
    RecordingClient(Counting(), path).complete(request("a"), deadline=1)
    replay = ReplayClient(path)
    replay.complete(request("a"), deadline=1)
    unknown = request("b", question="0123456789abcdef", role="repair")
    answer = replay.complete(unknown, deadline=1)
    assert isinstance(answer, CallFailure)
    assert answer.failure == "not_recorded"
    for part in (str(path), "repair", "0123456789ab", unknown.rendered[:12]):
        assert part in answer.reason


def test_a_line_holds_no_prompt(tmp_path):
    path = tmp_path / "calls.jsonl"
    RecordingClient(Counting(), path).complete(request("a secret plan"), deadline=1)
    line = json.loads(path.read_text())
    assert set(line) == {"schema_version", "model", "role", "rendered", "question", "answer"}
    assert "secret" not in path.read_text()


def test_a_recording_is_continued(tmp_path):
    path = tmp_path / "calls.jsonl"
    RecordingClient(Counting(), path).complete(request("a"), deadline=1)
    RecordingClient(Counting(), path).complete(request("b"), deadline=1)
    assert len(path.read_text().splitlines()) == 2


def test_a_torn_last_line_costs_one_answer_and_a_bad_file_is_refused(tmp_path):
    path = tmp_path / "calls.jsonl"
    RecordingClient(Counting(), path).complete(request("a"), deadline=1)
    whole = path.read_text()
    path.write_text(whole + whole[: len(whole) // 2])
    assert isinstance(ReplayClient(path).complete(request("a"), deadline=1), Completion)
    path.write_text('{"some": "thing"}\n' + whole)
    with pytest.raises(UsageError, match="line 1: not a recorded answer"):
        ReplayClient(path)
    with pytest.raises(UsageError, match="cannot read the recording"):
        ReplayClient(tmp_path / "missing.jsonl")
    with pytest.raises(EnvironmentProblem, match="cannot record"):
        RecordingClient(Counting(), tmp_path)
