"""The first schema. Spelt out, because `archive.schema` moves on and this must not."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _verdict() -> list[sa.Column[object]]:
    return [
        sa.Column("outcome", sa.String(32), nullable=False),
        sa.Column("verdict", sa.String(32)),
        sa.Column("speedup", sa.Float),
        sa.Column("speedup_low", sa.Float),
        sa.Column("speedup_high", sa.Float),
        sa.Column("roofline_fraction", sa.Float),
        sa.Column("evaluation", sa.Text, nullable=False),
    ]


def _run_key() -> sa.Column[object]:
    return sa.Column("run", sa.String(64), sa.ForeignKey("runs.id"), primary_key=True)


def upgrade() -> None:
    """Make every table."""
    _subjects()
    _runs()
    _attempts()
    _measured_again()


def _subjects() -> None:
    op.create_table(
        "devices",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_table(
        "tasks",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_table(
        "candidates",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("language", sa.String(32), nullable=False),
        sa.Column("artifact", sa.String(64), nullable=False),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("task", sa.String(64), sa.ForeignKey("tasks.id"), nullable=False),
        sa.Column("device", sa.String(64), sa.ForeignKey("devices.id"), nullable=False),
        sa.Column("preset", sa.Text, nullable=False),
        sa.Column("seed", sa.Text, nullable=False),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("versions", sa.Text, nullable=False),
        sa.Column("started_at", sa.String(40), nullable=False),
        sa.Column("finished_at", sa.String(40)),
        sa.Column("outcome", sa.String(32)),
        sa.Column("stop_reason", sa.String(32)),
        sa.Column("best", sa.String(64)),
        sa.Column("speedup", sa.Float),
        sa.Column("result", sa.Text),
    )
    op.create_index("runs_by_task", "runs", ["task", "device"])


def _attempts() -> None:
    op.create_table(
        "attempts",
        _run_key(),
        sa.Column("index", sa.Integer, primary_key=True),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("elapsed_seconds", sa.Float, nullable=False),
        sa.Column("candidate", sa.String(64), sa.ForeignKey("candidates.id"), nullable=False),
        sa.Column("proposer", sa.Text, nullable=False),
        sa.Column("operator", sa.Text, nullable=False),
        sa.Column("template", sa.Text, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("parameters", sa.Text, nullable=False),
        *_verdict(),
    )
    op.create_index("attempts_by_candidate", "attempts", ["candidate"])
    op.create_table(
        "parents",
        _run_key(),
        sa.Column("index", sa.Integer, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("parent", sa.String(64), nullable=False),
    )


def _measured_again() -> None:
    op.create_table(
        "finalists",
        _run_key(),
        sa.Column("rank", sa.Integer, primary_key=True),
        sa.Column("candidate", sa.String(64), sa.ForeignKey("candidates.id"), nullable=False),
        sa.Column("elapsed_seconds", sa.Float, nullable=False),
        *_verdict(),
    )
    op.create_table(
        "model_calls",
        _run_key(),
        sa.Column("index", sa.Integer, primary_key=True),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("prompt_hash", sa.String(64), nullable=False),
        sa.Column("input_tokens", sa.Integer, nullable=False),
        sa.Column("output_tokens", sa.Integer, nullable=False),
        sa.Column("cost_usd", sa.Float),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("candidate", sa.String(64)),
        sa.Column("record", sa.Text, nullable=False),
    )
