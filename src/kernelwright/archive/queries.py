"""What people and programs ask of the ledger; plain functions over a reading connection."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from kernelwright.archive.records import (
    LedgerAttempt,
    LedgerFinalist,
    LedgerModelCall,
    LineageEntry,
    RunSummary,
)
from kernelwright.archive.schema import ATTEMPTS, CANDIDATES, DEVICES, FINALISTS, MODEL_CALLS, PARENTS, RUNS, TASKS
from kernelwright.judge.evaluation import EVALUATION, Evaluation
from kernelwright.platforms.candidates import Candidate, Origin


@dataclass(frozen=True)
class BestRow:
    """Where the best kernel is, and how it was judged."""

    run: str
    artifact: str
    evaluation: Evaluation
    remeasured: bool


def _run_query() -> Select[Any]:
    made = select(func.count()).where(ATTEMPTS.c.run == RUNS.c.id).scalar_subquery()
    return (
        select(RUNS, TASKS.c.name.label("task_name"), DEVICES.c.name.label("device_name"), made.label("evaluations"))
        .join(TASKS, TASKS.c.id == RUNS.c.task)
        .join(DEVICES, DEVICES.c.id == RUNS.c.device)
    )


def _summary(row: Row[Any]) -> RunSummary:
    return RunSummary(
        run=row.id,
        task=row.task,
        task_name=row.task_name,
        device=row.device,
        device_name=row.device_name,
        preset=row.preset,
        seed=int(row.seed),
        folder=row.folder,
        started_at=row.started_at,
        finished_at=row.finished_at,
        outcome=row.outcome,
        stop_reason=row.stop_reason,
        best=row.best,
        speedup=row.speedup,
        evaluations=row.evaluations,
    )


def runs(connection: Connection, *, task: str | None, device: str | None, limit: int) -> list[RunSummary]:
    """Runs, newest first."""
    query = _run_query().order_by(RUNS.c.started_at.desc(), RUNS.c.id.desc()).limit(limit)
    if task is not None:
        query = query.where(RUNS.c.task == task)
    if device is not None:
        query = query.where(RUNS.c.device == device)
    return [_summary(row) for row in connection.execute(query)]


def run(connection: Connection, run_id: str) -> RunSummary | None:
    """One run by id."""
    row = connection.execute(_run_query().where(RUNS.c.id == run_id)).first()
    return None if row is None else _summary(row)


def attempt_rows(connection: Connection, run_id: str) -> list[Row[Any]]:
    """Rows of a run's attempts in order, each with the artifact of its candidate."""
    query = (
        select(ATTEMPTS, CANDIDATES.c.artifact)
        .join(CANDIDATES, CANDIDATES.c.id == ATTEMPTS.c.candidate)
        .where(ATTEMPTS.c.run == run_id)
        .order_by(ATTEMPTS.c.index)
    )
    return list(connection.execute(query))


def attempt(row: Row[Any], candidate: Candidate) -> LedgerAttempt:
    """The record of a row. Sources are shared between runs; origin and parameters are this attempt's own."""
    columns = row._mapping
    own = candidate.replace(
        origin=Origin.from_json(columns["origin"]), parameters=dict(json.loads(columns["parameters"]))
    )
    return LedgerAttempt(
        run=columns["run"],
        index=columns["index"],
        step=columns["step"],
        elapsed_seconds=columns["elapsed_seconds"],
        candidate=own,
        evaluation=EVALUATION.validate_json(columns["evaluation"]),
    )


def finalists(connection: Connection, run_id: str) -> list[LedgerFinalist]:
    """What was measured again, by rank."""
    query = select(FINALISTS).where(FINALISTS.c.run == run_id).order_by(FINALISTS.c.rank)
    return [
        LedgerFinalist(
            run=row.run,
            rank=row.rank,
            candidate=row.candidate,
            elapsed_seconds=row.elapsed_seconds,
            evaluation=EVALUATION.validate_json(row.evaluation),
        )
        for row in connection.execute(query)
    ]


def model_calls(connection: Connection, run_id: str) -> list[LedgerModelCall]:
    """Calls in order."""
    query = select(MODEL_CALLS).where(MODEL_CALLS.c.run == run_id).order_by(MODEL_CALLS.c.index)
    return [
        LedgerModelCall.model_validate({**row._mapping, "record": json.loads(row._mapping["record"])})
        for row in connection.execute(query)
    ]


def evaluations(connection: Connection, candidate: str) -> list[Evaluation]:
    """Every verdict on a candidate, oldest run first; a run's finalist follows its attempts."""
    found: list[tuple[str, int, str]] = []
    for order, table in enumerate((ATTEMPTS, FINALISTS)):
        query = (
            select(RUNS.c.started_at, table.c.evaluation)
            .join(RUNS, RUNS.c.id == table.c.run)
            .where(table.c.candidate == candidate)
        )
        found += [(row.started_at, order, row.evaluation) for row in connection.execute(query)]
    return [EVALUATION.validate_json(text) for _, _, text in sorted(found)]


def best(connection: Connection, task: str, device: str) -> BestRow | None:
    """The attempt or finalist with the highest lower end of its speedup's interval."""
    again = _fastest(connection, task, device, remeasured=True)
    once = _fastest(connection, task, device, remeasured=False)
    rows = [row for row in (again, once) if row is not None]
    if not rows:
        return None
    row = max(rows, key=lambda r: float(r.speedup_low))
    return BestRow(
        run=row.run,
        artifact=row.artifact,
        evaluation=EVALUATION.validate_json(row.evaluation),
        remeasured=row is again,
    )


def _fastest(connection: Connection, task: str, device: str, *, remeasured: bool) -> Row[Any] | None:
    table = FINALISTS if remeasured else ATTEMPTS
    query: Select[Any] = (
        select(table.c.run, table.c.evaluation, table.c.speedup_low, CANDIDATES.c.artifact)
        .join(RUNS, RUNS.c.id == table.c.run)
        .join(CANDIDATES, CANDIDATES.c.id == table.c.candidate)
        .where(RUNS.c.task == task, RUNS.c.device == device)
        .where(table.c.outcome == "passed", table.c.speedup_low.is_not(None))
        .order_by(table.c.speedup_low.desc(), table.c.run)
        .limit(1)
    )
    if not remeasured:
        again = (
            select(FINALISTS.c.candidate)
            .join(RUNS, RUNS.c.id == FINALISTS.c.run)
            .where(RUNS.c.task == task, RUNS.c.device == device)
        )
        query = query.where(table.c.candidate.not_in(again))
    return connection.execute(query).first()


def lineage(connection: Connection, candidate: str) -> list[LineageEntry]:
    """Breadth first from the candidate to its ancestors; each appears once, at its nearest generation."""
    entries: list[LineageEntry] = []
    seen = {candidate}
    generation, wanted = 0, [candidate]
    while wanted:
        parents: list[str] = []
        for identity in wanted:
            entry = _ancestor(connection, identity, generation)
            if entry is not None:
                entries.append(entry)
                parents += [p for p in entry.parents if p not in seen]
                seen.update(entry.parents)
        generation, wanted = generation + 1, parents
    return entries


def _ancestor(connection: Connection, candidate: str, generation: int) -> LineageEntry | None:
    first = (
        select(ATTEMPTS)
        .join(RUNS, RUNS.c.id == ATTEMPTS.c.run)
        .where(ATTEMPTS.c.candidate == candidate)
        .order_by(RUNS.c.started_at, ATTEMPTS.c.index)
        .limit(1)
    )
    row = connection.execute(first).first()
    if row is None:
        return None
    columns = row._mapping
    parents = (
        select(PARENTS.c.parent)
        .where(PARENTS.c.run == columns["run"], PARENTS.c.index == columns["index"])
        .order_by(PARENTS.c.position)
    )
    return LineageEntry(
        candidate=candidate,
        parents=tuple(connection.execute(parents).scalars()),
        proposer=columns["proposer"],
        operator=columns["operator"],
        outcome=columns["outcome"],
        speedup=columns["speedup"],
        generation=generation,
    )


def failing_builds(connection: Connection, task: str, device: str) -> frozenset[str]:
    """Ids of candidates whose build failed and never succeeded on this device."""
    here = (
        select(ATTEMPTS.c.candidate, ATTEMPTS.c.outcome)
        .join(RUNS, RUNS.c.id == ATTEMPTS.c.run)
        .where(RUNS.c.task == task, RUNS.c.device == device)
    ).subquery()
    failed = select(here.c.candidate).where(here.c.outcome == "build_failed")
    built = select(here.c.candidate).where(here.c.outcome.not_in(("build_failed", "judge_error", "invalid")))
    return frozenset(connection.execute(failed.except_(built)).scalars())
