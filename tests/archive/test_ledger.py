"""The ledger on SQLite and on PostgreSQL: what goes in comes out, from several processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ledger_records import (
    DEVICE,
    TASK,
    attempt,
    build_failed,
    candidate,
    finalist,
    header,
    incorrect,
    model_call,
    passed,
)

from kernelwright.archive.ledger import Archive
from kernelwright.core.errors import UsageError

RUN = "20260101-000000-aaaa"
FOLDER = Path("/runs/one")


@pytest.fixture
def archive(ledger_url, tmp_path):
    with Archive.open(ledger_url, artifacts=tmp_path / "artifacts") as opened:
        yield opened


def test_a_run_comes_back_as_it_went_in(archive):
    first, second, third = candidate("a", unroll=2, fast=True, store="no"), candidate("b"), candidate("c")
    attempts = [
        attempt(1, first, passed(first)),
        attempt(2, second, incorrect(second), step=1),
        attempt(3, third, build_failed(third), step=2),
    ]
    archive.record_run(header(), FOLDER)
    for each in attempts:
        archive.record_attempt(each)
    archive.record_finalist(finalist(0, first, passed(first, 1.4, 1.5)))
    archive.record_model_call(model_call(1))
    assert archive.attempts(RUN) == attempts
    assert archive.finalists(RUN) == [finalist(0, first, passed(first, 1.4, 1.5))]
    assert archive.model_calls(RUN) == [model_call(1)]
    assert archive.task(TASK.id) == TASK
    assert archive.device(DEVICE.id) == DEVICE
    assert archive.candidate(first.id) == first
    assert archive.evaluations(first.id) == [passed(first), passed(first, 1.4, 1.5)]
    (summary,) = archive.runs()
    assert (summary.run, summary.task_name, summary.seed, summary.evaluations) == (RUN, "exp", 2**70, 3)
    assert (summary.finished_at, summary.outcome) == (None, None)

    result = {"outcome": "improved", "stop_reason": "exhausted", "best": first.id, "run": RUN}
    archive.finish_run(RUN, result, finished_at="2026-01-01T01:00:00+00:00", speedup=1.45)
    summary = archive.run(RUN)
    assert (summary.outcome, summary.best, summary.speedup) == ("improved", first.id, 1.45)
    assert archive.result(RUN) == result


def test_unknown_things_are_none_and_empty(archive):
    assert archive.run("x") is None
    assert archive.result("x") is None
    assert archive.candidate("0" * 64) is None
    assert archive.task("x") is None
    assert archive.device("x") is None
    assert archive.best("x", "y") is None
    assert archive.attempts("x") == []
    assert archive.lineage("0" * 64) == []


def test_recording_twice_changes_nothing(archive):
    made = candidate("a", parents=("0" * 64,))
    for _ in range(2):
        archive.record_run(header(), FOLDER)
        archive.record_attempts([attempt(1, made, passed(made))])
        archive.record_model_call(model_call(1))
    assert archive.attempts(RUN) == [attempt(1, made, passed(made))]
    assert len(archive.runs()) == 1


def test_origin_belongs_to_the_attempt_and_sources_to_the_candidate(archive):
    drafted = candidate("same source", operator="draft")
    mutated = candidate("same source", operator="mutate", parents=("f" * 64,), unroll=4)
    assert drafted.id == mutated.id
    archive.record_run(header(), FOLDER)
    archive.record_run(header("20260102-000000-bbbb"), FOLDER)
    archive.record_attempt(attempt(1, drafted, passed(drafted)))
    archive.record_attempt(attempt(1, mutated, passed(mutated), run="20260102-000000-bbbb"))
    assert archive.attempts(RUN)[0].candidate == drafted
    assert archive.attempts("20260102-000000-bbbb")[0].candidate == mutated
    assert len(list(archive.artifacts.folder.glob("*/*"))) == 2


def test_best_goes_by_the_lower_end_and_by_the_second_measurement(archive):
    lucky, solid, wide = candidate("lucky"), candidate("solid"), candidate("wide")
    archive.record_run(header(), FOLDER)
    archive.record_attempts(
        [
            attempt(1, lucky, passed(lucky, 2.0, 2.2)),
            attempt(2, solid, passed(solid, 1.6, 1.7)),
            attempt(3, wide, passed(wide, 1.1, 9.0)),
            attempt(4, candidate("untimed"), passed(candidate("untimed")).replace(speed=None)),
        ]
    )
    best = archive.best(TASK.id, DEVICE.id)
    assert (best.candidate, best.remeasured) == (lucky, False)
    archive.record_finalist(finalist(0, lucky, passed(lucky, 1.2, 1.3)))
    best = archive.best(TASK.id, DEVICE.id)
    assert (best.candidate, best.remeasured) == (solid, False)
    archive.record_finalist(finalist(1, solid, passed(solid, 1.5, 1.6)))
    best = archive.best(TASK.id, DEVICE.id)
    assert (best.candidate, best.remeasured, best.evaluation.speed.speedup_ci) == (solid, True, (1.5, 1.6))
    assert archive.best(TASK.id, "another device") is None


def test_lineage_leads_to_the_roots_once_each(archive):
    root, other = candidate("root"), candidate("other root")
    child = candidate("child", parents=(root.id, other.id), operator="cross")
    grandchild = candidate("grandchild", parents=(child.id, root.id), operator="mutate")
    archive.record_run(header(), FOLDER)
    archive.record_attempts([attempt(i, c, passed(c)) for i, c in enumerate((root, other, child, grandchild), start=1)])
    found = archive.lineage(grandchild.id)
    assert [(e.candidate, e.generation) for e in found] == [
        (grandchild.id, 0),
        (child.id, 1),
        (root.id, 1),
        (other.id, 2),
    ]
    assert found[1].parents == (root.id, other.id)
    assert found[1].operator == "cross"


def test_failing_builds_are_those_that_never_built(archive):
    never, later = candidate("never"), candidate("later")
    archive.record_run(header(), FOLDER)
    archive.record_attempts([attempt(1, never, build_failed(never)), attempt(2, later, build_failed(later))])
    archive.record_run(header("20260102-000000-bbbb"), FOLDER)
    archive.record_attempt(attempt(1, later, incorrect(later), run="20260102-000000-bbbb"))
    assert archive.failing_builds(TASK.id, DEVICE.id) == {never.id}


def test_runs_are_listed_newest_first_and_can_be_narrowed(archive):
    other_task = TASK.replace(name="log")
    archive.record_run(header("a", started_at="2026-01-01T00:00:00.000000+00:00"), FOLDER)
    archive.record_run(header("b", started_at="2026-01-03T00:00:00.000000+00:00"), FOLDER)
    archive.record_run(header("c", task=other_task, started_at="2026-01-02T00:00:00.000000+00:00"), FOLDER)
    assert [r.run for r in archive.runs()] == ["b", "c", "a"]
    assert [r.run for r in archive.runs(task=TASK.id)] == ["b", "a"]
    assert [r.run for r in archive.runs(limit=1)] == ["b"]


def test_two_processes_write_one_archive(ledger_url, tmp_path):
    """Both open it first, so they also migrate it at once."""
    program = "import sys; from ledger_records import write_many; write_many(*sys.argv[1:4], int(sys.argv[4]))"
    runs = ["20260101-000000-aaaa", "20260101-000000-bbbb", "20260101-000000-cccc"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, ledger_url, str(tmp_path / "artifacts"), run, "40"],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
            stderr=subprocess.PIPE,
        )
        for run in runs
    ]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    with Archive.open(ledger_url, artifacts=tmp_path / "artifacts") as archive:
        for run in runs:
            assert [a.index for a in archive.attempts(run)] == list(range(1, 41))
        assert len({a.candidate.id for run in runs for a in archive.attempts(run)}) == 20 + 3 * 20


@pytest.mark.parametrize("url", ["mysql://host/name", "://", "oracle+oracledb://x"])
def test_other_addresses_are_refused(url):
    with pytest.raises(UsageError):
        Archive.open(url)


def test_the_default_place_is_the_users_data_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("KERNELWRIGHT_ARCHIVE", raising=False)
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    with Archive.open() as archive:
        archive.record_task(TASK)
    assert (tmp_path / "data" / "archive.sqlite").exists()
    monkeypatch.setenv("KERNELWRIGHT_ARCHIVE", str(tmp_path / "elsewhere.sqlite"))
    with Archive.open() as archive:
        assert archive.task(TASK.id) is None
