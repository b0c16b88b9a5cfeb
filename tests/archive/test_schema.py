"""Migrations and what can be wrong with a database file."""

from __future__ import annotations

import sqlite3

import pytest
from ledger_records import TASK
from sqlalchemy import inspect

from kernelwright.archive.connecting import database_url, make_engine, reading, writing
from kernelwright.archive.ledger import Archive
from kernelwright.archive.schema import HEAD, METADATA
from kernelwright.core.errors import EnvironmentProblem, SchemaTooNew, UsageError


def test_the_migrations_make_exactly_the_tables_of_the_code(ledger_url, tmp_path):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    Archive.open(ledger_url, artifacts=tmp_path).close()
    engine = make_engine(database_url(ledger_url))
    with reading(engine) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
        assert context.get_current_revision() == HEAD
        assert set(inspect(connection).get_table_names()) == {*METADATA.tables, "alembic_version"}
    engine.dispose()


def test_a_newer_ledger_is_refused_and_left_alone(ledger_url, tmp_path):
    with Archive.open(ledger_url, artifacts=tmp_path) as archive:
        archive.record_task(TASK)
    engine = make_engine(database_url(ledger_url))
    with writing(engine) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaTooNew, match="9999"):
        Archive.open(ledger_url, artifacts=tmp_path)
    with writing(engine) as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{HEAD}'")
    with Archive.open(ledger_url, artifacts=tmp_path) as archive:
        assert archive.task(TASK.id) == TASK
    engine.dispose()


@pytest.mark.parametrize(
    "address", ["postgresql://me:hunter2@host:port/name", "://me:hunter2@host", "mysql://me:hunter2@h/n"]
)
def test_an_address_that_is_none_is_refused_without_its_password(address):
    with pytest.raises(UsageError) as caught:
        database_url(address)
    assert "hunter2" not in str(caught.value)
    assert "postgresql://" in caught.value.hint
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_server_that_does_not_answer_is_named_without_the_password(tmp_path):
    pytest.importorskip("psycopg")
    with pytest.raises(EnvironmentProblem, match="localhost") as caught:
        Archive.open("postgresql://me:hunter2@localhost:1/name", artifacts=tmp_path)
    assert "hunter2" not in str(caught.value)


def test_sqlite_is_opened_for_several_writers(tmp_path):
    path = tmp_path / "a.sqlite"
    Archive.open(path).close()
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_write_takes_the_lock_before_it_reads(tmp_path):
    Archive.open(tmp_path / "a.sqlite").close()
    engine = make_engine(database_url(tmp_path / "a.sqlite"))
    with writing(engine), sqlite3.connect(tmp_path / "a.sqlite", timeout=0) as other:
        assert other.execute("SELECT count(*) FROM runs").fetchone() == (0,), "readers go on"
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
    engine.dispose()


@pytest.mark.parametrize("content", [b"this is no database at all " * 100, b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_file_that_is_no_ledger_is_named_and_left_alone(tmp_path, content):
    path = tmp_path / "a.sqlite"
    path.write_bytes(content)
    with pytest.raises(EnvironmentProblem, match=r"a\.sqlite"):
        Archive.open(path)
    assert path.read_bytes() == content


def test_an_unreachable_server_is_an_environment_problem(tmp_path):
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with pytest.raises(EnvironmentProblem) as caught:
        Archive.open(f"postgresql://someone:secret@/nothing?host={tmp_path}", artifacts=tmp_path)
    assert "secret" not in str(caught.value)
