"""Every outcome, brought about by a real candidate in a real process."""

from __future__ import annotations

import os
import signal
import time

import pytest
from judge_kernels import SCALE, cpp_kernel

from kernelwright.judge.evaluation import EVALUATION, Guard, Rule, Stage
from kernelwright.judge.sandbox import level_in_force

RIGHT = cpp_kernel("for (int64_t i = 0; i < n; ++i) y[i] = 2.f * std::tanh(x[i]);")


def test_a_right_kernel_passes_with_a_speed_and_evidence(verdict_on):
    verdict = verdict_on(RIGHT, rule=Rule.OWN_KERNEL)
    assert verdict.outcome == "passed", verdict
    assert verdict.speed is not None
    assert verdict.speed.speedup_ci[0] <= verdict.speed.speedup <= verdict.speed.speedup_ci[1]
    assert {c.distribution for c in verdict.checks} >= {"own", "normal", "large"}
    assert len({c.workload for c in verdict.checks}) >= 3
    assert any(c.hidden for c in verdict.checks)
    assert all(c.axes == {} for c in verdict.checks if c.hidden)
    assert set(verdict.seconds) == {*Stage, "waiting"}
    assert all(seconds >= 0 for seconds in verdict.seconds.values())
    assert verdict.sandbox == level_in_force()
    assert EVALUATION.validate_json(verdict.to_json()) == verdict


@pytest.mark.parametrize(
    "body",
    [
        "for (int64_t i = 0; i < n / 8 * 8; ++i) y[i] = 2.f * std::tanh(x[i]);",
        "for (int64_t i = 0; i < n; ++i) y[i] = 2.f * x[i];",
        "for (int64_t i = 0; i < n; ++i) y[i] += 2.f * std::tanh(x[i]);",
        "",
    ],
    ids=["tail skipped", "no tanh", "accumulates into uninitialised memory", "does nothing"],
)
def test_wrong_numbers_are_incorrect_and_say_where(verdict_on, body):
    verdict = verdict_on(cpp_kernel(body))
    assert verdict.outcome == "incorrect", verdict
    assert verdict.stage is Stage.VERIFY
    assert "elements are off" in verdict.reason
    assert not verdict.checks[-1].passed


def test_a_wrong_shape_or_element_type_is_incorrect(verdict_on):
    assert verdict_on("import torch\ndef forward(x):\n    return (torch.tanh(x) * 2).double()").outcome == "incorrect"
    assert verdict_on("import torch\ndef forward(x):\n    return (torch.tanh(x) * 2)[:, None]").outcome == "incorrect"


def test_a_compiler_error_is_build_failed_with_the_first_error(verdict_on):
    verdict = verdict_on(cpp_kernel("y[0] = undeclared_thing;"))
    assert verdict.outcome == "build_failed"
    assert "undeclared_thing" in verdict.reason
    assert verdict.stage is Stage.BUILD


@pytest.mark.parametrize(
    ("source", "number"),
    [
        (cpp_kernel("*(volatile int*)8 = 1;"), signal.SIGSEGV),
        (cpp_kernel("std::abort();"), signal.SIGABRT),
    ],
    ids=["segfault", "abort"],
)
def test_a_dying_process_is_crashed_with_its_signal(verdict_on, source, number):
    verdict = verdict_on(source)
    assert (verdict.outcome, verdict.signal) == ("crashed", number)


def test_an_exception_on_the_tasks_own_sizes_is_crashed(verdict_on):
    verdict = verdict_on("def forward(x):\n    raise KeyError('lost')")
    assert verdict.outcome == "crashed"
    assert "KeyError" in verdict.reason


def test_a_library_that_lacks_the_entry_is_crashed_at_load(verdict_on):
    verdict = verdict_on('#include "kernelwright.h"\nint nothing;')
    assert (verdict.outcome, verdict.stage) == ("crashed", Stage.LOAD)
    assert "kernelwright_run" in verdict.reason


@pytest.mark.parametrize(
    "source",
    [
        cpp_kernel("volatile int64_t forever = 1; while (forever) {}"),
        """
        import signal, time
        def forward(x):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            while True:
                time.sleep(1)
        """,
    ],
    ids=["native loop", "ignores signals"],
)
def test_an_endless_call_is_timed_out(verdict_on, source):
    begun = time.monotonic()
    verdict = verdict_on(source)
    assert (verdict.outcome, verdict.limit) == ("timed_out", "seconds")
    assert time.monotonic() - begun < 20


def test_eating_memory_is_timed_out_by_the_memory_limit(verdict_on):
    verdict = verdict_on("import torch\ndef forward(x):\n    return [torch.ones(1 << 24) for _ in range(4096)]")
    assert (verdict.outcome, verdict.limit) == ("timed_out", "memory")


@pytest.mark.parametrize(
    ("source", "words"),
    [("def forward(x:\n    pass", "1"), ("value = 3", "ModelNew")],
    ids=["does not parse", "nothing to call"],
)
def test_what_is_no_candidate_is_invalid(verdict_on, source, words):
    verdict = verdict_on(source)
    assert (verdict.outcome, verdict.stage) == ("invalid", Stage.SCREEN)
    assert words in verdict.reason


def test_a_killed_server_costs_nobody_anything(judge, verdict_on):
    os.kill(judge.server.get().pid, signal.SIGKILL)
    assert verdict_on(RIGHT).outcome == "passed"


def test_a_candidate_that_kills_the_server_does_not_harm_the_next_one(verdict_on):
    verdict = verdict_on("import os, signal\ndef forward(x):\n    os.kill(os.getppid(), signal.SIGKILL)\n    return x")
    assert verdict.outcome != "passed"
    assert verdict_on(RIGHT).outcome == "passed"


def test_megabytes_of_output_are_dropped_and_counted(verdict_on):
    verdict = verdict_on(
        "import torch\nfor _ in range(64):\n    print('x' * (1 << 18))\ndef forward(x):\n    return torch.tanh(x) * 2"
    )
    assert verdict.outcome == "passed", verdict
    assert any("were dropped" in note for note in verdict.notes)


def test_keys_of_the_user_are_not_in_the_runners_environment(verdict_on, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    verdict = verdict_on(
        "import os, torch\nassert not [k for k in os.environ if 'KEY' in k]\ndef forward(x):\n    return torch.tanh(x) * 2"
    )
    assert verdict.outcome == "passed", verdict


def test_other_sizes_may_be_refused_unless_the_task_declares_its_axes(verdict_on):
    refusing = cpp_kernel(
        "if (n != 64 * 96) return KW_UNSUPPORTED; for (int64_t i = 0; i < n; ++i) y[i] = 2.f * std::tanh(x[i]);"
    )
    verdict = verdict_on(refusing)
    assert verdict.outcome == "passed", verdict
    assert verdict.specialised
    declared = """
    import torch
    from kernelwright.tasks import operation
    @operation(x="float32[B, N]", workloads=[{"B": 64, "N": 96}])
    def doubled_tanh(x):
        return torch.tanh(x) * 2
    """
    assert verdict_on(RIGHT, task=declared).outcome == "passed"
    assert verdict_on(refusing, task=declared).outcome == "incorrect"


def test_guards_are_named_in_rejections(verdict_on):
    verdict = verdict_on("def forward(x):\n    return x.tolist()", task=SCALE)
    assert (verdict.outcome, verdict.guard) == ("rejected", Guard.WRONG_OUTPUT_TYPE)
