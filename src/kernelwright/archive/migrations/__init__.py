"""Brings a ledger to the schema of this version, on open; alembic is imported only where there is work to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from kernelwright.archive.schema import HEAD
from kernelwright.core.errors import SchemaTooNew

if TYPE_CHECKING:
    from alembic.config import Config

_LOCK = 0x6B65726E
"""Key of the advisory lock under which PostgreSQL migrates."""


def current_revision(connection: Connection) -> str | None:
    """The schema revision that the database is at; None for an empty one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if revision is None else str(revision)


def upgrade(connection: Connection) -> None:
    """Apply what is missing. Call it inside a writing transaction: two processes may open a new ledger at once.

    Raises:
        SchemaTooNew: a newer version wrote this ledger.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    current = current_revision(connection)
    if current == HEAD:
        return
    from alembic import command
    from alembic.script import ScriptDirectory

    config = _config(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise SchemaTooNew(
            f"the archive has schema {current}, and this version knows up to {HEAD}",
            hint="install a newer kernelwright, or give another archive",
        )
    command.upgrade(config, "head")


def _config(connection: Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
