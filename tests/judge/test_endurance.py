"""Many verdicts in a row: no process, file, descriptor or folder stays, and memory is flat."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest
from judge_kernels import SCALE, cpp_kernel

from kernelwright.platforms.candidates import Candidate

RIGHT = cpp_kernel("for (int64_t i = 0; i < n; ++i) y[i] = 2.f * std::tanh(x[i]);")
KINDS = {
    "right": RIGHT,
    "wrong": cpp_kernel("for (int64_t i = 0; i < n; ++i) y[i] = x[i];"),
    "dies": cpp_kernel("std::abort();"),
    "does not build": cpp_kernel("y[0] = nothing;"),
}


def _holdings(judge):
    server = judge.server.get().pid
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "server descriptors": len(list(Path(f"/proc/{server}/fd").iterdir())),
        "children of the server": len(Path(f"/proc/{server}/task/{server}/children").read_text().split()),
        "folders": len(list(Path(tempfile.gettempdir()).glob("kernelwright-*"))),
    }


def _resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _evaluate_all(open_task, rounds):
    from kernelwright.judge.protocol import TimingPlan

    plan = TimingPlan(pairs=3, minimum_pairs=2, seconds=0.1, ring_bytes=1 << 20)
    outcomes = []
    for _ in range(rounds):
        for text in KINDS.values():
            candidate = Candidate(language="cpp", sources={"kernel.cpp": text})
            outcomes.append(open_task(SCALE).evaluate(candidate, timing=plan).outcome)
    return outcomes


@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_nothing_stays_behind(judge, open_task, rounds):
    assert _evaluate_all(open_task, 1) == ["passed", "incorrect", "crashed", "build_failed"]
    before, resident = _holdings(judge), _resident_bytes()
    assert _evaluate_all(open_task, rounds) == ["passed", "incorrect", "crashed", "build_failed"] * rounds
    deadline = time.monotonic() + 5
    kinds = ("descriptors", "server descriptors", "children of the server")
    while any((after := _holdings(judge))[kind] > before[kind] for kind in kinds) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert {kind: after[kind] for kind in kinds if after[kind] > before[kind]} == {}
    assert after["folders"] <= before["folders"] + 4
    assert _resident_bytes() - resident < 32 << 20


def test_a_fork_bomb_is_over_when_its_verdict_is_there(verdict_on, judge):
    bomb = """
    import os, time
    def forward(x):
        for _ in range(40):
            if os.fork() == 0:
                os.setsid()
                time.sleep(60)
                os._exit(0)
        return x
    """
    verdict = verdict_on(bomb)
    assert verdict.outcome != "passed"
    server = judge.server.get().pid
    alive = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    assert len(alive) < 10
