"""The client against a scripted server on a real socket: answers, failures as data, one deadline, no key anywhere."""

from __future__ import annotations

import logging
import time

import pytest

from kernelwright.agents.model.client import CallFailure, Completion, Message, ModelRequest
from kernelwright.agents.model.openai_client import OpenAIClient
from kernelwright.core.errors import EnvironmentProblem, UsageError

pytest.importorskip("openai")

REQUEST = ModelRequest(
    model="scripted",
    messages=(Message(role="system", content="be brief"), Message(role="user", content="write")),
    temperature=0.7,
    max_output_tokens=64,
    question="q",
    role="draft",
)


def test_an_answer_comes_with_its_tokens(serve, reply, key):
    server = serve(reply(text="hello"))
    answer = OpenAIClient(server.environment).complete(REQUEST, deadline=10)
    assert answer == Completion(text="hello", input_tokens=100, output_tokens=20, finish="stop")
    (asked,) = server.requests
    assert asked["model"] == "scripted"
    assert asked["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "write"},
    ]
    assert asked["max_tokens"] == 64
    assert server.authorizations == [f"Bearer {key}"]


def test_a_server_without_token_counts_and_a_cut_answer(serve, reply):
    server = serve(reply(text="cut", finish="length", usage=False))
    answer = OpenAIClient(server.environment).complete(REQUEST, deadline=10)
    assert answer == Completion(text="cut", finish="length")


@pytest.mark.parametrize("slow", [{"wait_seconds": 5.0}, {"drip_seconds": 0.1}], ids=["silent", "dripping"])
def test_a_slow_server_ends_at_the_deadline(serve, reply, slow):
    client = OpenAIClient(serve(reply(**slow)).environment)
    started = time.monotonic()
    answer = client.complete(REQUEST, deadline=0.8)
    assert isinstance(answer, CallFailure)
    assert answer.failure == "timed_out"
    assert time.monotonic() - started < 3.0


def test_a_rate_limit_is_waited_for_within_the_deadline(serve, reply):
    server = serve(reply(status=429, headers={"Retry-After": "0.2"}), reply(status=503), reply(text="late"))
    answer = OpenAIClient(server.environment).complete(REQUEST, deadline=20)
    assert isinstance(answer, Completion)
    assert answer.text == "late"
    assert len(server.requests) == 3


def test_a_rate_limit_that_lasts_says_so(serve, reply):
    server = serve(reply(status=429, headers={"Retry-After": "60"}))
    answer = OpenAIClient(server.environment).complete(REQUEST, deadline=0.7)
    assert isinstance(answer, CallFailure)
    assert answer.failure == "timed_out"
    assert "429" in answer.reason


def test_endless_rate_limits_and_server_errors_are_typed(serve, reply):
    for status, kind in ((429, "rate_limited"), (500, "server_error")):
        server = serve(reply(status=status, headers={"Retry-After": "0"}))
        answer = OpenAIClient(server.environment).complete(REQUEST, deadline=20)
        assert isinstance(answer, CallFailure)
        assert answer.failure == kind
        assert str(status) in answer.reason


@pytest.mark.parametrize(
    "body",
    [b"{not json", b"[]", b'"text"', b"{}", b'{"choices": []}', b'{"choices": [{"index": 0}]}', b"", b"\xff\xfe"],
)
def test_a_malformed_body_is_a_bad_response(serve, reply, body):
    answer = OpenAIClient(serve(reply(body=body)).environment).complete(REQUEST, deadline=10)
    assert isinstance(answer, CallFailure)
    assert answer.failure == "bad_response"


def test_a_refusal_and_a_bad_request_are_not_retried(serve, reply):
    for scripted in (reply(text=None, refusal="no"), reply(text="", finish="content_filter"), reply(status=400)):
        server = serve(scripted)
        answer = OpenAIClient(server.environment).complete(REQUEST, deadline=10)
        assert isinstance(answer, CallFailure)
        assert answer.failure == "refused"
        assert len(server.requests) == 1


def test_options_that_an_endpoint_does_not_take_are_left_out(serve, reply):
    def refused(option: str):
        body = f'{{"error": {{"message": "Unsupported parameter: {option}", "param": "{option}"}}}}'
        return reply(status=400, body=body.encode())

    server = serve(refused("max_tokens"), refused("temperature"), reply(text="done"))
    client = OpenAIClient(server.environment)
    for _ in range(2):
        answer = client.complete(REQUEST, deadline=10)
        assert isinstance(answer, Completion)
    options = [sorted(r.keys() - {"model", "messages"}) for r in server.requests]
    assert options == [
        ["max_tokens", "temperature"],
        ["max_completion_tokens", "temperature"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
    ]


def test_a_page_that_is_no_json_is_a_bad_response(serve, reply):
    page = reply(body=b"<html>hello</html>", headers={"Content-Type": "text/html"})
    answer = OpenAIClient(serve(page).environment).complete(REQUEST, deadline=10)
    assert isinstance(answer, CallFailure)
    assert answer.failure == "bad_response"


def test_nobody_listens(serve, reply):
    server = serve(reply())
    client = OpenAIClient(server.environment)
    server.close()
    answer = client.complete(REQUEST, deadline=1.0)
    assert isinstance(answer, CallFailure)
    assert answer.failure in {"unreachable", "timed_out"}


def test_a_key_that_is_not_accepted_and_a_model_that_is_not_there(serve, reply):
    for status in (401, 403):
        with pytest.raises(EnvironmentProblem, match="does not accept OPENAI_API_KEY") as caught:
            OpenAIClient(serve(reply(status=status)).environment).complete(REQUEST, deadline=10)
        assert "OPENAI_BASE_URL" in caught.value.hint
    with pytest.raises(UsageError, match="does not know the model 'scripted'"):
        OpenAIClient(serve(reply(status=404)).environment).complete(REQUEST, deadline=10)


def test_a_missing_key_says_how_to_get_on():
    with pytest.raises(EnvironmentProblem, match="OPENAI_API_KEY is not set") as caught:
        OpenAIClient({})
    assert "--replay" in caught.value.hint


def test_the_key_is_in_no_text(serve, reply, key, caplog):
    caplog.set_level(logging.DEBUG)
    echoing = reply(status=400, body=f'{{"error": {{"message": "bad key {key}"}}}}'.encode())
    client = OpenAIClient(serve(echoing).environment)
    failure = client.complete(REQUEST, deadline=10)
    answer = OpenAIClient(serve(reply(text=f"your key is {key}")).environment).complete(REQUEST, deadline=10)
    assert isinstance(failure, CallFailure)
    assert isinstance(answer, Completion)
    for text in (failure.reason, answer.text, repr(client)):
        assert key not in text
    assert "[key]" in failure.reason
    assert key not in caplog.text
