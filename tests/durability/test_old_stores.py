"""A store that older code has written opens under this code, and older code still writes beside it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import MetaData, Table, insert, inspect, select

import parley.storage
from parley.storage import Store, WriteTx, open_store
from parley.storage.schema import head_revision, migrate, revision
from tests.conftest import POSTGRES, fresh_database
from tests.contract.conftest import ORGANIZATION
from tests.durability.conftest import Site, start
from tests.stage import caller, calls, says

OLD = "0001"
EMPTY = "template0"

type Rows = Sequence[Mapping[str, Any]]


@pytest.fixture
async def old_url(site: Site, tmp_path: Path) -> AsyncIterator[str]:
    """An empty database of the same kind as the site's."""
    kind = "sqlite" if site.environment["PARLEY_DATABASE_URL"].startswith("sqlite") else "postgresql"
    folder = tmp_path / "old"
    folder.mkdir()
    async with fresh_database(kind, folder, EMPTY if POSTGRES else None) as url:
        yield url


def to_old(tx: WriteTx) -> MetaData:
    """Make the tables of the oldest schema; what they are."""
    config = Config()
    config.set_main_option("script_location", str(Path(parley.storage.__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = tx
    command.upgrade(config, OLD)
    found = MetaData()
    found.reflect(bind=tx)
    found.remove(found.tables["alembic_version"])
    return found


async def rows_of(store: Store, table: Table) -> Rows:
    """A table's rows as the driver has them, with the columns that the old schema knows."""
    return await store.read(lambda tx: [dict(row) for row in tx.execute(select(table)).mappings()])


async def fill(store: Store, tables: Sequence[Table], rows: Mapping[str, Rows]) -> None:
    """Insert the rows as old code does: without the columns it does not know."""

    def work(tx: WriteTx) -> None:
        for table in tables:
            if rows[table.name]:
                tx.execute(insert(table), [dict(row) for row in rows[table.name]])

    await store.write(work)


async def ask(site: Site) -> dict[str, Any]:
    """A turn that has paused with a question; its server is gone."""
    server = await site.serve()
    await site.furnish(server)
    question = calls("ask_user_yes_no", {"message": "Go on?"})
    await site.model.script(site.model_key, question, says("Went on."), by_step=True)
    async with caller(server.base_url, site.key, ORGANIZATION) as client:
        started = await start(site, client)
        async for event in client.stream(started["chat_id"], started["run_id"]):
            if event["type"] == "user_input_request":
                break
    assert await site.faults() == []
    return started


async def test_an_old_store_opens_with_its_paused_run_and_old_code_still_writes_beside_it(
    site: Site, old_url: str
) -> None:
    started = await ask(site)
    new, old = open_store(site.environment["PARLEY_DATABASE_URL"]).across, open_store(old_url).across
    known = await old.write(to_old)
    tables = known.sorted_tables
    rows = {table.name: await rows_of(new, table) for table in tables}
    assert {name for name in ("runs", "questions", "tool_calls", "run_events", "ledger") if rows[name]} == {
        "runs", "questions", "tool_calls", "run_events", "ledger"
    }  # fmt: skip
    await fill(old, tables, rows)
    assert await old.read(revision) == OLD
    assert head_revision() != OLD
    await new.close()
    await old.close()

    site.environment["PARLEY_DATABASE_URL"] = old_url
    server = await site.serve()
    async with caller(server.base_url, site.key, ORGANIZATION) as client:
        pending = (await client.get(f"/assistant/chat/{started['chat_id']}")).body["pending_user_input_request"]
        assert pending["message"] == "Go on?"
        body = {"request_id": pending["request_id"], "response": {"kind": "yes_no", "answer": True}, "llm": site.llm}
        resumed = await client.post(f"/assistant/chat/{started['chat_id']}/resume", body)
        assert resumed.status == 200, resumed.body
        events = await client.listen(started["chat_id"], resumed.body["run_id"])
        assert events[-1]["data"]["response"] == "Went on."
    assert await site.faults() == []


async def test_old_codes_rows_of_every_table_are_taken_by_the_newest_schema(site: Site, old_url: str) -> None:
    await ask(site)
    new, migrated = open_store(site.environment["PARLEY_DATABASE_URL"]).across, open_store(old_url).across
    try:
        known = await migrated.write(to_old)
        rows: dict[str, Rows] = {table.name: await rows_of(new, table) for table in known.sorted_tables}
        rows["workers"] = [{"id": "w", "role": "all", "version": "0", "started_at": 1, "beat_at": 1, "draining": False}]
        await migrate(migrated)
        assert await migrated.read(revision) == head_revision()
        await fill(migrated, known.sorted_tables, rows)
        columns = await migrated.read(lambda tx: {each["name"] for each in inspect(tx).get_columns("workers")})
        assert {"host", "pid"} <= columns
    finally:
        await new.close()
        await migrated.close()
