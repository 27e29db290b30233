"""Alembic's entry: runs the migrations on the connection it is handed."""

from alembic import context

from parley.storage import tables

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=tables.columns.metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    transactional_ddl=False,
)
context.run_migrations()
