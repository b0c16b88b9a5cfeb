"""Opening the ledger's database: SQLite with several writers, or PostgreSQL through psycopg 3."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, InterfaceError, NoSuchModuleError, SQLAlchemyError

from kernelwright.core.errors import EnvironmentProblem, UsageError

BUSY_SECONDS = 60
"""How long a writer waits for another one; a transaction of ours takes milliseconds."""


def database_url(where: str | Path) -> URL:
    """The address of a ledger: a path means a SQLite file, `postgresql://…` a server.

    Raises:
        UsageError: it is neither.
    """
    text = str(where)
    if "://" not in text:
        return URL.create("sqlite", database=str(Path(text).expanduser().absolute()))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # The text may hold a password, and the driver's message the text: neither is repeated.
        scheme = text.partition("://")[0]
        raise UsageError(
            f"not a database address: {scheme}://…", hint="a file, or postgresql://user:password@host:port/name"
        ) from None
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite":
        return url
    raise UsageError(
        f"expected a SQLite file or a PostgreSQL address, got {url.drivername}", hint="postgresql://host/name"
    )


def make_engine(url: URL) -> Engine:
    """An engine whose transactions lock before they read, so that read-then-write is safe between processes.

    Raises:
        EnvironmentProblem: the PostgreSQL driver is not installed, or the folder cannot be made.
    """
    if url.drivername == "sqlite":
        return _sqlite(url)
    try:
        return create_engine(url, pool_pre_ping=True)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise EnvironmentProblem(
            "a PostgreSQL ledger needs psycopg", hint="pip install 'kernelwright[postgres]'"
        ) from error


def _sqlite(url: URL) -> Engine:
    if url.database and url.database != ":memory:":
        folder = Path(url.database).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentProblem(
                f"cannot make the archive's folder {folder}: {error.strerror or error}",
                hint="set KERNELWRIGHT_HOME to a folder that you can write to",
            ) from error
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def _prepare(raw: Any, _record: Any) -> None:
        # The driver's own transaction control would begin lazily and deferred; BEGIN is issued below instead.
        raw.isolation_level = None
        cursor = raw.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
        _switch_to_wal(cursor)
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get("reading", False)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def _switch_to_wal(cursor: Any) -> None:
    """The busy timeout does not cover the switch of a new file, which two first users may try at once."""
    import sqlite3

    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads: it neither waits for writers nor blocks them."""
    with translated(engine.url), engine.connect().execution_options(reading=True) as connection, connection.begin():
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that holds the write lock from its start; rolled back when anything is raised."""
    with translated(engine.url), engine.begin() as connection:
        yield connection


_HINTS = {
    "disk is full": "free some space; the run's folder holds what was measured, and --resume continues it",
    "disk i/o": "check the disk; the run's folder holds what was measured, and --resume continues it",
    "readonly": "set KERNELWRIGHT_HOME to a folder that you can write to",
    "unable to open": "set KERNELWRIGHT_HOME to a folder that you can write to",
    "locked": "another process has held the archive for very long; try again",
    "malformed": "move the file away and rebuild the archive from the run folders",
    "not a database": "move the file away and rebuild the archive from the run folders",
}


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Type what escapes from the database as EnvironmentProblem, with the next step."""
    try:
        yield
    except (DatabaseError, InterfaceError) as error:
        text = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
        text = text.replace(str(url.password), "***") if url.password else text
        hint = next((hint for word, hint in _HINTS.items() if word in text.lower()), "check that the database is up")
        raise EnvironmentProblem(f"the archive {_shown(url)}: {text}", hint=hint) from error
    except SQLAlchemyError as error:
        raise EnvironmentProblem(f"the archive {_shown(url)}: {error}", hint="check that the database is up") from error


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True) if url.drivername != "sqlite" else str(url.database)
