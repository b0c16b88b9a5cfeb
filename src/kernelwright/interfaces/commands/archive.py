"""`kernelwright archive list|show`: what the ledger knows."""

from __future__ import annotations

from typing import Any

from kernelwright.archive.ledger import Archive
from kernelwright.archive.records import LedgerAttempt, RunSummary
from kernelwright.core.errors import ExitCode, UsageError
from kernelwright.interfaces.output import Output, finite
from kernelwright.interfaces.wording import aligned, change_words, one_line, outcome_words, speed_keys, speed_words
from kernelwright.judge.evaluation import Passed
from kernelwright.platforms.candidates import Candidate

_SHORTEST = 4
_ALL = 1_000_000


def list_runs(where: str | None, task: str | None, limit: int, output: Output) -> ExitCode:
    """Print the newest runs."""
    with Archive.open(where) as archive:
        runs = archive.runs(limit=limit if task is None else _ALL)
        location = archive.location
    if task is not None:
        runs = [r for r in runs if r.task_name == task or r.task.startswith(task)][:limit]
    if output.as_json:
        output.answer({"archive": location, "runs": [r.model_dump(mode="json") for r in runs]})
        return ExitCode.OK
    if not runs:
        output.say(f"no runs in {location}")
        return ExitCode.OK
    rows = [["run", "task", "outcome", "speedup", "evaluations"]]
    rows += [
        [r.run, one_line(r.task_name, 24), _outcome(r), f"{r.speedup:.2f}x" if r.speedup else "", str(r.evaluations)]
        for r in runs
    ]
    for line in aligned(rows, right=frozenset({3, 4})):
        output.say(line)
    return ExitCode.OK


def show(where: str | None, identity: str, output: Output) -> ExitCode:
    """Print a run with its attempts, or a candidate."""
    if len(identity) < _SHORTEST:
        raise UsageError(f"{identity!r} is too short", hint=f"give at least {_SHORTEST} characters of an id")
    with Archive.open(where) as archive:
        runs = [r for r in archive.runs(limit=_ALL) if r.run.startswith(identity)]
        if len(runs) == 1:
            _show_run(archive, runs[0], output)
            return ExitCode.OK
        if len(runs) > 1:
            raise UsageError(f"{len(runs)} runs begin with {identity!r}", hint="give more of the id")
        candidate = _candidate(archive, identity)
        if candidate is None:
            raise UsageError(
                f"neither a run nor a candidate in {archive.location} begins with {identity!r}",
                hint="see kernelwright archive list",
            )
        _show_candidate(archive, candidate, output)
    return ExitCode.OK


def _candidate(archive: Archive, identity: str) -> Candidate | None:
    exact = archive.candidate(identity)
    if exact is not None:
        return exact
    known = {a.candidate.id: a.candidate for r in archive.runs(limit=_ALL) for a in archive.attempts(r.run)}
    fitting = [c for i, c in known.items() if i.startswith(identity)]
    if len(fitting) > 1:
        raise UsageError(f"{len(fitting)} candidates begin with {identity!r}", hint="give more of the id")
    return fitting[0] if fitting else None


def _show_run(archive: Archive, run: RunSummary, output: Output) -> None:
    attempts = archive.attempts(run.run)
    if output.as_json:
        keys = [_attempt_keys(a) for a in attempts]
        output.answer({**run.model_dump(mode="json"), "result": archive.result(run.run), "attempts": keys})
        return
    output.say(f"run {run.run}: {one_line(run.task_name)} on {run.device_name}, {_outcome(run)}")
    output.say(f"  {run.folder}")
    output.say()
    if not attempts:
        return
    rows = [["#", "candidate", "outcome", "speedup", "from", "what it tries"]]
    for a in attempts:
        speed = a.evaluation.speed if isinstance(a.evaluation, Passed) else None
        rows.append(
            [
                str(a.index),
                a.candidate.id[:8],
                one_line(outcome_words(a.evaluation), 16),
                f"{speed.speedup:.2f}x" if speed else "",
                one_line(a.candidate.origin.proposer, 9),
                one_line(change_words(a.candidate), 28),
            ]
        )
    for line in aligned(rows, right=frozenset({0, 3})):
        output.say(line)


def _show_candidate(archive: Archive, candidate: Candidate, output: Output) -> None:
    verdicts = archive.evaluations(candidate.id)
    lineage = archive.lineage(candidate.id)
    if output.as_json:
        output.answer(
            {
                "candidate": candidate.model_dump(mode="json"),
                "id": candidate.id,
                "evaluations": [v.model_dump(mode="json") for v in verdicts],
                "lineage": [entry.model_dump(mode="json") for entry in lineage],
            }
        )
        return
    output.say(f"candidate {candidate.id}")
    output.say(f"  {candidate.language}, from {candidate.origin.proposer}: {one_line(candidate.origin.plan)}")
    for verdict in verdicts:
        speed = verdict.speed if isinstance(verdict, Passed) else None
        output.say(f"  {outcome_words(verdict)}{f', {speed_words(speed)}' if speed else ''}")
    for entry in lineage[1:]:
        output.say(
            f"  {'  ' * entry.generation}from {entry.candidate[:8]} ({entry.proposer} {entry.operator}, {entry.outcome})"
        )
    for name, text in candidate.sources.items():
        output.say()
        output.say(f"// {name}")
        output.say(text)


def _attempt_keys(attempt: LedgerAttempt) -> dict[str, Any]:
    verdict = attempt.evaluation
    return {
        "index": attempt.index,
        "candidate": attempt.candidate.id,
        "proposer": attempt.candidate.origin.proposer,
        "operator": attempt.candidate.origin.operator,
        "parents": list(attempt.candidate.origin.parents),
        "parameters": attempt.candidate.parameters,
        "outcome": verdict.outcome,
        **speed_keys(verdict.speed if isinstance(verdict, Passed) else None),
        "elapsed_seconds": finite(attempt.elapsed_seconds),
    }


def _outcome(run: RunSummary) -> str:
    return (run.outcome or "not finished").replace("_", " ")
