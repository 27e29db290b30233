"""Bringing a store to this version's schema."""

import importlib.resources
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from parley.storage.engine import ReadTx, Store, WriteTx
from parley.storage.tenancy import guard_tables

# Two processes that start together on one PostgreSQL must not both migrate.
MIGRATION_LOCK = 7_301_844

# Written out of the migrations by ``python -m tests.storage.sqlite_schema``.
FIRST_SQLITE = importlib.resources.files("parley.storage") / "migrations" / "first_sqlite.sql"


async def migrate(store: Store) -> None:
    """Bring the store to the newest schema; does nothing, and imports nothing more, where it is there."""
    await migrate_to(store, head_revision())


async def migrate_to(store: Store, wanted: str) -> None:
    """As ``migrate``, to a known revision that is not older than the store's."""
    await store.across.write(lambda tx: _migrate(tx, wanted))


def head_revision() -> str:
    """The newest schema revision this code knows."""
    return max(known_revisions())


def known_revisions() -> frozenset[str]:
    """Every schema revision this code knows: the migrations are numbered in their file names."""
    folder = importlib.resources.files("parley.storage") / "migrations" / "versions"
    return frozenset(entry.name.partition("_")[0] for entry in folder.iterdir() if entry.name.endswith(".py"))


def revision(tx: ReadTx) -> str | None:
    """The schema revision of a store; None for one that holds nothing yet."""
    if not inspect(tx).has_table("alembic_version"):
        return None
    return tx.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _migrate(tx: WriteTx, wanted: str) -> None:
    connection: Connection = tx
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
    if connection.dialect.name == "sqlite" and wanted == head_revision() and revision(tx) is None:
        _begin(tx)
    if revision(tx) != wanted:
        upgrade(tx, wanted)
    if connection.dialect.name == "postgresql":
        guard_tables(connection)


def _begin(tx: WriteTx) -> None:
    """Give a new SQLite store at once what the migrations would give it: a first start need not load Alembic."""
    for statement in FIRST_SQLITE.read_text(encoding="utf-8").split(";\n\n"):
        if statement:
            tx.exec_driver_sql(statement)


def upgrade(tx: WriteTx, wanted: str) -> None:
    """Run the migrations that the store has not had, up to this one."""
    # Alembic loads slowly: only where there is something to migrate.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    with importlib.resources.as_file(importlib.resources.files("parley.storage") / "migrations") as folder:
        config = Config()
        config.set_main_option("script_location", str(Path(folder)))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = tx
        command.upgrade(config, wanted)
