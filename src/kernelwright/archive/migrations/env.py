"""Run by alembic with the connection that `upgrade` holds."""

from alembic import context

from kernelwright.archive.schema import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, render_as_batch=True)
context.run_migrations()
