"""A language model in the loop, beside the drafter and alone: budgets, records, resume. The client is scripted."""

from __future__ import annotations

import itertools
import time

import pytest
from synthetic_landscape import DEVICE, Recorder, SyntheticJudge, SyntheticSession, synthetic_proposers

from kernelwright.agents.loop import run_search
from kernelwright.agents.model import ModelProposer
from kernelwright.agents.model.client import CallFailure, Completion
from kernelwright.agents.run import Budget, ModelConfig, RunConfig
from kernelwright.archive.ledger import Archive
from kernelwright.archive.run_folder import RunFolder
from kernelwright.core.errors import EnvironmentProblem, Interrupted
from kernelwright.judge.evaluation import Incorrect, Passed
from kernelwright.tasks.request import TaskRequest

ANSWER = """Plan: variant {number}.

```cpp
#include "kernelwright.h"
extern "C" int kernelwright_run(void) {{ return {number}; }}
```
"""
MODEL = ModelConfig(name="scripted")


class ScriptedClient:
    def __init__(self, *, seconds=0.0, fail=False, wrong_key=False, first=1):
        self.roles = []
        self._numbers = itertools.count(first)
        self._seconds = seconds
        self._fail = fail
        self._wrong_key = wrong_key

    def complete(self, request, *, deadline):
        self.roles.append(request.role)
        if self._wrong_key:
            raise EnvironmentProblem("the endpoint does not accept the key", hint="set OPENAI_API_KEY")
        time.sleep(self._seconds)
        if self._fail:
            return CallFailure(failure="unreachable", reason="no network")
        return Completion(text=ANSWER.format(number=next(self._numbers)), input_tokens=900, output_tokens=100)


def verdict(number, candidate):
    """What the model writes is wrong at first and right where it was repaired."""
    if candidate.origin.proposer != "model":
        return None
    common = {"candidate": candidate.id, "task": "t", "device": DEVICE.id}
    if candidate.origin.operator == "draft":
        return Incorrect(reason="wrong by 1", **common)
    return Passed(speed=None, untimed="synthetic", **common)


def search(tmp_path, client, *, alone=False, resume=False, observer=None, budget=None, serial=True, hook=verdict):
    budget = budget or Budget(evaluations=40, wall_seconds=None)
    config = RunConfig(
        request=TaskRequest(target="synthetic.py"),
        model=MODEL.replace(only=alone),
        budget=budget,
        serial=serial,
        finalists=1,
    )
    model = ModelProposer(MODEL, budget=budget, client=client, environment={})
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        result = run_search(
            config,
            SyntheticJudge(SyntheticSession(hook=hook)),
            device=DEVICE,
            archive=archive,
            folder=tmp_path / "run",
            observer=observer or Recorder(),
            resume=resume,
            proposers={"model": model}
            if alone
            else {"model": model, "inductor": NoInductor(), **synthetic_proposers()},
        )
        return result, archive.attempts(result.run), archive.model_calls(result.run)


class NoInductor:
    name = "inductor"

    def propose(self, context, *, operator, count, rng):
        return ()


@pytest.mark.parametrize("serial", [True, False])
def test_a_model_works_beside_the_drafter_and_every_call_is_recorded(tmp_path, serial):
    client = ScriptedClient()
    result, attempts, calls = search(tmp_path, client, serial=serial)
    proposers = {a.candidate.origin.proposer for a in attempts}
    assert {"model", "drafter", "mutate"} <= proposers
    assert [c.role for c in calls] == client.roles
    assert (result.tokens, result.cost_usd) == (1000 * len(calls), 0.0)
    assert calls == RunFolder(tmp_path / "run").model_calls()
    assert all(c.cost_usd is None and len(c.prompt_hash) == 64 for c in calls)
    assert {"draft", "repair"} <= set(client.roles)


def test_a_repair_follows_its_failure_and_happens_once(tmp_path):
    _, attempts, _ = search(tmp_path, ScriptedClient())
    outcome = {a.candidate.id: a.evaluation.outcome for a in attempts}
    repaired = [a.candidate.origin.parents for a in attempts if a.candidate.origin.operator == "repair"]
    assert repaired
    assert all(outcome[parent] == "incorrect" for (parent,) in repaired)
    assert len(set(repaired)) == len(repaired)


def test_the_token_budget_ends_the_run(tmp_path):
    budget = Budget(evaluations=None, wall_seconds=30.0, tokens=3000)
    result, _, calls = search(tmp_path, ScriptedClient(), budget=budget)
    assert result.stop_reason == "tokens"
    assert sum(c.input_tokens + c.output_tokens for c in calls) == result.tokens == 3000


def test_tokens_of_an_earlier_start_count_too(tmp_path):
    def stop(event):
        if event.kind == "attempt_judged" and event.index == 12:
            raise KeyboardInterrupt

    budget = Budget(evaluations=None, wall_seconds=60.0, tokens=6000)
    first = ScriptedClient()
    with pytest.raises(Interrupted):
        search(tmp_path, first, budget=budget, observer=Recorder(hook=stop))
    assert 0 < len(first.roles) < 6
    second = ScriptedClient(first=100)
    result, _, calls = search(tmp_path, second, budget=budget, resume=True)
    assert len(first.roles) + len(second.roles) == len(calls) == 6
    assert (result.stop_reason, result.tokens) == ("tokens", 6000)


def test_a_model_alone_that_never_answers_exhausts_the_run(tmp_path):
    client = ScriptedClient(fail=True)
    result, attempts, calls = search(tmp_path, client, alone=True)
    assert (result.stop_reason, result.outcome, attempts) == ("exhausted", "failed", [])
    assert 0 < len(calls) <= 5
    assert {c.outcome for c in calls} == {"unreachable"}


def test_a_refused_key_ends_the_run_with_its_error_and_can_be_resumed(tmp_path):
    with pytest.raises(EnvironmentProblem, match="does not accept the key"):
        search(tmp_path, ScriptedClient(wrong_key=True))
    result, _, _ = search(tmp_path, ScriptedClient(), resume=True)
    assert result.evaluations == 40


def test_a_model_without_a_key_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    config = RunConfig(request=TaskRequest(target="synthetic.py"), model=MODEL)
    with (
        Archive.open(tmp_path / "archive.sqlite") as archive,
        pytest.raises(EnvironmentProblem, match="OPENAI_API_KEY"),
    ):
        run_search(
            config,
            SyntheticJudge(SyntheticSession()),
            device=DEVICE,
            archive=archive,
            folder=tmp_path / "run",
            observer=Recorder(),
            proposers={"inductor": NoInductor(), **synthetic_proposers()},
        )
    assert not (tmp_path / "run").exists()
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        assert archive.runs() == []


def test_a_call_under_way_when_the_search_stops_is_recorded(tmp_path):
    budget = Budget(evaluations=3, wall_seconds=None)
    client = ScriptedClient(seconds=0.05)

    def slow(number, candidate):
        time.sleep(0.3)
        return verdict(number, candidate)

    result, _, calls = search(tmp_path, client, budget=budget, serial=False, hook=slow)
    assert result.evaluations == 3
    assert [c.role for c in calls] == client.roles
    assert result.tokens == 1000 * len(client.roles) > 0


def test_a_slow_model_does_not_hold_up_the_judge(tmp_path):
    """While an answer is awaited, what waits in the queue is judged."""
    judged = []

    class Watching(ScriptedClient):
        def complete(self, request, *, deadline):
            before = len(judged)
            answer = super().complete(request, deadline=deadline)
            during.append(len(judged) - before)
            return answer

    during = []

    def note(number, candidate):
        judged.append(number)
        return verdict(number, candidate)

    search(tmp_path, Watching(seconds=0.2), serial=False, hook=note)
    assert max(during) >= 2
