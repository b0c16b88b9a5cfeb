"""The proposer: roles, one repair turn, budgets, usage, and a run that is replayed with the server down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from random import Random

import pytest

from kernelwright.agents.model import ModelProposer
from kernelwright.agents.model.openai_client import OpenAIClient
from kernelwright.agents.run import Budget, ModelConfig
from kernelwright.core.errors import EnvironmentProblem, UsageError
from kernelwright.judge.evaluation import JudgeError, Stage

GOOD = """PLAN: one pass over each row.

```cpp
#include "kernelwright.h"
extern "C" int32_t kernelwright_run(const kw_tensor*, int32_t, kw_tensor*, int32_t, void*, int32_t) { return KW_OK; }
```
"""
BETTER = GOOD.replace("one pass over each row", "two rows at a time").replace("return KW_OK", "return 0")
PRICED = {"KERNELWRIGHT_PRICE_INPUT": "1", "KERNELWRIGHT_PRICE_OUTPUT": "10"}


def proposer(server, **options) -> ModelProposer:
    config = options.pop("config", ModelConfig(name="scripted", deadline_seconds=10))
    return ModelProposer(config, environment={**server.environment, **options.pop("extra", {})}, **options)


def ask(model: ModelProposer, context, operator: str = "draft", count: int = 1):
    return model.propose(context, operator=operator, count=count, rng=Random(1))


def test_a_draft_is_a_candidate_with_its_origin_and_a_record(serve, reply, context):
    model = proposer(serve(reply(text=GOOD)), extra=PRICED)
    (candidate,) = ask(model, context)
    assert (candidate.origin.proposer, candidate.origin.operator, candidate.origin.parents) == ("model", "draft", ())
    assert candidate.origin.plan == "one pass over each row."
    (call,) = model.take_calls()
    assert (call.outcome, call.candidate, call.turn) == ("candidate", candidate.id, 1)
    assert (call.prompt, call.prompt_version, call.role, call.model) == ("draft", 1, "draft", "scripted")
    assert (call.input_tokens, call.output_tokens, call.tokens_estimated) == (100, 20, False)
    assert call.cost_usd == pytest.approx(300e-6)
    assert call.seconds > 0
    assert model.take_calls() == ()
    usage = model.usage()
    assert (usage.calls, usage.tokens, usage.failures) == (1, 120, 0)
    assert usage.cost_usd == pytest.approx(300e-6)


def test_repair_works_on_what_failed_and_improve_on_what_passed(serve, reply, context, failed, passed):
    server = serve(reply(text=GOOD))
    model = proposer(server)
    (repaired,) = ask(model, context.replace(parents=(failed,)), "repair")
    assert repaired.origin.parents == (failed.candidate.id,)
    assert "outcome: incorrect" in server.requests[0]["messages"][1]["content"]
    (improved,) = ask(model, context.replace(parents=(failed, passed)), "improve")
    assert improved.origin.parents == (passed.candidate.id,)
    (from_best,) = ask(model, context.replace(best=passed), "improve")
    assert from_best.origin.parents == (passed.candidate.id,)
    assert ask(model, context.replace(parents=(passed,)), "repair") == ()
    assert ask(model, context, "improve") == ()
    assert ask(model, context, "mutate") == ()
    ours = failed.replace(evaluation=JudgeError(candidate="c", task="t", device="d", stage=Stage.VERIFY, reason="ours"))
    assert ask(model, context.replace(parents=(ours,)), "repair") == ()
    assert len(server.requests) == 3


def test_nothing_hidden_and_no_key_reaches_the_server(serve, reply, context, failed, passed, key):
    server = serve(reply(text="no code"))
    model = proposer(server)
    seen = context.replace(history=(failed, passed), best=passed, parents=(failed,))
    for operator in ("draft", "repair", "improve"):
        ask(model, seen, operator)
    assert len(server.requests) == 6
    sent = json.dumps(server.requests)
    for secret in ("hidden-1", "1531", "987654321", "0.12345", "/somewhere/private", key):
        assert secret not in sent


def test_an_ill_formed_answer_has_one_more_turn(serve, reply, context):
    server = serve(reply(text="I would use SIMD."), reply(text=GOOD))
    model = proposer(server)
    (candidate,) = ask(model, context)
    assert candidate.origin.plan == "one pass over each row."
    first, second = model.take_calls()
    assert (first.outcome, first.candidate, first.prompt) == ("no_code", None, "draft")
    assert (second.outcome, second.turn, second.prompt) == ("candidate", 2, "answer_again")
    assert first.question != second.question
    again = server.requests[1]["messages"]
    assert [m["role"] for m in again] == ["system", "user", "assistant", "user"]
    assert again[2]["content"] == "I would use SIMD."
    assert "no fenced code block" in again[3]["content"]


def test_there_is_no_third_turn(serve, reply, context):
    server = serve(reply(text="```cpp\nint x;\n```"), reply(text="", finish="length"))
    model = proposer(server)
    assert ask(model, context) == ()
    assert [c.outcome for c in model.take_calls()] == ["missing_entry", "empty"]
    assert len(server.requests) == 2


def test_budgets_end_it(serve, reply, context):
    server = serve(reply(text=GOOD))
    model = proposer(server, budget=Budget(tokens=300))
    assert len(ask(model, context, count=9)) == 3
    assert model.exhausted() == "tokens"
    assert ask(model, context) == ()
    priced = proposer(server, budget=Budget(cost_usd=500e-6), extra=PRICED)
    assert len(ask(priced, context, count=9)) == 2
    assert priced.exhausted() == "cost"
    with pytest.raises(UsageError, match="needs the price of scripted"):
        proposer(server, budget=Budget(cost_usd=1.0))


def test_without_a_price_the_cost_is_unknown_and_tokens_may_be_estimated(serve, reply, context):
    model = proposer(serve(reply(text=GOOD, usage=False)))
    ask(model, context)
    (call,) = model.take_calls()
    assert call.tokens_estimated
    assert call.output_tokens == -(-len(GOOD.encode()) // 4)
    assert call.input_tokens > 1000
    assert (call.cost_usd, model.usage().cost_usd) == (None, None)


def test_a_model_that_never_answers_is_left_alone(serve, reply, context):
    server = serve(reply(status=400))
    model = proposer(server)
    assert ask(model, context, count=9) == ()
    assert model.exhausted() == "no_answer"
    assert [c.outcome for c in model.take_calls()] == ["refused"] * 3
    refused, left_alone = model.take_notes()
    assert "refused" in refused
    assert "HTTP 400" in refused
    assert "left alone after 3 calls" in left_alone
    assert model.take_notes() == ()
    assert len(server.requests) == 3


def test_a_key_that_is_refused_ends_the_run(serve, reply, context):
    with pytest.raises(EnvironmentProblem, match="OPENAI_API_KEY"):
        ask(proposer(serve(reply(status=401))), context)
    with pytest.raises(EnvironmentProblem, match="OPENAI_API_KEY is not set"):
        ModelProposer(ModelConfig(name="m"), environment={})
    with pytest.raises(UsageError, match="exclude each other"):
        ModelProposer(ModelConfig(name="m", record="a", replay="b"), environment={})


def test_a_recorded_run_is_the_same_with_the_server_down(serve, reply, context, failed, passed, tmp_path, key):
    path = tmp_path / "calls.jsonl"
    server = serve(reply(text=GOOD), reply(text="hm"), reply(text=BETTER), reply(status=400), reply(text=BETTER))
    script = [
        ("draft", context, 1),
        ("repair", context.replace(parents=(failed,)), 1),
        ("draft", context, 1),
        ("improve", context.replace(parents=(passed,)), 1),
    ]
    live = proposer(server, config=ModelConfig(name="scripted", record=str(path)))
    first = [ask(live, shown, operator, count) for operator, shown, count in script]
    server.close()
    assert [len(made) for made in first] == [1, 1, 0, 1]
    assert key not in path.read_text()

    replayed = ModelProposer(ModelConfig(name="scripted", replay=str(path)), environment={})
    second = [ask(replayed, shown, operator, count) for operator, shown, count in script]
    assert second == first
    ignored = {"seconds", "matched"}
    assert [c.model_dump(exclude=ignored) for c in replayed.take_calls()] == [
        c.model_dump(exclude=ignored) for c in live.take_calls()
    ]


def test_a_replay_finds_its_answers_although_times_differ(serve, reply, context, passed, tmp_path):
    path = tmp_path / "calls.jsonl"
    live = proposer(serve(reply(text=GOOD)), config=ModelConfig(name="scripted", record=str(path)))
    shown = context.replace(parents=(passed,))
    first = ask(live, shown, "improve")
    slower = passed.evaluation.replace(speed=passed.evaluation.speed.replace(speedup=1.25))
    replayed = ModelProposer(ModelConfig(name="scripted", replay=str(path)), environment={})
    second = ask(replayed, context.replace(parents=(passed.replace(evaluation=slower),)), "improve")
    assert second == first
    assert [c.matched for c in replayed.take_calls()] == ["same_question"]
    assert ask(replayed, shown, "improve") == ()
    (call,) = replayed.take_calls()
    assert call.outcome == "not_recorded"
    assert "role improve" in call.reason


def test_importing_it_loads_no_sdk_and_no_torch():
    code = "import sys, kernelwright.agents.model; print({'openai', 'torch', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "set()"


def test_a_missing_sdk_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(EnvironmentProblem, match="openai package") as caught:
        OpenAIClient({"OPENAI_API_KEY": "k"})
    assert "kernelwright[llm]" in caught.value.hint
