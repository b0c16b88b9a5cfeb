"""Timing alone: compilers stand still, other judges wait."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

from kernelwright.judge.gate import TimingGate


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _becomes(pid: int, states: str) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if _state(pid) in states:
            return True
        time.sleep(0.01)
    return False


def test_a_running_compiler_stops_while_something_is_timed(tmp_path):
    gate = TimingGate(tmp_path / "lock")
    process = subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"], process_group=0)
    try:
        with gate.compiling(process.pid):
            with gate.exclusive():
                assert _becomes(process.pid, "T")
            assert _becomes(process.pid, "RS")
            with gate.exclusive():
                assert _becomes(process.pid, "T")
                late = subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"], process_group=0)
                with gate.compiling(late.pid):
                    assert _becomes(late.pid, "T")
                late.kill()
                late.wait()
    finally:
        process.kill()
        process.wait()


def test_two_judges_do_not_time_at_once(tmp_path):
    one, other = TimingGate(tmp_path / "lock"), TimingGate(tmp_path / "lock")
    order: list[str] = []

    def second() -> None:
        with other.exclusive():
            order.append("second")

    with one.exclusive():
        waiting = threading.Thread(target=second)
        waiting.start()
        time.sleep(0.1)
        order.append("first")
    waiting.join(5)
    assert order == ["first", "second"]
