"""`Archive`: the index of everything that was ever tried, over all runs, tasks and devices.

A run's folder (`archive.run_folder`) is the truth; this can be rebuilt from folders (`archive.rebuild`). Every insert is
idempotent, so that a resumed run or a rebuild may repeat what is already there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Engine, Table, select, update
from sqlalchemy.dialects import postgresql, sqlite

from kernelwright.archive import queries
from kernelwright.archive.artifacts import ArtifactStore
from kernelwright.archive.connecting import database_url, make_engine, reading, writing
from kernelwright.archive.migrations import current_revision, upgrade
from kernelwright.archive.records import (
    Kernel,
    LedgerAttempt,
    LedgerFinalist,
    LedgerModelCall,
    LineageEntry,
    RunHeader,
    RunSummary,
)
from kernelwright.archive.schema import (
    ATTEMPTS,
    CANDIDATES,
    DEVICES,
    FINALISTS,
    HEAD,
    MODEL_CALLS,
    PARENTS,
    RUNS,
    TASKS,
)
from kernelwright.core.paths import data_dir
from kernelwright.judge.evaluation import Evaluation, Passed
from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.device import Device
from kernelwright.tasks.model import Task

ARCHIVE_VARIABLE = "KERNELWRIGHT_ARCHIVE"


class Archive:
    """A ledger (SQLite file or PostgreSQL) and its artifacts. Several processes may write one archive at once."""

    def __init__(self, engine: Engine, artifacts: ArtifactStore) -> None:
        self._engine = engine
        self.artifacts = artifacts

    @classmethod
    def open(cls, url: str | Path | None = None, *, artifacts: Path | None = None) -> Archive:
        """Open an archive and bring its schema up to date; a new one is made where there is none.

        Args:
            url: A SQLite file or `postgresql://…`; None means `KERNELWRIGHT_ARCHIVE`, else the user's data folder.
            artifacts: Folder of the sources; None means `artifacts` beside a SQLite file, else in the data folder.
                Machines that share a PostgreSQL ledger share this folder too.

        Raises:
            UsageError: the address is none.
            SchemaTooNew: a newer version wrote it.
            EnvironmentProblem: it cannot be opened or written.
        """
        where = url or os.environ.get(ARCHIVE_VARIABLE) or data_dir() / "archive.sqlite"
        address = database_url(where)
        if artifacts is None:
            on_disk = address.drivername == "sqlite" and address.database
            artifacts = Path(str(address.database)).parent / "artifacts" if on_disk else data_dir() / "artifacts"
        engine = make_engine(address)
        try:
            _migrate(engine)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, ArtifactStore(artifacts))

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def location(self) -> str:
        """Where the ledger is, without a password."""
        return self._engine.url.render_as_string(hide_password=True)

    def record_device(self, device: Device) -> str:
        """Keep a device; returns its id. The newest measurement of its ceilings is kept."""
        row = {"id": device.id, "kind": device.kind, "name": device.name, "record": device.to_json()}
        with writing(self._engine) as connection:
            _insert(connection, DEVICES, [row])
            if device.ceilings is not None:
                connection.execute(update(DEVICES).where(DEVICES.c.id == device.id).values(record=row["record"]))
        return device.id

    def record_task(self, task: Task) -> str:
        """Keep a task; returns its id."""
        with writing(self._engine) as connection:
            _insert(connection, TASKS, [{"id": task.id, "name": task.name, "record": task.to_json()}])
        return task.id

    def record_run(self, header: RunHeader, folder: Path) -> str:
        """Keep a run with its task and device; returns its id. A known run gets its new folder."""
        self.record_device(header.device)
        self.record_task(header.task)
        row = {
            "id": header.run,
            "task": header.task.id,
            "device": header.device.id,
            "preset": str(header.config.get("preset", "")),
            "seed": str(header.config.get("seed", 0)),
            "folder": str(folder.absolute()),
            "config": json.dumps(header.config),
            "versions": json.dumps(header.versions),
            "started_at": header.started_at,
        }
        with writing(self._engine) as connection:
            _insert(connection, RUNS, [row])
            connection.execute(update(RUNS).where(RUNS.c.id == header.run).values(folder=row["folder"]))
        return header.run

    def finish_run(self, run: str, result: dict[str, Any], *, finished_at: str, speedup: float | None) -> None:
        """Keep what a run came to.

        Args:
            run: Id of the run.
            result: `agents.run.RunResult` as JSON values.
            finished_at: ISO 8601, UTC.
            speedup: Of the best candidate, measured again where there was a finalist.
        """
        values = {
            "finished_at": finished_at,
            "outcome": result.get("outcome"),
            "stop_reason": result.get("stop_reason"),
            "best": result.get("best"),
            "speedup": speedup,
            "result": json.dumps(result),
        }
        with writing(self._engine) as connection:
            connection.execute(update(RUNS).where(RUNS.c.id == run).values(values))

    def record_attempt(self, attempt: LedgerAttempt) -> None:
        """Keep a judged candidate."""
        self.record_attempts([attempt])

    def record_attempts(self, attempts: Iterable[LedgerAttempt]) -> None:
        """Keep judged candidates, in one transaction. Sources go to disk first: no row ever lacks them."""
        attempts = list(attempts)
        if not attempts:
            return
        candidates = [
            {"id": a.candidate.id, "language": a.candidate.language, "artifact": self._keep(a.candidate)}
            for a in attempts
        ]
        parents = [
            {"run": a.run, "index": a.index, "position": position, "parent": parent}
            for a in attempts
            for position, parent in enumerate(a.candidate.origin.parents)
        ]
        with writing(self._engine) as connection:
            _insert(connection, CANDIDATES, candidates)
            _insert(connection, ATTEMPTS, [_attempt_row(a) for a in attempts])
            _insert(connection, PARENTS, parents)

    def record_finalist(self, finalist: LedgerFinalist) -> None:
        """Keep the second measurement of a candidate that has an attempt."""
        row = {
            "run": finalist.run,
            "rank": finalist.rank,
            "candidate": finalist.candidate,
            "elapsed_seconds": finalist.elapsed_seconds,
            **_verdict_row(finalist.evaluation),
        }
        with writing(self._engine) as connection:
            _insert(connection, FINALISTS, [row])

    def record_model_call(self, call: LedgerModelCall) -> None:
        """Keep what a call cost."""
        row = {**call.model_dump(exclude={"schema_version", "record"}), "record": json.dumps(call.record)}
        with writing(self._engine) as connection:
            _insert(connection, MODEL_CALLS, [row])

    def runs(self, *, task: str | None = None, device: str | None = None, limit: int = 1000) -> list[RunSummary]:
        """Runs, newest first, perhaps of one task or device only."""
        with reading(self._engine) as connection:
            return queries.runs(connection, task=task, device=device, limit=limit)

    def run(self, run: str) -> RunSummary | None:
        """One run; None where it is unknown."""
        with reading(self._engine) as connection:
            return queries.run(connection, run)

    def result(self, run: str) -> dict[str, Any] | None:
        """What the run came to, as it was printed; None while it works or where it is unknown."""
        with reading(self._engine) as connection:
            found = connection.execute(select(RUNS.c.result).where(RUNS.c.id == run)).scalar()
        return None if found is None else dict(json.loads(found))

    def task(self, task: str) -> Task | None:
        """A task by id."""
        with reading(self._engine) as connection:
            found = connection.execute(select(TASKS.c.record).where(TASKS.c.id == task)).scalar()
        return None if found is None else Task.from_json(found)

    def device(self, device: str) -> Device | None:
        """A device by id."""
        with reading(self._engine) as connection:
            found = connection.execute(select(DEVICES.c.record).where(DEVICES.c.id == device)).scalar()
        return None if found is None else Device.from_json(found)

    def attempts(self, run: str) -> list[LedgerAttempt]:
        """All attempts of a run in order, with their sources."""
        with reading(self._engine) as connection:
            rows = queries.attempt_rows(connection, run)
        return [queries.attempt(row, self._load(row.artifact)) for row in rows]

    def finalists(self, run: str) -> list[LedgerFinalist]:
        """What was measured again at the end of a run, by rank."""
        with reading(self._engine) as connection:
            return queries.finalists(connection, run)

    def model_calls(self, run: str) -> list[LedgerModelCall]:
        """The calls of language models in a run, in order."""
        with reading(self._engine) as connection:
            return queries.model_calls(connection, run)

    def candidate(self, candidate: str) -> Candidate | None:
        """A candidate by id, with the origin it had when it was first judged; None where it is unknown."""
        with reading(self._engine) as connection:
            found = connection.execute(select(CANDIDATES.c.artifact).where(CANDIDATES.c.id == candidate)).scalar()
        return None if found is None else self._load(found)

    def evaluations(self, candidate: str) -> list[Evaluation]:
        """Every verdict on a candidate, oldest run first, finalists included."""
        with reading(self._engine) as connection:
            return queries.evaluations(connection, candidate)

    def best(self, task: str, device: str) -> Kernel | None:
        """The fastest right kernel known for a task on a device, by the lower end of its interval.

        A candidate that was measured again counts with that measurement only.
        """
        with reading(self._engine) as connection:
            found = queries.best(connection, task, device)
        if found is None:
            return None
        candidate = self._load(found.artifact)
        return Kernel(run=found.run, candidate=candidate, evaluation=found.evaluation, remeasured=found.remeasured)

    def lineage(self, candidate: str) -> list[LineageEntry]:
        """The candidate and its known ancestors, nearest first."""
        with reading(self._engine) as connection:
            return queries.lineage(connection, candidate)

    def failing_builds(self, task: str, device: str) -> frozenset[str]:
        """Ids of the candidates that this device's compilers refused for a task, in any run."""
        with reading(self._engine) as connection:
            return queries.failing_builds(connection, task, device)

    def _keep(self, candidate: Candidate) -> str:
        return self.artifacts.put(candidate.to_json().encode())

    def _load(self, artifact: str) -> Candidate:
        return Candidate.from_json(self.artifacts.get(artifact))


def _migrate(engine: Engine) -> None:
    with reading(engine) as connection:
        at_head = current_revision(connection) == HEAD
    if not at_head:
        with writing(engine) as connection:
            upgrade(connection)


def _insert(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert what is not there yet, by primary key."""
    if not rows:
        return
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    connection.execute(dialect.insert(table).on_conflict_do_nothing(), list(rows))


def _attempt_row(attempt: LedgerAttempt) -> dict[str, Any]:
    origin = attempt.candidate.origin
    return {
        "run": attempt.run,
        "index": attempt.index,
        "step": attempt.step,
        "elapsed_seconds": attempt.elapsed_seconds,
        "candidate": attempt.candidate.id,
        "proposer": origin.proposer,
        "operator": origin.operator,
        "template": origin.template,
        "origin": origin.to_json(),
        "parameters": json.dumps(attempt.candidate.parameters),
        **_verdict_row(attempt.evaluation),
    }


def _verdict_row(evaluation: Evaluation) -> dict[str, Any]:
    speed = evaluation.speed if isinstance(evaluation, Passed) else None
    return {
        "outcome": evaluation.outcome,
        "verdict": speed.verdict if speed else None,
        "speedup": speed.speedup if speed else None,
        "speedup_low": speed.speedup_ci[0] if speed else None,
        "speedup_high": speed.speedup_ci[1] if speed else None,
        "roofline_fraction": speed.roofline_fraction if speed else None,
        "evaluation": evaluation.to_json(),
    }
