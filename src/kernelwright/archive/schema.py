"""The tables of the ledger. A change here needs a migration beside it (`archive.migrations`)."""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text

HEAD = "0001"
"""The migration that makes this schema."""

METADATA = MetaData()

DEVICES = Table(
    "devices",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("name", Text, nullable=False),
    Column("record", Text, nullable=False),
)
TASKS = Table(
    "tasks",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("record", Text, nullable=False),
)
RUNS = Table(
    "runs",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("task", String(64), ForeignKey("tasks.id"), nullable=False),
    Column("device", String(64), ForeignKey("devices.id"), nullable=False),
    Column("preset", Text, nullable=False),
    Column("seed", Text, nullable=False),
    Column("folder", Text, nullable=False),
    Column("config", Text, nullable=False),
    Column("versions", Text, nullable=False),
    Column("started_at", String(40), nullable=False),
    Column("finished_at", String(40)),
    Column("outcome", String(32)),
    Column("stop_reason", String(32)),
    Column("best", String(64)),
    Column("speedup", Float),
    Column("result", Text),
    Index("runs_by_task", "task", "device"),
)
CANDIDATES = Table(
    "candidates",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("language", String(32), nullable=False),
    Column("artifact", String(64), nullable=False),
)
_VERDICT = ("outcome", "verdict", "speedup", "speedup_low", "speedup_high", "roofline_fraction")


def _verdict_columns() -> list[Column[object]]:
    columns: list[Column[object]] = [Column("outcome", String(32), nullable=False), Column("verdict", String(32))]
    columns += [Column(name, Float) for name in _VERDICT[2:]]
    return [*columns, Column("evaluation", Text, nullable=False)]


ATTEMPTS = Table(
    "attempts",
    METADATA,
    Column("run", String(64), ForeignKey("runs.id"), primary_key=True),
    Column("index", Integer, primary_key=True),
    Column("step", Integer, nullable=False),
    Column("elapsed_seconds", Float, nullable=False),
    Column("candidate", String(64), ForeignKey("candidates.id"), nullable=False),
    Column("proposer", Text, nullable=False),
    Column("operator", Text, nullable=False),
    Column("template", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("parameters", Text, nullable=False),
    *_verdict_columns(),
    Index("attempts_by_candidate", "candidate"),
)
PARENTS = Table(
    "parents",
    METADATA,
    Column("run", String(64), ForeignKey("runs.id"), primary_key=True),
    Column("index", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("parent", String(64), nullable=False),
)
FINALISTS = Table(
    "finalists",
    METADATA,
    Column("run", String(64), ForeignKey("runs.id"), primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("candidate", String(64), ForeignKey("candidates.id"), nullable=False),
    Column("elapsed_seconds", Float, nullable=False),
    *_verdict_columns(),
)
MODEL_CALLS = Table(
    "model_calls",
    METADATA,
    Column("run", String(64), ForeignKey("runs.id"), primary_key=True),
    Column("index", Integer, primary_key=True),
    Column("step", Integer, nullable=False),
    Column("model", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("prompt_hash", String(64), nullable=False),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("cost_usd", Float),
    Column("seconds", Float, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("candidate", String(64)),
    Column("record", Text, nullable=False),
)
