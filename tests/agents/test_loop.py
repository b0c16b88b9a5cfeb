"""The loop against a synthetic judge: its decisions, budgets, stops and results."""

from __future__ import annotations

import os
import signal

import pytest
from synthetic_landscape import (
    DEVICE,
    Recorder,
    SyntheticJudge,
    SyntheticSession,
    our_failure,
    synthetic_proposers,
)

from kernelwright.agents.loop import finished_result, run_search, stored_config
from kernelwright.agents.run import Budget, RunConfig
from kernelwright.archive.ledger import Archive
from kernelwright.archive.run_folder import RunFolder
from kernelwright.core.errors import InternalError, Interrupted, ResumeError, UsageError
from kernelwright.judge.evaluation import Incorrect
from kernelwright.tasks.request import TaskRequest

REQUEST = TaskRequest(target="synthetic.py")


def config_of(**changes):
    base = {"preset": "evolve", "budget": Budget(evaluations=30, wall_seconds=None), "serial": True}
    return RunConfig(request=REQUEST, **{**base, **changes})


@pytest.fixture
def archive(tmp_path):
    with Archive.open(tmp_path / "archive.sqlite") as opened:
        yield opened


def search(archive, folder, session=None, *, observer=None, resume=False, proposers=None, **changes):
    return run_search(
        config_of(**changes),
        SyntheticJudge(session or SyntheticSession()),
        device=DEVICE,
        archive=archive,
        folder=folder,
        observer=observer or Recorder(),
        resume=resume,
        proposers=synthetic_proposers() if proposers is None else proposers,
    )


@pytest.mark.parametrize("preset", ["random", "best-of-n", "evolve"])
@pytest.mark.parametrize("serial", [True, False])
def test_every_preset_spends_its_evaluations_and_improves(archive, tmp_path, preset, serial):
    recorder = Recorder()
    result = search(archive, tmp_path / "run", observer=recorder, preset=preset, serial=serial)
    assert (result.outcome, result.stop_reason, result.evaluations) == ("improved", "evaluations", 30)
    assert len(recorder.of("attempt_judged")) == 30
    assert len(result.finalists) == 3
    assert result.best in {f.candidate for f in result.finalists}
    attempts = archive.attempts(result.run)
    assert [a.index for a in attempts] == list(range(1, 31))
    assert len({a.candidate.id for a in attempts}) == 30
    assert attempts == RunFolder(tmp_path / "run").attempts()
