"""Writes ``storage/migrations/first_sqlite.sql`` out of the migrations: ``python -m tests.storage.sqlite_schema``."""

import asyncio
import tempfile
from pathlib import Path

from sqlalchemy import text

from parley.storage import ReadTx, Store, open_store
from parley.storage.schema import FIRST_SQLITE, head_revision, upgrade

_MADE = text(
    "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL "
    # The tables behind a virtual one come and go with it.
    "AND NOT EXISTS (SELECT 1 FROM sqlite_master AS other WHERE other.sql LIKE 'CREATE VIRTUAL TABLE%' "
    "AND sqlite_master.tbl_name GLOB other.name || '_*' AND sqlite_master.type = 'table') "
    "ORDER BY rowid"
)


def made(tx: ReadTx) -> list[str]:
    """The statements that make what a SQLite store holds, in order."""
    return list(tx.execute(_MADE).scalars())


async def migrated(path: Path) -> Store:
    """A new store that went through every migration."""
    store = open_store(f"sqlite:///{path}")
    await store.write(lambda tx: upgrade(tx, head_revision()))
    return store


async def _written() -> str:
    with tempfile.TemporaryDirectory() as folder:
        store = await migrated(Path(folder) / "store.db")
        statements = await store.read(made)
        await store.close()
    version = f"INSERT INTO alembic_version (version_num) VALUES ('{head_revision()}')"
    return "".join(f"{statement};\n\n" for statement in [*statements, version])


if __name__ == "__main__":
    Path(str(FIRST_SQLITE)).write_text(asyncio.run(_written()), encoding="utf-8")
