"""``parley verify``: every fault is a sentence, one moment is looked at, and nothing is written."""

import threading
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from sqlalchemy import func, insert, select, update
from sqlalchemy.exc import DBAPIError

from parley.base.ids import new_id
from parley.cli.opening import StoreTrouble, read_rows
from parley.storage import ReadTx, WriteTx, open_store
from parley.storage.tables.accounts import organizations, users
from parley.storage.tables.billing import balances
from parley.storage.tables.chats import chats
from tests.cli.conftest import command
from tests.cli.installation import Installation, installed


@pytest.fixture
async def here(store_url: str, tmp_path: Path) -> AsyncIterator[Installation]:
    async with installed(store_url, tmp_path) as installation:
        yield installation


async def test_a_sound_store_is_said_to_be_sound(here: Installation) -> None:
    ended = await here.command("verify")
    assert (ended.code, ended.out) == (0, "Everything fits together.\n")


async def test_every_fault_is_a_sentence_and_the_code_is_1(here: Installation) -> None:
    owner = await here.store.read(lambda tx: tx.execute(select(users.c.id)).scalar_one())
    chat_id, run_id = new_id(), new_id()

    def damage(tx: WriteTx) -> None:
        tx.execute(
            insert(chats).values(
                id=chat_id,
                organization_id=here.organization_id,
                user_id=owner,
                kind="assistant",
                title="x",
                running_id=run_id,
                tainted=False,
                next_seq=1,
                created_at=0,
                updated_at=0,
            )
        )
        tx.execute(
            insert(balances).values(
                organization_id=here.organization_id, account="wallet", period_at=0, posted_micro=5, held_micro=0
            )
        )

    await here.store.write(damage)
    ended = await here.command("verify")
    assert ended.code == 1
    assert f"chat {chat_id} is bound to run {run_id}, which is over" in ended.out
    assert f"wallet of organization {here.organization_id}" in ended.out
    assert "2 faults found." in ended.out


async def test_a_look_at_the_store_sees_one_moment_while_others_write(here: Installation) -> None:
    first_read, written = threading.Event(), threading.Event()
    counted = select(func.count()).select_from(organizations)
    seen: list[int] = []

    def look(tx: ReadTx) -> None:
        seen.append(tx.execute(counted).scalar_one())
        # On PostgreSQL this runs in the event loop's thread, so the writer has its own.
        first_read.set()
        assert written.wait(10)
        seen.append(tx.execute(counted).scalar_one())

    def write() -> None:
        assert first_read.wait(10)
        anyio.run(_add_organization, here)
        written.set()

    writer = threading.Thread(target=write)
    writer.start()
    await read_rows(here.settings, look)
    await anyio.to_thread.run_sync(writer.join)
    assert seen == [1, 1]
    assert await read_rows(here.settings, lambda tx: tx.execute(counted).scalar_one()) == 2


async def _add_organization(here: Installation) -> None:
    store = open_store(here.settings.store_url).across
    values = {"id": new_id(), "name": "Other", "slug": "other", "is_active": True, "settings": {}, "created_at": 0}
    await store.write(lambda tx: tx.execute(insert(organizations).values(values)))
    await store.close()


async def test_a_look_at_the_store_cannot_write(here: Installation) -> None:
    def write(tx: ReadTx) -> None:
        tx.execute(update(organizations).values(name="changed"))

    with pytest.raises((DBAPIError, StoreTrouble), match=r"read-only|readonly"):
        await read_rows(here.settings, write)
    assert await here.store.read(lambda tx: tx.execute(select(organizations.c.name)).scalar_one()) != "changed"


async def test_a_store_of_another_version_is_left_alone(here: Installation) -> None:
    await here.store.write(lambda tx: tx.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'"))
    for arguments in (("verify",), ("keys", "list"), ("keys", "rotate")):
        ended = await here.command(*arguments)
        assert ended.code == 2
        assert "schema 9999" in ended.err
        assert "parley serve" in ended.err


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://parley:canary@127.0.0.1:9/parley", "postgresql://parley:***@127.0.0.1:9/parley does not answer"),
        ("mysql://host/name", "SQLite or PostgreSQL, not in mysql"),
        ("nonsense", "PARLEY_DATABASE_URL is no URL"),
    ],
)
async def test_a_store_out_of_reach_is_named_without_its_password(tmp_path: Path, url: str, words: str) -> None:
    environment = {"PARLEY_DATABASE_URL": url, "PARLEY_DATA_DIR": str(tmp_path)}
    ended = await command("verify", environment=environment)
    assert ended.code == 2
    assert words in ended.err
    assert "canary" not in ended.err
    assert "Traceback" not in ended.err
