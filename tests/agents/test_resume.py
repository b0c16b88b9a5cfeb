"""Resuming: exactly the decisions of an uninterrupted run, also after `kill -9` at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from synthetic_landscape import DEVICE, Recorder, SyntheticJudge, SyntheticSession, synthetic_proposers

from kernelwright.agents.loop import run_search
from kernelwright.agents.run import Budget, RunConfig
from kernelwright.archive.ledger import Archive
from kernelwright.archive.run_folder import RunFolder
from kernelwright.core.errors import ResumeError
from kernelwright.tasks.request import TaskRequest

HERE = Path(__file__).parent
PROGRAM = """
import sys
from pathlib import Path
from test_resume import run
run(Path(sys.argv[1]), resume=sys.argv[2] == "resume", serial=sys.argv[3] == "serial", seconds=float(sys.argv[4]))
"""


def run(home, *, resume=False, serial=True, seconds=0.0, session=None, observer=None, evaluations=40):
    config = RunConfig(
        request=TaskRequest(target="synthetic.py"),
        serial=serial,
        seed=7,
        budget=Budget(evaluations=evaluations, wall_seconds=None),
    )
    with Archive.open(home / "archive.sqlite") as archive:
        return run_search(
            config,
            SyntheticJudge(session or SyntheticSession(seconds=seconds)),
            device=DEVICE,
            archive=archive,
            folder=home / "run",
            observer=observer or Recorder(),
            resume=resume,
            proposers=synthetic_proposers(),
        )


def start(home, *, resume, serial, seconds):
    words = [str(home), "resume" if resume else "new", "serial" if serial else "parallel", str(seconds)]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def decisions(home):
    folder = RunFolder(home / "run")
    return [
        (a.index, a.step, a.candidate, {**a.evaluation.model_dump(), "seconds": None}) for a in folder.attempts()
    ], [json.loads(line) for line in (home / "run" / "steps.jsonl").read_text().splitlines()]


class Stop(Exception):
    """A crash of the process, as far as the loop can tell."""


@pytest.mark.parametrize("serial", [True, False])
@pytest.mark.parametrize("at", [1, 23])
def test_a_resumed_run_decides_as_an_uninterrupted_one(tmp_path, serial, at):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    expected = run(whole, serial=serial)

    def crash(number, candidate):
        if number == at + 1:
            raise Stop

    with pytest.raises(Stop):
        run(broken, serial=serial, session=SyntheticSession(hook=crash))
    assert len(RunFolder(broken / "run").attempts()) == at
    again = SyntheticSession()
    result = run(broken, serial=serial, session=again, resume=True)
    assert decisions(broken) == decisions(whole)
    assert (result.best, result.outcome, result.finalists) == (expected.best, expected.outcome, expected.finalists)
    assert len(again.judged) == 40 - at + 2 * len(result.finalists), "completed work is never done twice"


@pytest.mark.parametrize("serial", [True, False])
def test_a_crash_between_finalists_measures_only_the_missing_ones(tmp_path, serial):
    def crash(number, candidate):
        if number == 44:
            raise Stop

    with pytest.raises(Stop):
        run(tmp_path, serial=serial, session=SyntheticSession(hook=crash))
    again = SyntheticSession()
    result = run(tmp_path, serial=serial, session=again, resume=True)
    assert len(result.finalists) == 3
    assert len(again.judged) == 4, "two measurements each; a half-measured finalist starts anew"


@pytest.mark.parametrize("serial", [pytest.param(True, marks=pytest.mark.slow), False])
def test_kill_9_at_random_moments_loses_at_most_the_attempt_in_flight(tmp_path, serial):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run(whole, serial=serial)
    draw = random.Random(f"kill:{serial}")
    resume, kills, before = False, 0, []
    for _ in range(40):
        process = start(killed, resume=resume, serial=serial, seconds=0.05)
        wait_for_progress(killed, len(before), process)
        time.sleep(draw.uniform(0.0, 0.7))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, process.stderr.read().decode()
        kills += 1
        lines = (killed / "run" / "attempts.jsonl").read_bytes().split(b"\n")[:-1]
        assert lines[: len(before)] == before, "what was on record stays on record"
        before, resume = lines, True
    run(killed, resume=True, serial=serial)
    assert kills >= 3
    assert [d[2].id for d in decisions(killed)[0]] == [d[2].id for d in decisions(whole)[0]]
    with Archive.open(killed / "archive.sqlite") as archive:
        (summary,) = archive.runs()
        assert archive.attempts(summary.run) == RunFolder(killed / "run").attempts()
        assert summary.evaluations == 40


def wait_for_progress(home, known, process):
    """Wait until the process has made one attempt more, so that a slow start is no kill at the start only."""
    path = home / "run" / "attempts.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") > known:
            return
        time.sleep(0.005)


def test_a_torn_last_line_is_done_again(tmp_path):
    run(tmp_path)
    path = tmp_path / "run" / "attempts.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:11]) + lines[11][: len(lines[11]) // 2])
    (tmp_path / "run" / "result.json").unlink()
    session = SyntheticSession()
    run(tmp_path, resume=True, session=session)
    assert len(session.judged) == 40 - 11
    assert [json.loads(x)["candidate"] for x in path.read_bytes().splitlines()] == [
        json.loads(x)["candidate"] for x in lines
    ]


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    run(tmp_path)
    path = tmp_path / "run" / "attempts.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4][:40] + b"\n"
    path.write_bytes(b"".join(lines))
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(ResumeError, match=r"attempts\.jsonl, line 5, is damaged"):
        run(tmp_path, resume=True)


def test_two_processes_cannot_work_on_one_run(tmp_path):
    process = start(tmp_path, resume=False, serial=True, seconds=0.5)
    try:
        wait_for_progress(tmp_path, 0, process)
        with pytest.raises(ResumeError, match="another process"):
            run(tmp_path, resume=True)
    finally:
        process.kill()
        process.wait()
    assert run(tmp_path, resume=True).evaluations == 40
