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


def test_a_random_arm_draws_without_parents(archive, tmp_path):
    result = search(archive, tmp_path / "run", preset="random")
    for attempt in archive.attempts(result.run):
        assert attempt.candidate.origin.operator == "random"
        assert attempt.candidate.origin.parents == ()


def test_evolve_drafts_first_and_ends_beside_its_best(archive, tmp_path):
    result = search(archive, tmp_path / "run", budget=Budget(evaluations=60, wall_seconds=None))
    operators = [a.candidate.origin.operator for a in archive.attempts(result.run)]
    assert operators[:2] == ["draft", "draft"]
    assert {"mutate", "cross", "random", "neighbour"} <= set(operators)
    assert operators[-15:].count("neighbour") > 8


def test_the_winner_is_chosen_on_the_second_measurement(archive, tmp_path):
    """The search's favourite is right at first and wrong when measured again: it must not win."""
    seen = {}

    def flaky(number, candidate):
        if candidate.id in seen:
            seen[candidate.id] += 1
            if len(seen_twice := [i for i, n in seen.items() if n > 1]) == 1 and seen_twice[0] == candidate.id:
                return Incorrect(
                    reason="differs now", candidate=candidate.id, task="t", device=DEVICE.id, rule="own-kernel"
                )
        seen.setdefault(candidate.id, 1)
        return None

    recorder = Recorder()
    result = search(archive, tmp_path / "run", SyntheticSession(hook=flaky), observer=recorder)
    favourite = recorder.of("attempt_judged")[-1].best.candidate.id
    assert result.finalists[0].candidate == favourite
    assert result.finalists[0].evaluation.outcome == "incorrect"
    assert result.best != favourite
    assert result.outcome == "improved"
    assert len(result.finalists) == 4, "the next in rank took its place"


def test_not_significantly_faster_keeps_the_baseline(archive, tmp_path):
    result = search(archive, tmp_path / "run", SyntheticSession(noise=2.0), preset="random")
    assert result.outcome == "baseline_kept"
    assert "inconclusive" in result.reason
    assert result.best is not None


def test_nothing_right_is_a_failed_run_with_every_failure_on_record(archive, tmp_path):
    def wrong(number, candidate):
        return Incorrect(reason="no", candidate=candidate.id, task="t", device=DEVICE.id, rule="own-kernel")

    result = search(archive, tmp_path / "run", SyntheticSession(hook=wrong))
    assert (result.outcome, result.best, result.finalists) == ("failed", None, ())
    assert "none of 30" in result.reason
    assert {a.evaluation.outcome for a in archive.attempts(result.run)} == {"incorrect"}


def test_a_reference_without_graph_says_so(archive, tmp_path):
    session = SyntheticSession(graph_value="it branches on its data")
    proposers = {n: p for n, p in synthetic_proposers().items() if n != "drafter"}
    recorder = Recorder()
    result = search(archive, tmp_path / "run", session, observer=recorder, proposers=proposers, preset="random")
    assert (result.outcome, result.stop_reason, result.evaluations) == ("failed", "exhausted", 0)
    assert "branches on its data" in result.reason
    assert any("branches on its data" in n.text for n in recorder.of("note"))


def test_stops_near_the_roofline_and_says_so(archive, tmp_path):
    recorder = Recorder()
    session = SyntheticSession(roofline_speedup=2.0)
    budget = Budget(evaluations=200, wall_seconds=None)
    result = search(archive, tmp_path / "run", session, observer=recorder, budget=budget)
    assert result.stop_reason == "near_roofline"
    assert result.evaluations < 200
    assert any("roofline" in n.text for n in recorder.of("note"))


def test_stops_when_the_space_is_exhausted(archive, tmp_path):
    class Single:
        name = "random"

        def propose(self, context, *, operator, count, rng):
            return synthetic_proposers()["drafter"].propose(context, operator="draft", count=9, rng=rng)

    result = search(archive, tmp_path / "run", SyntheticSession(), preset="random", proposers={"random": Single()})
    assert (result.stop_reason, result.evaluations) == ("exhausted", 2)


def test_the_wall_budget_ends_a_run_and_leaves_time_for_its_finalists(archive, tmp_path):
    session = SyntheticSession(seconds=0.02)
    budget = Budget(evaluations=None, wall_seconds=1.5)
    result = search(archive, tmp_path / "run", session, budget=budget, serial=False)
    assert result.stop_reason == "wall_seconds"
    assert result.evaluations > 3
    assert result.seconds < 3.0


def test_our_own_failures_get_one_more_chance_and_then_stop_the_run(archive, tmp_path):
    broken = SyntheticSession(hook=lambda number, candidate: our_failure(candidate))
    result = search(archive, tmp_path / "broken", broken)
    assert (result.stop_reason, result.outcome, result.evaluations) == ("failed", "failed", 5)

    once = SyntheticSession(hook=lambda number, candidate: our_failure(candidate) if number == 3 else None)
    result = search(archive, tmp_path / "once", once)
    attempts = archive.attempts(result.run)
    assert attempts[2].candidate.id == attempts[3].candidate.id
    assert attempts[2].evaluation.outcome == "judge_error"
    assert attempts[3].evaluation.outcome != "judge_error"


def test_a_broken_proposer_is_a_note_and_not_the_end(archive, tmp_path):
    class Broken:
        name = "mutate"

        def propose(self, context, *, operator, count, rng):
            raise ZeroDivisionError("a bug of somebody else")

    recorder = Recorder()
    proposers = {**synthetic_proposers(), "mutate": Broken()}
    result = search(archive, tmp_path / "run", observer=recorder, proposers=proposers)
    assert result.outcome == "improved"
    assert any("a bug of somebody else" in n.text for n in recorder.of("note"))


def test_proposals_are_built_ahead_and_never_judged_twice(archive, tmp_path):
    session = SyntheticSession()
    result = search(archive, tmp_path / "run", session, serial=False)
    searched = session.judged[: result.evaluations]
    assert set(searched) <= set(session.built)
    assert len(set(searched)) == len(searched)


def test_a_serial_run_builds_nothing_ahead_and_repeats_itself(archive, tmp_path):
    first, second = SyntheticSession(), SyntheticSession()
    search(archive, tmp_path / "first", first)
    search(archive, tmp_path / "second", second)
    assert first.judged == second.judged
    assert first.built == []
    other = SyntheticSession()
    search(archive, tmp_path / "third", other, seed=1)
    assert other.judged != first.judged


def test_known_failing_builds_are_not_judged_again(archive, tmp_path):
    first = search(archive, tmp_path / "first", serial=False)
    failing = {a.candidate.id for a in archive.attempts(first.run) if a.evaluation.outcome == "build_failed"}
    assert failing
    second = search(archive, tmp_path / "second", serial=False)
    assert not failing & {a.candidate.id for a in archive.attempts(second.run)}


def test_an_observer_that_fails_ends_the_run_as_our_own_fault(archive, tmp_path):
    def fail(event):
        if event.kind == "attempt_judged" and event.index == 4:
            raise ValueError("no terminal")

    with pytest.raises(InternalError, match="no terminal"):
        search(archive, tmp_path / "run", observer=Recorder(hook=fail))
    assert len(RunFolder(tmp_path / "run").attempts()) == 4


@pytest.mark.parametrize("how", ["ctrl-c", "sigterm"])
@pytest.mark.parametrize("serial", [True, False])
def test_stopping_keeps_everything_and_resumes(archive, tmp_path, how, serial):
    def stop(event):
        if event.kind == "attempt_judged" and event.index == 7:
            if how == "ctrl-c":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGTERM)

    folder = tmp_path / "run"
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as caught:
        search(archive, folder, observer=Recorder(hook=stop), serial=serial)
    assert signal.getsignal(signal.SIGTERM) is handler
    assert caught.value.folder == str(folder)
    assert caught.value.exit_code == 130
    stored = RunFolder(folder).result()
    assert (stored["stop_reason"], stored["evaluations"]) == ("interrupted", 7)
    assert stored["outcome"] == "baseline_kept", "nothing was measured again, so nothing is claimed"
    assert stored["best"] is not None
    assert archive.run(stored["run"]).stop_reason == "interrupted"
    assert finished_result(folder) is None

    recorder, session = Recorder(), SyntheticSession()
    result = search(archive, folder, session, observer=recorder, resume=True, serial=serial)
    assert recorder.of("run_started")[0].resumed_evaluations == 7
    assert result.evaluations == 30
    assert len(session.judged) == 23 + 2 * len(result.finalists)


def test_a_finished_run_gives_its_result_again(archive, tmp_path):
    result = search(archive, tmp_path / "run")
    session = SyntheticSession()
    assert search(archive, tmp_path / "run", session, resume=True) == result
    assert session.judged == []
    assert stored_config(tmp_path / "run") == config_of()


def test_another_configuration_refuses_to_resume_and_names_the_keys(archive, tmp_path):
    search(archive, tmp_path / "run")
    with pytest.raises(ResumeError) as caught:
        search(archive, tmp_path / "run", resume=True, seed=4, budget=Budget(evaluations=31, wall_seconds=None))
    assert "seed: 0 then, 4 now" in caught.value.message
    assert "budget.evaluations: 30 then, 31 now" in caught.value.message
    assert "preset" not in caught.value.message


def test_an_occupied_folder_and_an_empty_one(archive, tmp_path):
    search(archive, tmp_path / "run")
    with pytest.raises(UsageError, match="holds a run already"):
        search(archive, tmp_path / "run")
    with pytest.raises(ResumeError, match="there is no run"):
        search(archive, tmp_path / "nothing", resume=True)


@pytest.mark.parametrize("name", ["run.json", "result.json"])
def test_a_folder_of_another_version_is_named(archive, tmp_path, name):
    search(archive, tmp_path / "run", budget=Budget(evaluations=2, wall_seconds=None))
    path = tmp_path / "run" / name
    path.write_text(path.read_text().replace('"evaluations":', '"assessments":'))
    read = stored_config if name == "run.json" else finished_result
    with pytest.raises(
        ResumeError, match=rf"{name} is not what this version writes: .*(evaluations|assessments)"
    ) as caught:
        read(tmp_path / "run")
    assert "new run" in caught.value.hint
